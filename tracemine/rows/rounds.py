"""Loops that wait for the device in each round: which launches came late because a queue was emptied before them.

A wait (`.item()`, `nonzero`, a copy to the host) empties the queue, and every launch until the host is ahead again
comes late. Where the device has little to do the host is hardly blocked, so that the wait itself looks cheap; what it
costs is that the host can never run ahead. One wait in a long step is another matter: behind it launches come late for
as long as the host takes to dispatch them, whether it waited or not. So a wait counts where rounds are short and many.
"""

from __future__ import annotations

import numpy as np

from tracemine.rows.arrow import categories, numbers
from tracemine.rows.codes import first_rows
from tracemine.rows.host import HostCalls, last_begun
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

FEWEST_WAITS = 10  # of a thread, in a step
LAUNCHES_A_ROUND = 32  # from one wait to the next, at most
AHEAD_NS = 50_000  # a kernel that stood in the queue for so long: the host is ahead again


def wait_of_round(
    timeline: Timeline, calls: HostCalls, allocates: BoolArray, launch_row: IntArray, launch: IntArray
) -> IntArray:
    """Return, for each launch, the wait (row of `api`) that its thread's queue has not recovered from; −1: none.

    `allocates`: calls that allocate or free, and wait for that alone. `launch_row`: of each activity its launch.
    """
    none = np.full(len(launch), -1, np.int64)
    waits = calls.blocks & ~allocates[: len(calls.blocks)] & ~calls.launches & (calls.thread >= 0)
    if not waits.any() or not len(launch):
        return none
    step = _steps(timeline, calls.begin)
    thread, begin = calls.thread[launch], calls.begin[launch]
    wait = last_begun(calls, waits, thread, begin)
    found = (launch >= 0) & (wait >= 0) & (calls.end[wait] <= begin) & (step[wait] == step[launch])
    found &= _many(step, calls.thread, waits)[wait]
    found &= _launches_to_next(calls, waits)[wait] <= LAUNCHES_A_ROUND
    ahead = _ahead(timeline, calls, launch_row)
    recovered = last_begun(calls, ahead, thread, begin)
    found &= (recovered < 0) | (calls.begin[recovered] <= calls.begin[wait])
    return np.where(found, wait, none)


def wait_of_fetch(
    timeline: Timeline, calls: HostCalls, before: IntArray, launch: IntArray, following: IntArray
) -> IntArray:
    """Return, for each copy to the host that another thread launches, the wait (row of `api`) whose value it fetches:
    that of the thread that launched before, and is in it all the while; −1: none. JAX fetches values so.
    """
    copies = categories(timeline.activities.column("copy_kind")).among("DtoH")[following]
    found = np.full(len(launch), -1, np.int64)
    rows = np.flatnonzero(copies & (before >= 0) & (launch >= 0))
    before, launch = before[rows], launch[rows]
    wait = last_begun(calls, calls.blocks, calls.thread[before], calls.begin[launch])
    around = (wait >= 0) & (calls.begin[wait] >= calls.begin[before]) & (calls.end[wait] >= calls.end[launch])
    found[rows] = np.where(around & (calls.thread[wait] != calls.thread[launch]), wait, -1)
    return found


def _steps(timeline: Timeline, moment: IntArray) -> IntArray:
    """Return the step that had begun last at each moment; 0 before the first, and where none is known."""
    begun = np.sort(numbers(timeline.steps.column("start_ns")).values.astype(np.int64))
    return np.searchsorted(begun, moment, side="right")


def _many(step: IntArray, thread: IntArray, waits: BoolArray) -> BoolArray:
    """Return which waits are of a thread that waits often in that step."""
    rows = np.flatnonzero(waits)
    _, code, count = np.unique(np.stack((step[rows], thread[rows])), axis=1, return_inverse=True, return_counts=True)
    many = np.zeros(len(waits), np.bool_)
    many[rows] = count[code.reshape(-1)] >= FEWEST_WAITS
    return many


def _launches_to_next(calls: HostCalls, waits: BoolArray) -> IntArray:
    """Return, for each wait, how many launches its thread makes until it waits again; very many where it does not."""
    rows = np.flatnonzero(waits | calls.launches)
    order = rows[np.lexsort((calls.begin[rows], calls.thread[rows]))]
    made = np.cumsum(calls.launches[order])
    at = np.flatnonzero(waits[order])
    following = np.append(at[1:], -1)
    same = (following >= 0) & (calls.thread[order[at]] == calls.thread[order[following]])
    between = np.full(len(waits), np.iinfo(np.int64).max)
    between[order[at]] = np.where(same, made[following] - made[at], np.iinfo(np.int64).max)
    return between


def _ahead(timeline: Timeline, calls: HostCalls, launch_row: IntArray) -> BoolArray:
    """Return which calls launched an activity that then stood in the queue for long."""
    start = numbers(timeline.activities.column("start_ns")).values.astype(np.int64)
    first = first_rows(launch_row, len(calls.begin))[:-1]
    launched = np.flatnonzero(first >= 0)
    ahead = np.zeros(len(calls.begin), np.bool_)
    ahead[launched] = start[first[launched]] - calls.end[launched] >= AHEAD_NS
    return ahead
