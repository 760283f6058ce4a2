"""Columns of copies between host and device, and of communication: how long nothing else ran meanwhile."""

from __future__ import annotations

import numpy as np

from tracemine.columns import sorted_unique, uncovered
from tracemine.rows.arrow import rows_of
from tracemine.rows.spans import Spans
from tracemine.rows.spans import exposed as exposed_ns
from tracemine.rows.table import Column, Numbers, Rows, category, number
from tracemine.timeline import Timeline

BETWEEN = ("HtoD", "DtoH")  # host and device
LEAST_PERCENT = 20  # of a device's busy time, from which on copies are worth a word: the rule asks for as much
COLLECTIVE, LEAST_COMMUNICATION = "collective", 3  # likewise of communication


def transfer_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return how long each copy between host and device, and each collective, ran alone; and the share of the device's
    busy time that all of its kind do.

    A collective of one rank is no communication.

    >>> from tracemine.rows.activities import activity_rows
    >>> from tracemine.timeline import Meta
    >>> nothing = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> sorted(transfer_columns(nothing, activity_rows(nothing)))
    ['exposed_ns', 'exposed_percent']
    """
    table = timeline.activities
    start, dur, device = (rows_of(table[name]).astype(np.int64) for name in ("start_ns", "dur_ns", "device"))
    copies = category(activities, "copy_kind").among(*BETWEEN)
    communication = category(activities, "op_class").among(COLLECTIVE) & (number(activities, "group_size", null=0) != 1)
    end = start + dur
    exposed, percent = np.zeros(len(start), np.int64), np.zeros(len(start))
    for kind in (copies, communication):
        for ordinal in sorted_unique(device[kind]):
            own = device == ordinal
            rows, others = np.flatnonzero(own & kind), own & ~kind
            exposed[rows] = exposed_ns(start[rows], end[rows], Spans.of(start[others], end[others]))
            busy_ns = int(uncovered(start[own], end[own]).sum())
            percent[rows] = 100 * int(exposed[rows].sum()) / max(busy_ns, 1)
    known = copies | communication
    return {"exposed_ns": Numbers(exposed, known), "exposed_percent": Numbers(percent, known)}
