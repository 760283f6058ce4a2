"""What bounds a trace, as facts for its first line: idle time and its main cause, bare communication, and the work."""

from __future__ import annotations

import numpy as np

from tracemine.findings.accounting import Accounts
from tracemine.findings.facts import category, number
from tracemine.findings.record import Bound
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows
from tracemine.timeline import Timeline

LEAST_SHARE = 0.2  # of the time: idle beyond it is what bounds a trace, and so is bare communication where idle is not
_UNCLASSIFIED = "other"
_COLLECTIVE = "collective"

# What each cause of idle time means for who waits for whom. A cause that is missing here explains nothing.
BOUND_BY = {
    "host_bound": "host",
    "launch_latency": "launch latency",
    "synchronisation": "synchronisation",
    "allocator": "the allocator",
    "module_load": "module loading",
    "compilation": "compilation",
    "data_loading": "data loading",
    "graph_launch": "graph launch",
    "graph_replay": "order within graphs",
}


def bound_of(timeline: Timeline, rows: dict[str, Rows], accounts: Accounts) -> Bound | None:
    """What bounds a trace; None where no activity takes any time."""
    whole = accounts.gpu_busy_ns + accounts.gpu_idle_ns
    if not accounts.gpu_busy_ns:
        return None
    activities = rows["activities"]
    cause, cause_ns = _largest(category(rows["gaps"], "cause"), number(rows["gaps"], "dur_ns"))
    kind = category(activities, "op_class")
    collective = _is(kind, _COLLECTIVE)
    bare_ns = accounts.gpu_busy_ns - _busy_ns(timeline, ~collective)
    idle, bare = accounts.gpu_idle_ns / whole, bare_ns / whole
    by = "gpu"
    if idle > LEAST_SHARE:
        by = BOUND_BY.get(cause or "", "unknown")
    elif bare > LEAST_SHARE:
        by = "communication"
    among = ~collective if by == "communication" else np.ones(len(collective), np.bool_)
    work, work_ns = _largest(kind, accounts.exclusive_ns, among)
    worked_ns = int(accounts.exclusive_ns[among].sum())
    return Bound(
        by=by,
        idle_share=round(idle, 4),
        cause=cause if cause in BOUND_BY else None,
        cause_share=round(cause_ns / accounts.gpu_idle_ns, 4) if cause in BOUND_BY and accounts.gpu_idle_ns else None,
        bare_communication_share=round(bare, 4),
        work=None if work == _UNCLASSIFIED else work,
        work_share=round(work_ns / worked_ns, 4) if worked_ns else 0.0,
        unclassified_share=round(int(accounts.exclusive_ns[_is(kind, _UNCLASSIFIED)].sum()) / accounts.gpu_busy_ns, 4),
    )


def _largest(categories: Categories, weights: IntArray, among: BoolArray | None = None) -> tuple[str | None, int]:
    """The category with the most weight, and how much that is; None where it is the null one, or there is none.

    >>> _largest(Categories(np.array([0, 1, 1], np.int32), ("a", "b")), np.array([3, 2, 2]))
    ('b', 4)
    """
    codes = categories.codes if among is None else categories.codes[among]
    weights = weights if among is None else weights[among]
    if not len(codes):
        return None, 0
    total = np.bincount(codes + 1, weights=weights)
    code = int(total.argmax())
    return (categories.values[code - 1] if code else None), int(total[code])


def _is(categories: Categories, value: str) -> BoolArray:
    return np.array([*(each == value for each in categories.values), False], np.bool_)[categories.codes]


def _busy_ns(timeline: Timeline, among: BoolArray) -> int:
    """For how long devices ran some of these activities, a device at a time."""
    start, dur, device = (rows_of(timeline.activities[each])[among] for each in ("start_ns", "dur_ns", "device"))
    busy = 0
    for ordinal in np.unique(device):
        rows = device == ordinal
        end = start[rows] + dur[rows]
        before = np.concatenate((start[rows][:1], np.maximum.accumulate(end)[:-1]))
        busy += int(np.maximum(end - np.maximum(start[rows], before), 0).sum())
    return busy
