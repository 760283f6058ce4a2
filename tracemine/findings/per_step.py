"""Step figures: the mean, the usual and the slowest, of all steps and of each kind, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.findings.record import StepKind, StepSummary
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.iterations import Iterations
from tracemine.rows.iterations.record import counted, work_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

_ALIKE = 0.9  # share of the kernels that two steps of one kind have in common
_MOST_KINDS = 16
_FEWEST_OF_SPREAD = 3  # steps
_SHOWN = 60  # characters of recorded shapes


def step_summary(timeline: Timeline, exclusive_ns: IntArray, found: Iterations | None) -> StepSummary | None:
    """Return the figures of a trace's iterations; None where it has none. `exclusive_ns`: of each activity."""
    if found is None or not len(found):
        return None
    inside = found.of_activity >= 0
    busy = np.zeros(len(found), np.int64)
    np.add.at(busy, found.of_activity[inside], exclusive_ns[inside])
    span = found.end_ns - found.begin_ns
    kinds = kinds_of(timeline, found)
    return StepSummary(
        span_ns=int(span.sum()) // len(found),
        gpu_busy_ns=int(busy.sum()) // len(found),
        count=len(found),
        span_p50_ns=percentile(span, 50),
        span_p99_ns=percentile(span, 99),
        gpu_busy_p50_ns=percentile(busy, 50),
        gpu_busy_p99_ns=percentile(busy, 99),
        source=found.source,
        evidence=found.evidence,
        confidence=found.confidence,
        span_spread_ns=_spread(span, kinds),
        gpu_busy_spread_ns=_spread(busy, kinds),
        kinds=tuple(
            StepKind(
                name=name,
                count=len(rows),
                span_p50_ns=percentile(span[rows], 50),
                span_p99_ns=percentile(span[rows], 99),
                gpu_busy_p50_ns=percentile(busy[rows], 50),
                gpu_busy_p99_ns=percentile(busy[rows], 99),
            )
            for name, rows in sorted(kinds, key=lambda kind: -int(busy[kind[1]].sum()))
        ),
    )


def _spread(values: IntArray, kinds: Sequence[tuple[str, IntArray]]) -> int | None:
    """Return by how much half of the steps differ, at most, from their kind's middle one; None of fewer than three."""
    if len(values) < _FEWEST_OF_SPREAD:
        return None
    return percentile(np.concatenate([np.abs(values[rows] - percentile(values[rows], 50)) for _, rows in kinds]), 50)


def percentile(values: IntArray, percent: int) -> int:
    """Return the smallest of the values that so many percent of them do not exceed.

    >>> percentile(np.array([5, 1, 3]), 50), percentile(np.arange(1, 201), 99), percentile(np.array([7]), 99)
    (3, 198, 7)
    """
    return int(np.sort(values)[max(0, -(-len(values) * percent // 100) - 1)])


def kinds_of(timeline: Timeline, found: Iterations) -> list[tuple[str, IntArray]]:
    """Return iterations that are alike, by name: as their marks say, else by what kernels they run and on what first.

    Those of the kinds beyond the sixteen most frequent are of one, `other`.
    """
    if found.labels and all(found.labels):
        names = [str(label) for label in found.labels]
    else:
        names = _by_kernels(timeline, found)
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    kinds = sorted(rows.items(), key=lambda kind: (-len(kind[1]), kind[1][0]))
    rest = sorted(row for _, each in kinds[_MOST_KINDS:] for row in each)
    kinds = kinds[:_MOST_KINDS] + ([("other", rest)] if rest else [])
    return [(name, np.array(each, np.int64)) for name, each in kinds]


def _by_kernels(timeline: Timeline, found: Iterations) -> list[str]:
    counts, kind = np.unique(counted(work_of(timeline), found.of_activity, len(found)), axis=0, return_inverse=True)
    leaders: list[int] = []  # rows of counts; each stands for those like it
    leader = np.zeros(len(counts), np.int64)
    for row, one in enumerate(counts):
        shared = np.minimum(counts[leaders], one).sum(axis=1) if leaders else np.zeros(0)
        larger = np.maximum(counts[leaders].sum(axis=1), one.sum()) if leaders else np.ones(0)
        alike = np.flatnonzero(shared >= _ALIKE * np.maximum(larger, 1))
        if not len(alike) and len(leaders) < _MOST_KINDS:
            leaders.append(row)
        leader[row] = alike[0] if len(alike) else len(leaders) - 1
    first = _first_shapes(timeline, found)
    total = counts.sum(axis=1)
    codes = leader[kind.reshape(-1)].tolist()
    return [
        f"{int(total[leaders[code]]):,} kernels" + (f", first of {shapes}" if shapes else "")
        for code, shapes in zip(codes, first, strict=True)
    ]


def _first_shapes(timeline: Timeline, found: Iterations) -> list[str]:
    """Return the inputs' shapes of the first operator in each iteration whose shapes are recorded; "" where none is."""
    shapes = categories(timeline.ops["input_shapes"])
    op_row = rows_of(timeline.activities["op_row"])
    code = shapes.codes[op_row] if len(shapes.codes) else np.full(len(op_row), -1)
    known = np.flatnonzero((found.of_activity >= 0) & (op_row >= 0) & (code >= 0))
    steps, at = np.unique(found.of_activity[known], return_index=True)
    first = np.full(len(found), -1, np.int64)
    first[steps] = code[known[at]]
    return [shapes.values[each][:_SHOWN] if each >= 0 else "" for each in first.tolist()]
