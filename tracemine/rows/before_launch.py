"""What Python was at before a launch that came late: not the line that launches, but what held it up."""

from __future__ import annotations

import numpy as np

from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline


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
