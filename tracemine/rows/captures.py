"""Captures of CUDA graphs: while one lasts launches go into the graph, and nothing is meant to run on a device."""

from __future__ import annotations

import numpy as np

from tracemine.patterns import deferred
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import is_graph_launch, named, threads
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_BEGINS = deferred(r"^(cuda|hip|cu)StreamBeginCapture")
_ENDS = deferred(r"^(cuda|hip|cu)StreamEndCapture")
_LAUNCHES = deferred(r"Launch(Cooperative)?Kernel")
_MAKES = deferred(r"^(cuda|hip|cu)GraphInstantiate")


def captures(timeline: Timeline) -> tuple[IntArray, IntArray]:
    """Return begin and end of the times in which graphs are captured or made of what was captured: disjoint, in order.

    A capture is recognised by the calls that begin and end it, one after the other on one thread.
    """
    name = categories(timeline.api["name"])
    starts, ends, makes = (named(name, pattern) for pattern in (_BEGINS, _ENDS, _MAKES))
    begin, dur = (rows_of(timeline.api[each]) for each in ("start_ns", "dur_ns"))
    thread, _ = threads(timeline)
    marks = np.flatnonzero(starts | ends)
    marks = marks[np.lexsort((begin[marks], thread[marks]))]
    first, last = marks[:-1], marks[1:]
    whole = starts[first] & ends[last] & (thread[first] == thread[last])
    made = np.flatnonzero(makes)
    since = np.concatenate((begin[first[whole]], begin[made]))
    until = np.concatenate(((begin + dur)[last[whole]], (begin + dur)[made]))
    order = np.argsort(since, kind="stable")
    since, until = since[order], until[order]
    latest = np.maximum.accumulate(until) if len(until) else until
    apart = np.flatnonzero(np.r_[True, since[1:] > latest[:-1]][: len(since)])
    return since[apart], latest[np.r_[apart[1:] - 1, len(since) - 1]] if len(apart) else latest


def covered_ns(begin: IntArray, end: IntArray, since: IntArray, until: IntArray) -> IntArray:
    """Return how much of each [since, until) lies within the disjoint intervals [begin, end), which are in order.

    >>> covered_ns(np.array([10, 30]), np.array([20, 40]), np.array([0, 15, 20]), np.array([100, 35, 30])).tolist()
    [20, 10, 0]
    """
    before = np.concatenate(([0], np.cumsum(end - begin)))

    def until_then(moment: IntArray) -> IntArray:
        at = np.searchsorted(begin, moment, side="right")
        inside = np.maximum(np.concatenate(([0], end))[at] - moment, 0)  # of the last that has begun
        return np.where(at > 0, before[at] - inside, 0)

    return until_then(until) - until_then(since)


def captured(timeline: Timeline, since: IntArray, until: IntArray) -> BoolArray:
    """Return whether graphs are captured for at least half of each [since, until)."""
    begin, end = captures(timeline)
    return (2 * covered_ns(begin, end, since, until) >= until - since) & (until > since)


def captured_graphs(timeline: Timeline) -> int:
    """Return how many graphs a recording captures, where it shows that and little else; 0 otherwise.

    Where nothing is replayed, and captures are most of the time, or most launches of kernels went into them: between
    the pieces of a model whose graphs are many, what is not captured runs eagerly.
    """
    name, since = categories(timeline.api["name"]), rows_of(timeline.api["start_ns"])
    if not len(since) or is_graph_launch(name).any():
        return 0
    begin, end = captures(timeline)
    until = int((since + rows_of(timeline.api["dur_ns"])).max())
    most_time = 2 * int((end - begin).sum()) >= until - int(since.min())
    launches = since[named(name, _LAUNCHES)]
    at = np.searchsorted(begin, launches, side="right")
    into_graphs = int((launches < np.append(end, 0)[at - 1]).sum())  # none has begun: at −1, the 0
    return int(named(name, _ENDS).sum()) if most_time or 2 * into_graphs > len(launches) else 0
