"""Graph replays of which the trace lacks kernels: while one may be running, a device that looks idle may not be.

A profiler can miss a replay's kernels: graphs are traced as a whole or not at all, buffers ran over, recording began
after the graph was made. The call that launched it is there all the same, and says since when the device may have been
busy.
"""

from __future__ import annotations

import re

import numpy as np

from tracemine.columns import codes
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import HostCalls, is_graph_launch, named
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_EVENT = re.compile("Event")  # a wait for an event can be one for an event from before the replay
_MOST_STREAMS = 256  # of a made-up trace with more it is never said that a replay is over
_NEVER = np.iinfo(np.int64).max


def under_recorded(timeline: Timeline) -> IntArray:
    """Return rows of `api` that launched a graph with no activity recorded, or fewer than another replay of it.

    The second can be known only where the export numbers its graphs.

    >>> from tracemine.timeline import Meta
    >>> under_recorded(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).tolist()
    []
    """
    activities, names = timeline.activities, categories(timeline.api.column("name"))
    launch = rows_of(activities.column("launch_row"))
    count = np.bincount(launch[launch >= 0], minlength=len(names.codes))
    most = count.copy()
    graph = rows_of(activities.column("graph_id"))
    known = np.flatnonzero((graph >= 0) & (launch >= 0))
    if len(known):
        _, code = np.unique(graph[known], return_inverse=True)
        of_graph = np.zeros(int(code.max()) + 1, np.int64)
        np.maximum.at(of_graph, code, count[launch[known]])
        np.maximum.at(most, launch[known], of_graph[code])
    return np.flatnonzero(is_graph_launch(names) & ((count == 0) | (count < most)))


def may_be_running(timeline: Timeline, calls: HostCalls, replays: IntArray) -> tuple[IntArray, IntArray]:
    """Return begin and end of the time in which each of these replays may have kept a device busy. Nanoseconds.

    It begins when the streams on which some of it was recorded are done with what was launched before, and not before
    the call. It is over when they have begun with what was launched later, or when a call that waits for the device has
    returned on the same thread. Where nothing of it was recorded it may have run on any stream: the first that is done
    begins it, and all that are used again must have begun.
    """
    begin = calls.begin[replays]
    blocking = np.flatnonzero(calls.blocks & ~named(categories(timeline.api.column("name")), _EVENT))
    synced = _next_end(calls, blocking, replays)
    activities = timeline.activities
    launch, start = rows_of(activities.column("launch_row")), rows_of(activities.column("start_ns"))
    end = start + rows_of(activities.column("dur_ns"))
    stream = codes(*(rows_of(activities.column(each)) for each in ("device", "stream")))
    rows = np.flatnonzero(launch >= 0)
    rows = rows[np.lexsort((calls.begin[launch[rows]], stream[rows]))]
    streams = np.split(rows, np.flatnonzero(np.diff(stream[rows])) + 1) if len(rows) else []
    if len(streams) > _MOST_STREAMS:
        return begin, synced
    again, free = np.full(len(replays), -1, np.int64), np.full(len(replays), _NEVER)
    seen = np.isin(replays, launch)
    for one in streams:
        earliest = np.minimum.accumulate(start[one][::-1])[::-1]
        latest = np.concatenate(([0], np.maximum.accumulate(end[one])))
        before, after = (np.searchsorted(calls.begin[launch[one]], begin, side=side) for side in ("left", "right"))
        counts = ~seen | np.isin(replays, launch[one])
        begun = earliest[np.minimum(after, len(one) - 1)]
        again = np.where(counts & (after < len(one)), np.maximum(again, begun), again)
        free = np.where(counts, np.minimum(free, latest[before]), free)
    since = np.maximum(begin, np.where(free == _NEVER, begin, free))
    return since, np.minimum(synced, np.where(again < since, _NEVER, again))


def _next_end(calls: HostCalls, blocking: IntArray, replays: IntArray) -> IntArray:
    """Return when each replay's thread next returns from a blocking call; the end of time where it does not."""
    if not len(blocking):
        return np.full(len(replays), _NEVER)
    order = blocking[np.lexsort((calls.begin[blocking], calls.thread[blocking]))]
    moments, moment = np.unique(np.concatenate((calls.begin[order], calls.begin[replays])), return_inverse=True)
    key = np.concatenate((calls.thread[order], calls.thread[replays])) * len(moments) + moment
    place = np.minimum(np.searchsorted(key[: len(order)], key[len(order) :], side="right"), len(order) - 1)
    found = order[place]
    fits = (calls.thread[found] == calls.thread[replays]) & (calls.begin[found] > calls.begin[replays])
    return np.where(fits, calls.end[found], _NEVER)


def overlaps(begin: IntArray, end: IntArray, since: IntArray, until: IntArray) -> BoolArray:
    """Return whether each [since, until) overlaps one of the intervals [begin, end).

    >>> overlaps(np.array([10, 30]), np.array([20, 40]), np.array([0, 15, 20]), np.array([10, 16, 30])).tolist()
    [False, True, False]
    """
    if not len(begin):
        return np.zeros(len(since), np.bool_)
    order = np.argsort(begin, kind="stable")
    latest = np.maximum.accumulate(end[order])
    last = np.searchsorted(begin[order], until, side="left") - 1
    return (last >= 0) & (latest[np.maximum(last, 0)] > since)
