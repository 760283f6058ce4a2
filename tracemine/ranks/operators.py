"""What a rank's host ran: which operators how often, where its backward pass ended, and where it recorded nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers, string_ids
from tracemine.host.kinds import is_collection
from tracemine.rows.spans import Spans, common
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_KEPT = 60  # names
_PACE_NS, _LEAST_CALLERS = (1_000, 2_000, 4_000), 20  # at least, usual where so few are known, at most
_NEVER = np.iinfo(np.int64).max


class Silence(Struct, frozen=True):
    """A span in which the host recorded nothing: for how long, and what it ended and began there."""

    dur_ns: int
    after: str | None
    before: str | None


def operators_of(timeline: Timeline, begin: int, end: int) -> dict[str, int]:
    """Return the operators that ran most often in a window, and how often."""
    code, names = string_ids(timeline.ops.column("name"))
    begun = numbers(timeline.ops.column("start_ns"))
    count = np.bincount(code[(begun >= begin) & (begun < end) & (code >= 0)], minlength=len(names))
    return {names[at]: int(count[at]) for at in np.argsort(-count, kind="stable")[:_KEPT].tolist() if count[at]}


def pace_ns(timeline: Timeline) -> float:
    """Return how long it takes from an operator's begin to that of the first one that it calls, in the median."""
    begin, parent = (numbers(timeline.ops.column(name), null=-1) for name in ("start_ns", "parent_row"))
    called = np.argsort(begin, kind="stable")
    called = called[parent[called] >= 0]
    callers, first = np.unique(parent[called], return_index=True)
    least, usual, most = _PACE_NS
    took = begin[called[first]] - begin[callers]
    return min(max(float(np.median(took)), least), most) if len(callers) >= _LEAST_CALLERS else usual


def after_backward(timeline: Timeline, edges: IntArray, launched: IntArray, step: IntArray) -> BoolArray:
    """Return what was launched after the last operator of its step's backward pass. edges: of steps."""
    code, names = string_ids(timeline.ops.column("name"))
    is_backward = np.array([*(name.startswith("autograd::engine::evaluate_function") for name in names), False])
    begun = np.sort(numbers(timeline.ops.column("start_ns"))[is_backward[code]])
    if not len(begun):
        return np.zeros(len(step), np.bool_)
    last = np.searchsorted(begun, edges[1:], "left") - 1
    last_begun = np.where(last >= 0, begun[last], _NEVER)
    last_begun = np.where(last_begun >= edges[:-1], last_begun, _NEVER)
    is_after: BoolArray = (step >= 0) & (launched > np.append(last_begun, _NEVER)[step])
    return is_after


def calling_ns(
    timeline: Timeline,
    sends: Spans,
    launched: IntArray,
    calls: IntArray,
    added_ns: Callable[[IntArray, IntArray], IntArray],
) -> IntArray:
    """Return how long the host took from the launch before to that of each collective, what recording added left out.

    Operators between the two that send nothing are not of the call: they stay where it goes. sends: of operators that
    send. calls: when the runtime's begin. added_ns: by recording so many operators and calls.
    """
    begin = numbers(timeline.ops.column("start_ns"))
    end = begin + numbers(timeline.ops.column("dur_ns"))
    sent = (sends.within(begin, end) > 0) | (not len(sends.begin))
    others = Spans.of(begin[~sent], end[~sent])
    order = np.argsort(launched, kind="stable")
    edges = launched[order]
    counts = (
        np.diff(np.searchsorted(np.sort(each), edges)) for each in (begin[sent], calls[~others.meet(calls, calls)])
    )
    took = np.full(len(launched), -1, np.int64)
    took[order[1:]] = np.maximum(np.diff(edges - others.until(edges)) - added_ns(*counts), 0)
    return took


def longest(timeline: Timeline, silence: Spans) -> Silence | None:
    """Return the longest of some spans in which the host recorded nothing."""
    if not len(silence.begin):
        return None
    at = int(np.argmax(silence.dur))
    start, stop = int(silence.begin[at]), int(silence.end[at])
    begun = numbers(timeline.ops.column("start_ns"))
    ended = begun + numbers(timeline.ops.column("dur_ns"))
    code, names = string_ids(timeline.ops.column("name"))
    before, after = np.flatnonzero(ended <= start), np.flatnonzero(begun >= stop)
    return Silence(
        stop - start,
        names[code[before[np.argmax(ended[before])]]] if len(before) else None,
        names[code[after[np.argmin(begun[after])]]] if len(after) else None,
    )


def collecting_ns(timeline: Timeline, silence: Spans) -> int:
    """Return how long Python collected garbage in spans in which the host recorded nothing else, as marked or timed."""
    names = string_ids(timeline.ops.column("name"))
    marked = np.flatnonzero(np.array([*map(is_collection, names[1]), False])[names[0]])
    begin = numbers(timeline.ops.column("start_ns"))[marked]
    end = begin + numbers(timeline.ops.column("dur_ns"))[marked]
    timed = np.array([span[:2] for span in timeline.meta.garbage_ns or ()], np.int64).reshape(-1, 2)
    spans = Spans.of(np.append(begin, timed[:, 0]), np.append(end, timed[:, 1]))
    return int(common(spans, silence).dur.sum())
