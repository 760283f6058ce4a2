"""Spans of the host's time that recording stretches little: loading data, and where nothing was recorded for long."""

from __future__ import annotations

import numpy as np

from tracemine.columns import string_ids
from tracemine.rows.arrow import categories, is_named, rows_of
from tracemine.rows.host import LOADS, HostCalls, named
from tracemine.rows.spans import Spans
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

# An operator for so long between two events that were recorded: it is in a library (cuDNN plans a convolution or an
# attention of a new shape in some ten milliseconds) or in a loop of its own. Dispatch and launches take microseconds.
# On an H100's host such a span of 39 ms a step took 40 ms unprofiled, and the rest of that step 44 and 18 ms
# (llama_decode in benchmarks/results/deep_h100.md).
_LEAST_NS = 1_000_000
# Where the step was not timed alone nothing else tells such a span from dispatch. What recording costs, it costs an
# event: some microseconds, so that a stretch of so many without any was about as long unprofiled.
_LEAST_NOT_TIMED_NS = 400_000
_OWN = "aten::"  # the namespace of operators in which, as a rule, no Python runs


def loading(timeline: Timeline, origin: int) -> Spans:
    """Return when data is loaded, by the annotations of torch's loaders."""
    begin, end = _times(timeline, origin)
    rows = np.flatnonzero(named(categories(timeline.ops["name"]), LOADS))
    return Spans.of(begin[rows], end[rows])


def unstretched(timeline: Timeline, origin: int, calls: HostCalls, thread: IntArray, loads: Spans) -> Spans:
    """Return when the host was at something long in which nothing was recorded, data loading apart.

    In an operator, or, unless the step was timed alone, which says more, in none: Python, a file, a lock, a sleep.
    Arguments as those of `within_operators`.
    """
    if timeline.meta.alone_step_ns:
        return within_operators(timeline, origin, calls, thread, loads, _LEAST_NS)
    within = within_operators(timeline, origin, calls, thread, loads, _LEAST_NOT_TIMED_NS)
    outside = _in_no_call(timeline, origin, calls, loads)
    begin, dur = (np.concatenate((getattr(within, name), getattr(outside, name))) for name in ("begin", "dur"))
    return Spans.of(begin, begin + dur)


def _in_no_call(timeline: Timeline, origin: int, calls: HostCalls, loads: Spans) -> Spans:
    """Return when no thread was in an operator, in a call to the driver, or loading data."""
    begin, end = _times(timeline, origin)
    op = np.flatnonzero(is_named(categories(timeline.ops["kind"]), "op"))
    begin = np.concatenate((begin[op], calls.begin, loads.begin))
    end = np.concatenate((end[op], calls.end, loads.begin + loads.dur))
    order = np.argsort(begin, kind="stable")
    begin, latest = begin[order][1:], np.maximum.accumulate(end[order])[:-1]
    long = begin - latest >= _LEAST_NOT_TIMED_NS
    return Spans.of(latest[long], begin[long])


def within_operators(
    timeline: Timeline, origin: int, calls: HostCalls, thread: IntArray, loads: Spans, least_ns: int = _LEAST_NS
) -> Spans:
    """Return when operators of PyTorch's own run for long without anything recorded inside, data loading apart: on
    threads that launch, and while no other one does.

    calls: with times since the origin. thread: of each row of `ops`, as that of calls.
    """
    begin, end = _times(timeline, origin)
    ops, api = timeline.ops, timeline.api
    name, names = string_ids(ops["name"])
    of_torch = np.array([*(text.startswith(_OWN) for text in names), False], np.bool_)[name]
    lasts = np.flatnonzero(of_torch & (end - begin >= least_ns))
    where = Spans.of(begin[lasts], end[lasts])  # nothing else has to be looked at
    if not len(lasts):
        return where
    op = np.flatnonzero(where.meet(begin, end) & (end > begin))
    call = np.flatnonzero(where.meet(calls.begin, calls.end))
    around, caller = rows_of(ops["parent_row"])[op], rows_of(api["op_row"])[call]
    # Events, and the innermost operator from each on. At one moment calls end, then operators, the inner one first;
    # then operators begin, the outer one first (their rows are in that order), then calls.
    time = np.concatenate((calls.end[call], end[op], begin[op], calls.begin[call]))
    inside = np.concatenate((caller, around, op, np.full(len(call), -1)))
    of_thread = np.concatenate((calls.thread[call], thread[op], thread[op], calls.thread[call]))
    kind = np.repeat(np.arange(4), (len(call), len(op), len(op), len(call)))
    turn = np.concatenate((call, -op, op, call))
    order = np.lexsort((turn, kind, time, of_thread))
    time, inside, of_thread = time[order], inside[order], of_thread[order]
    long = np.flatnonzero((np.diff(time) >= least_ns) & (np.diff(of_thread) == 0) & (inside[:-1] >= 0))
    first, last, operator = time[long], time[long + 1], inside[long]
    kept = of_torch[operator] & (end[operator] >= last) & np.isin(of_thread[long], calls.thread[calls.launches])
    launched = np.sort(calls.begin[calls.launches])  # by another thread: then that one sets the pace
    kept &= np.searchsorted(launched, first, "right") == np.searchsorted(launched, last, "left")
    kept &= loads.until(first) == loads.until(last)
    return Spans.of(first[kept], last[kept])


def _times(timeline: Timeline, origin: int) -> tuple[IntArray, IntArray]:
    """Return when operators begin and end."""
    begin = rows_of(timeline.ops["start_ns"]).astype(np.int64) - origin
    return begin, begin + rows_of(timeline.ops["dur_ns"])
