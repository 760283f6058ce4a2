"""Iterations by replays of CUDA graphs: what is replayed between two exchanges with the host is one iteration's.

A serving engine replays one graph a step, or, where it captures pieces of the model, many without a word to the host
in between. It hands over the next inputs and takes the results between two steps: that is where they part.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, numbers
from tracemine.rows.host import is_graph_launch
from tracemine.rows.iterations.record import REPLAYS, Iterations, LaunchedWork, inferred
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_WAITS = deferred(r"(Device|Stream|Event|Ctx|Context) ?Sync|Synchronize")
_FEWEST = 3  # runs of replays that are said to repeat


def from_replays(timeline: Timeline, work: LaunchedWork) -> Iterations | None:
    """Return iterations by graph replays with exchanges between them; None where fewer than three runs are similar."""
    call = categories(timeline.api["name"])
    begun = numbers(timeline.api["start_ns"]).values.astype(np.int64)
    replays = np.sort(begun[is_graph_launch(call)])
    results, inputs = exchanges(timeline, work)
    if len(replays) < _FEWEST:
        return None
    left, right = replays[:-1], replays[1:]
    last = np.searchsorted(results, right) - 1  # the last result taken before the next replay
    first = np.searchsorted(inputs, left, side="right")  # the first input handed over after this one
    result = np.where(last >= 0, results[last], -1) if len(results) else np.full(len(left), -1)
    handed = inputs[np.minimum(first, len(inputs) - 1)] if len(inputs) else np.full(len(left), -1)
    cuts = np.where(result > left, result + 1, np.where((handed > left) & (handed < right), handed, -1))
    cuts = cuts[cuts >= 0]
    if len(cuts) + 1 < _FEWEST:
        return None
    evidence = f"{len(replays):,} graph launches in {len(cuts) + 1:,} runs, exchanges with the host between them"
    return inferred(work, cuts, source=REPLAYS, evidence=evidence)


def exchanges(timeline: Timeline, work: LaunchedWork) -> tuple[IntArray, IntArray]:
    """Return when the host took results (waited, or copied from a device), and when it handed over inputs. Sorted."""
    call = categories(timeline.api["name"])
    begun = numbers(timeline.api["start_ns"]).values.astype(np.int64)
    waits = begun[call.that(_WAITS.search)]
    copied = categories(timeline.activities["copy_kind"])
    results, inputs = (work.moment_ns[_is(copied.codes, copied.values, kind) & work.known] for kind in ("DtoH", "HtoD"))
    return np.sort(np.concatenate((waits, results))), np.sort(inputs)


def _is(codes: npt.NDArray[np.int32], values: tuple[str, ...], value: str) -> BoolArray:
    return np.array([*(each == value for each in values), False], np.bool_)[codes]
