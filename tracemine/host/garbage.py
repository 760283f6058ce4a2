"""What Python does beside the program, as events of a thread: collections of its garbage, waits for its lock."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracemine.columns import codes, examples
from tracemine.host.paths import shared_path
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline


def collections(
    timeline: Timeline, begin: IntArray, end: IntArray, thread: IntArray, works: BoolArray, stack_row: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return begin, end and thread of each collection on threads that did anything else, and the call path around it.

    begin, end, thread, stack_row: of all that the threads did, operators first. works: what is more than a range.
    """
    place = dict(threads_of(timeline, thread))
    spans = [(since, until, place[of]) for since, until, of in timeline.meta.garbage_ns or () if of in place]
    found = np.array(spans, np.int64).reshape(-1, 3).T
    paths = np.full(len(spans), -1, np.int64)
    parent = rows_of(timeline.stacks["parent_row"])
    if len(parent):
        for at, (since, until, of) in enumerate(spans):
            own = np.flatnonzero((thread == of) & works)
            holds = own[(begin[own] <= since) & (end[own] >= until)]
            before, after = own[end[own] <= since], own[begin[own] >= until]
            near = (
                before[np.argmax(end[before])] if len(before) else -1,
                after[np.argmin(begin[after])] if len(after) else -1,
            )
            near = (holds[np.argmax(begin[holds])],) * 2 if len(holds) else near
            one, other = (taken(stack_row, np.array([each])) for each in near)
            paths[at] = shared_path(parent, one, other)[0]
    return found[0], found[1], found[2], paths


def lock_waits(timeline: Timeline, thread: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Return begin, end and thread of each wait for Python's lock, and the call path that waits. thread: as above."""
    place, table = dict(threads_of(timeline, thread)), timeline.lock_waits
    begin, tid = rows_of(table["start_ns"]).astype(np.int64), rows_of(table["tid"]).tolist()
    of = np.array([place.get(each, -1) for each in tid], np.int64)
    return begin, begin + rows_of(table["dur_ns"]), of, rows_of(table["stack_row"]).astype(np.int64)


def threads_of(timeline: Timeline, thread: IntArray) -> Iterable[tuple[int, int]]:
    """Yield the number and the code of each thread. thread: the code of each operator, then of each call."""
    tid = np.concatenate([rows_of(table["tid"]) for table in (timeline.ops, timeline.api)])
    rows = examples(codes(thread + 1)) if len(thread) else np.zeros(0, np.int64)
    rows = rows[thread[rows] >= 0]
    yield from zip(tid[rows].tolist(), thread[rows].tolist(), strict=True)
