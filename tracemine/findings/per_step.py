"""Step figures: the usual and the slowest, of all steps and of each kind; where they come from, and which count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.columns import codes
from tracemine.findings.record import StepApart, StepKind, StepSummary
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.iterations import Iterations
from tracemine.rows.iterations.record import MARKED, counted, work_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

_ALIKE = 0.9  # share of the kernels that two steps of one kind have in common
_MOST_KINDS = 16
_FEWEST_OF_SPREAD = 3  # steps
_SHOWN = 60  # characters of recorded shapes
QUEUED_NS = 200_000  # between a launch and its activity: on an idle device it is some ten microseconds
# A step that takes so many times what is usual is not counted; at the ends of a recording of at least so many steps.
_SLOW, _SLOW_AT_ENDS, _FEWEST_WITH_ENDS = 2.0, 1.2, 4
_UNSEEN = "begin not seen"
# Idle up to a step's first activity, while the host is in that step or in the one before, that is worth a step of the
# recording: the first step's is no gap, as nothing was recorded before it, so that over so few steps a stall there
# would cost a step a third less than it does.
_LONG_HEADS, _FEW_STEPS = ((1_000_000, 0.1), (300_000, 0.2)), 3  # so long, and so much of the step


def step_summary(timeline: Timeline, exclusive_ns: IntArray, found: Iterations | None) -> StepSummary | None:
    """Return the figures of a trace's iterations; None where it has none. `exclusive_ns`: of each activity."""
    if found is None or not len(found):
        return None
    span, busy = _lengths(exclusive_ns, found)
    kinds = kinds_of(timeline, found)
    return StepSummary(
        span_ns=_usual(span, kinds),
        gpu_busy_ns=_usual(busy, kinds),
        count=len(found),
        span_p50_ns=percentile(span, 50),
        span_p99_ns=percentile(span, 99),
        gpu_busy_p50_ns=percentile(busy, 50),
        gpu_busy_p99_ns=percentile(busy, 99),
        source=found.source,
        evidence=found.evidence,
        confidence=found.confidence,
        fastest_ns=_fastest(np.maximum(span, busy), kinds, whole=found.source == MARKED),
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


def observed(timeline: Timeline, found: Iterations | None) -> Iterations | None:
    """Return a single iteration that was inferred from where its device was seen on.

    Where the first activity of the stream that it works on waited for long behind its launch, and nothing was recorded
    meanwhile, the stream was at work on what was launched before the recording: that it was idle is not recorded.
    """
    if found is None or len(found) != 1 or found.source == MARKED:
        return found
    columns = ("start_ns", "dur_ns", "launch_row", "device", "stream")
    start, dur, launch, device, stream = (rows_of(timeline.activities[name]) for name in columns)
    place = codes(device, stream)
    first = int(np.flatnonzero(place == np.bincount(place, weights=dur).argmax())[0])  # in order of start
    if found.of_activity[first] != 0 or launch[first] < 0:
        return found
    launched_ns = sum(int(rows_of(timeline.api[name])[launch[first]]) for name in ("start_ns", "dur_ns"))
    if start[first] - max(launched_ns, int((start + dur)[:first].max(initial=launched_ns))) < QUEUED_NS:
        return found
    seen_ns = np.maximum(found.begin_ns, start[first])
    return replace(found, begin_ns=seen_ns, host_begin_ns=found.begin_ns)


def usual_steps(
    timeline: Timeline, exclusive_ns: IntArray, found: Iterations | None
) -> tuple[Iterations | None, tuple[StepApart, ...]]:
    """Return the iterations that tell what a step takes, and those that do not: see `_apart` and `_begins_unseen`."""
    if found is None or len(found) < 2:
        return found, ()
    span, busy = _lengths(exclusive_ns, found)
    why = {0: _UNSEEN} if _begins_unseen(timeline, found, span) else {}
    if len(found) >= _FEWEST_OF_SPREAD:
        why |= _apart(np.maximum(span, busy), kinds_of(timeline, found))
    if not why:
        return found, ()
    kept = np.array([at not in why for at in range(len(found))])
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last: of what is in none
    apart = tuple(
        StepApart(number=at, why=why[at], span_ns=int(span[at]), gpu_busy_ns=int(busy[at])) for at in sorted(why)
    )
    return replace(
        found,
        begin_ns=found.begin_ns[kept],
        end_ns=found.end_ns[kept],
        of_activity=number[found.of_activity],
        labels=tuple(label for label, keep in zip(found.labels, kept, strict=False) if keep),
    ), apart


def first_unseen(found: Iterations | None, apart: Sequence[StepApart]) -> bool:
    """Return whether only the begin of the first of marked steps was not seen, so that all others count."""
    return found is not None and found.source == MARKED and [(one.number, one.why) for one in apart] == [(0, _UNSEEN)]


def _apart(step_ns: IntArray, kinds: Sequence[tuple[str, IntArray]]) -> dict[int, str]:
    """Return the steps that do not tell what a step takes, and why: `slow`, or `first` and `last` of the recording.

    A step is slow that takes more than twice what is usual: among those of its kind, or, where it is the only one,
    among all. At the ends, where a recording starts and is written, a fifth more is enough.
    """
    usual = np.full(len(step_ns), percentile(step_ns, 50))
    for _, rows in kinds:
        if len(rows) > 1:
            usual[rows] = percentile(step_ns[rows], 50)
    found = {int(at): "slow" for at in np.flatnonzero(step_ns > _SLOW * usual)}
    ends = {0: "first", len(step_ns) - 1: "last"} if len(step_ns) >= _FEWEST_WITH_ENDS else {}
    return found | {at: name for at, name in ends.items() if step_ns[at] > _SLOW_AT_ENDS * usual[at]}


def _begins_unseen(timeline: Timeline, found: Iterations, span_ns: IntArray) -> bool:
    """Return whether devices idle for long before steps' first work, which is recorded of all steps but the first.

    A device's idle time is recorded between two of its activities; none is before the first step's.
    """
    start, dur = (rows_of(timeline.activities[name]) for name in ("start_ns", "dur_ns"))
    first_ns = np.full(len(found), np.iinfo(np.int64).max)
    inside = found.of_activity >= 0
    np.minimum.at(first_ns, found.of_activity[inside], start[inside])
    if len(found) > _FEW_STEPS or not inside.any() or start.min() < found.begin_ns[0]:
        return False
    order = np.argsort(start, kind="stable")
    ended_ns = np.maximum.accumulate((start + dur)[order])
    later = np.flatnonzero(first_ns[1:] < np.iinfo(np.int64).max) + 1
    before = np.searchsorted(start[order], first_ns[later]) - 1
    idle_since_ns, begin_ns = np.where(before >= 0, ended_ns[before], 0), found.begin_ns[later]
    head_ns = np.maximum(first_ns[later] - np.maximum(idle_since_ns, begin_ns), 0)
    long, short = (np.maximum(least, share * span_ns[later]) for least, share in _LONG_HEADS)
    unseen = head_ns >= np.minimum(long, short)
    if found.source == MARKED:  # what the host does in a step behind its work is idle before the next one's
        unseen |= head_ns + np.maximum(np.minimum(found.end_ns[later - 1], begin_ns) - idle_since_ns, 0) >= long
    return bool(len(later)) and 2 * int(unseen.sum()) > len(later)


def _lengths(exclusive_ns: IntArray, found: Iterations) -> tuple[IntArray, IntArray]:
    """Return how long each step took on the host, and for how long devices were at work in it."""
    inside = found.of_activity >= 0
    busy = np.zeros(len(found), np.int64)
    np.add.at(busy, found.of_activity[inside], exclusive_ns[inside])
    return found.end_ns - found.begin_ns, busy


def _fastest(step_ns: IntArray, kinds: Sequence[tuple[str, IntArray]], *, whole: bool) -> int | None:
    """Return what the fastest step of each kind took, each kind as often as it occurs; None where one is not known.

    whole: the last step ends where another would begin. Where it was inferred it ends with its work, which says less.
    """
    known = np.arange(len(step_ns)) < len(step_ns) - (0 if whole else 1)
    if not all(known[rows].any() for _, rows in kinds):
        return None
    return sum(len(rows) * int(step_ns[rows[known[rows]]].min()) for _, rows in kinds) // len(step_ns)


def _usual(values: IntArray, kinds: Sequence[tuple[str, IntArray]]) -> int:
    """Return what a step takes as a rule: the middle of its kind, each kind as often as it occurs."""
    return int(sum(len(rows) * float(np.median(values[rows])) for _, rows in kinds) / len(values))


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
    """Return similar iterations, by name: as their marks say, else by what kernels they run and on what first.

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
    leaders: list[int] = []  # rows of counts; each represents those like it
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
