"""What a step's start saves once others do its work: a thread, a loader's workers, the device."""

from __future__ import annotations

from typing import Final

import numpy as np

from tracemine.causes.first_launch_late.facts import at_start, into_step_ns
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.gap_estimates import of_gaps
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import FloatArray, IntArray, number

_WORKERS, _SLOWER, _HANDED_OVER_NS = 4, 1.4, 500_000  # as perfmodel/data_loading.py has them
# Of the low end: others share the cores.
_LEAST_SHARE: Final = 0.5
_OF_BUFFERS: Final = 0.75  # the forward pass begins with other work of the host


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate steps whose first launch waits for no more than the launch itself."""
    rows, members = context.rows["gaps"], matrix.reshape(-1)
    into = into_step_ns(context)[members]
    part = into / np.maximum(number(rows, "dur_ns")[members], 1)
    least, usual, most = (np.minimum(each[members] * part, into) for each in context.unprofiled_gaps_ns)
    step_ns = context.unprofiled.mid_ns if context.unprofiled.of_step else 2 * usual
    rest = np.maximum(step_ns - usual, 0)
    what = at_start(context, members)
    middle, how = _saved(what, usual, rest)
    saving = outwards(
        float((_LEAST_SHARE * np.minimum(least, np.minimum(rest, middle))).sum()),
        float(middle.sum()),
        float(np.maximum(most, middle).sum()),
    )
    notes = [f"middle: {how} (assumed); low end: half of that on a faster host; high end: all of it goes"]
    if context.steps.slowdown is not None:
        notes.append(f"{context.steps.slowdown.what}: gaps count as they last without it")
    return of_gaps(context, matrix, saving.at_most(int(into.sum())), tuple(notes))


def _saved(what: str | None, load: FloatArray, rest: FloatArray) -> tuple[FloatArray, str]:
    """Return what goes of each stretch of `load`, beside `rest` of the step, and how.

    >>> ms = 1e6
    >>> _saved("operators", np.array([4 * ms]), np.array([3 * ms]))[0].tolist()
    [3000000.0]
    >>> _saved("python", np.array([8 * ms]), np.array([1 * ms]))[0].tolist()
    [6200000.0]
    """
    if what == "operators":
        return np.minimum(load, rest), "a thread does it while the rest of the step runs"
    if what == "buffers":
        return _OF_BUFFERS * load, f"{_OF_BUFFERS:.0%} of it is sending buffers"
    left = np.maximum(_SLOWER * load / _WORKERS - rest, np.minimum(_HANDED_OVER_NS, load))
    return load - left, f"{_WORKERS} processes do it while the rest of the step runs, each {_SLOWER:g} times slower"
