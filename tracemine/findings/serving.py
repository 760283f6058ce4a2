"""What an engine that generates text did: iterations by phase, their batches, time per output token, graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from tracemine.columns import sorted_unique, unique_pairs
from tracemine.findings.context import ScanContext
from tracemine.findings.record import ReplayedBatch, Serving, ServingKind
from tracemine.ops import lookup
from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.engines import engine_named
from tracemine.rows.host import is_graph_launch
from tracemine.rows.iterations import Batch, Iterations, batches, forward_passes
from tracemine.rows.iterations.record import MARKED
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_MOST_TOLD: Final = 16  # numbers of tokens of one graph that are listed
_MATRIX: Final = deferred(r"\[(\d{1,9}),\d{1,9}\]")  # in recorded shapes: the first of a product is what it is fed


def serving_of(context: ScanContext, captures: int) -> Serving | None:
    """Return what the engine did; None where none is known, or where the model is trained.

    captures: graphs that are captured, where the recording shows that and little else.
    """
    engine, found = engine_named(context.environment.engine), context.accounts.counted
    if engine is None or context.training:
        return None
    kinds: list[ServingKind] = []
    replayed: list[ReplayedBatch] = []
    if not engine.serves:
        passes = forward_passes(context.timeline)
        kinds += () if passes is None else _kinds(*passes, context.accounts.exclusive_ns)
    elif found is not None and len(found) and not captures:
        told = batches(context.timeline, found)
        kinds += _kinds(found, told, context.accounts.exclusive_ns)
        replayed += _replayed(context.timeline, found, told)
    return Serving(
        engine=engine.name, title=engine.title, captures=captures, kinds=tuple(kinds), replayed=tuple(replayed)
    )


def _kinds(found: Iterations, told: Sequence[Batch | None], exclusive_ns: IntArray) -> list[ServingKind]:
    """Return the iterations of each phase."""
    busy = np.zeros(len(found), np.int64)
    inside = found.of_activity >= 0
    np.add.at(busy, found.of_activity[inside], exclusive_ns[inside])
    phases = np.array(["" if one is None else one.phase for one in told])
    whole = _whole(found)
    kinds = []
    for phase in dict.fromkeys(phases.tolist()):
        rows = np.flatnonzero(phases == phase)
        of = [one for at in rows.tolist() if (one := told[at]) is not None]
        step_ns = _median((found.end_ns - found.begin_ns)[rows[whole[rows]]].tolist())
        single = phase == "decode" and all(one.decode_tokens == one.decode for one in of)
        kinds.append(
            ServingKind(
                phase=phase,
                count=len(rows),
                sequences=_median([one.prefill + one.decode for one in of]),
                prompt_tokens=_median([one.prefill_tokens for one in of]) if phase != "decode" else None,
                tokens=_median([one.tokens for one in of]),
                gpu_busy_ns=_median(busy[rows].tolist()) or 0,
                step_ns=step_ns,
                token_ns=step_ns if single else None,
            )
        )
    return sorted(kinds, key=lambda kind: -kind.count * kind.gpu_busy_ns)


def _whole(found: Iterations) -> BoolArray:
    """Return which iterations end where the next begins: the last that was inferred ends with its work."""
    if found.source == MARKED:
        return np.ones(len(found), np.bool_)
    return np.append(found.end_ns[:-1] == found.begin_ns[1:], False)


def _median(values: Iterable[int | None]) -> int | None:
    """Return the middle value; None where one is not known, or there are none."""
    known = list(values)
    return None if not known or None in known else int(np.median(np.array(known, np.int64)))


def _replayed(timeline: Timeline, found: Iterations, told: Sequence[Batch | None]) -> Iterator[ReplayedBatch]:
    """Yield the iterations that replay graphs, by the number of tokens that these were captured for."""
    launch = rows_of(timeline.activities["launch_row"])
    replays = np.append(is_graph_launch(categories(timeline.api["name"])), False)[launch] & (launch >= 0)
    replays &= found.of_activity >= 0
    if not replays.any():
        return
    pairs = unique_pairs(found.of_activity[replays], launch[replays])
    graphs = np.bincount(pairs[0], minlength=len(found))
    captured = _captured(timeline, found, replays)
    by_rows: dict[int | None, list[int]] = {}
    for at in np.flatnonzero(graphs).tolist():
        by_rows.setdefault(captured.get(at), []).append(at)
    for rows, members in sorted(by_rows.items(), key=lambda each: each[0] or 0):
        tokens = [None if (batch := told[at]) is None else batch.tokens for at in members]
        known = [each for each in tokens if each is not None]
        fits = rows is not None and len(known) == len(members) and max(known) <= rows
        yield ReplayedBatch(
            rows=rows,
            graphs=int(graphs[members].max()),
            iterations=len(members),
            tokens=tuple(sorted(set(known))[:_MOST_TOLD]),
            padded_share=round(1 - sum(known) / ((rows or 1) * len(members)), 4) if fits else None,
        )


def _captured(timeline: Timeline, found: Iterations, replays: BoolArray) -> dict[int, int]:
    """Return how many rows most products of an iteration's graphs are fed: what its graphs were captured for."""
    shapes, names = categories(timeline.ops["input_shapes"]), categories(timeline.ops["name"])
    op_row = rows_of(timeline.activities["op_row"])
    product = np.array([*((op := lookup(name)) is not None and op.op_class == "gemm" for name in names.values), False])
    asked = np.flatnonzero(replays & (op_row >= 0))
    asked = asked[product[names.codes[op_row[asked]]]] if len(names.codes) else asked
    fed = np.array([*(int(at[1]) if (at := _MATRIX.search(text)) else 0 for text in shapes.values), 0], np.int64)
    rows = fed[shapes.codes[op_row[asked]]]
    most: dict[int, int] = {}
    for at in sorted_unique(found.of_activity[asked]).tolist():
        counts = np.bincount(np.minimum(rows[found.of_activity[asked] == at], 1 << 24))
        counts[:1] = 0
        if counts.any():
            most[at] = int(counts.argmax())
    return most
