"""What the host was at before a launch that came late: not the line that launches, but what held it up."""

from __future__ import annotations

import numpy as np

from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import threads
from tracemine.rows.table import IntArray
from tracemine.rows.user_frames import source_lines
from tracemine.timeline import Timeline

_LONG_NS = 1_000_000  # what is shorter is no work of its own: the launch's operator and what leads to it


def held_up_in(timeline: Timeline, launch: IntArray) -> IntArray:
    """Return for each launch the row of `stacks` of the function that lasted through most of the time before it, -1
    where there is none. What the launch itself was made from lasts as well, and is no answer.
    """
    api = timeline.api
    lasting, stack = (taken(rows_of(api.column(name)), launch) for name in ("before_stack_row", "stack_row"))
    parent = rows_of(timeline.stacks.column("parent_row")).tolist()
    for at in np.flatnonzero(lasting >= 0).tolist():
        row = int(stack[at])
        while row > lasting[at]:  # callers stand before callees
            row = parent[row] if parent[row] < row else -1
        if row == lasting[at]:
            lasting[at] = -1
    return lasting


def worked_in(timeline: Timeline, launch: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return for each late launch the row of `stacks` of a line whose operators, before the one that launches, took
    more than half of [begin, end) on its thread; -1: none did, or that was no millisecond.
    """
    ops, found = timeline.ops, np.full(len(launch), -1, np.int64)
    asked = np.flatnonzero((launch >= 0) & (end - begin >= _LONG_NS))
    if not len(asked) or not timeline.stacks.num_rows:
        return found
    of_calls, of_ops = threads(timeline)
    started = rows_of(ops.column("start_ns")).astype(np.int64)
    ended, stack = started + rows_of(ops.column("dur_ns")), rows_of(ops.column("stack_row"))
    is_op = categories(ops.column("kind")).among("op")
    around = taken(nearest(rows_of(ops.column("parent_row")), is_op), rows_of(ops.column("parent_row")))
    whole = np.flatnonzero(is_op & (around < 0) & (stack >= 0))
    line = source_lines(timeline.stacks).codes
    called = rows_of(timeline.api.column("start_ns")).astype(np.int64)
    for at in asked.tolist():  # few: a device stood idle for a millisecond before each
        rows = whole[(of_ops[whole] == of_calls[launch[at]]) & (started[whole] >= begin[at])]
        rows = rows[(ended[rows] <= called[launch[at]]) & (line[stack[rows]] >= 0)]
        if not len(rows):
            continue
        spent = np.bincount(line[stack[rows]], weights=ended[rows] - started[rows])
        most = int(spent.argmax())
        if 2 * spent[most] > end[at] - begin[at]:
            of_line = rows[line[stack[rows]] == most]
            found[at] = stack[of_line[np.argmax(ended[of_line] - started[of_line])]]
    return found
