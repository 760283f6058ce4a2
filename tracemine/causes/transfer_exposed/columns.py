"""Copies during which nothing else was launched: the host was late, and no one waited for the link."""

from __future__ import annotations

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import host_calls
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, IntArray, Rows, Sources, category, number


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    late: BoolArray = np.zeros(activities.count, np.bool_)
    exposed = number(activities, "exposed_ns", null=0) > 0
    copies = np.flatnonzero(exposed & category(activities, "copy_kind").among("HtoD", "DtoH"))
    if len(copies):
        table, (calls, _) = sources.timeline.activities, host_calls(sources.timeline)
        begin, dur, device, launch = (rows_of(table[each]) for each in ("start_ns", "dur_ns", "device", "launch_row"))
        end = begin[copies] + dur[copies]
        launched = np.append(calls.begin, 0)[_following(device, begin, end, copies, launch)]
        blocked = calls.begin[calls.blocks].argsort(kind="stable")
        since, until = (each[calls.blocks][blocked] for each in (calls.begin, calls.end))
        until = np.append(0, np.maximum.accumulate(until))[np.searchsorted(since, end)]
        late[copies] = (launched >= end) & (until < end)
    return {"nothing_waits": Flags(late)}


def _following(device: IntArray, begin: IntArray, end: IntArray, copies: IntArray, launch: IntArray) -> IntArray:
    """Return the row of `api` that launched what begins first on a copy's device at its end or later; −1: none."""
    found = np.full(len(copies), -1)
    for ordinal in sorted_unique(device[copies]).tolist():
        own = np.flatnonzero(device == ordinal)
        own = own[np.argsort(begin[own], kind="stable")]
        mine = device[copies] == ordinal
        at = np.searchsorted(begin[own], end[mine])
        found[mine] = np.append(launch[own], -1)[at]
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("nothing_waits", "flags", "a copy between host and device at whose end nothing else had been launched, while the host did not wait for the device: the host was late, not the copy"),
    ),
    derive=_columns,
)  # fmt: skip
