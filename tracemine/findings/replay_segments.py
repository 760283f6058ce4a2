"""In which order a timeline is run again: as long stretches of a stream at once as its waits allow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.findings.happened import WAIT, Across, HostEvents, Segments
from tracemine.rows.table import IntArray


class Lanes(Struct, frozen=True):
    """Where each activity runs, its call and by how much it follows the one before on its stream; by start."""

    stream: IntArray
    start: IntArray
    launch: IntArray
    follow_delay: IntArray


def segments_of(lanes: Lanes, host: HostEvents, call_end: IntArray, across: Across, last: Sequence[int]) -> Segments:
    """Return the segments of a timeline, and the host's waits between them.

    A segment ends where the host waits for the device, as what it launches then depends on that, before an activity
    that waits for another stream, and behind one that something else waits for. call_end: of each call. last:
    activities whose ends are asked for as well.
    """
    waits = np.flatnonzero(host.waits_for >= 0)
    waited: IntArray = np.cumsum(host.waits_for >= 0, dtype=np.int64)
    rows = np.argsort(lanes.stream, kind="stable")
    place = np.empty(len(rows), np.int64)
    place[rows] = np.arange(len(rows))
    launched = np.append(waited, 0)[np.append(host.launch, -1)[lanes.launch]][rows]
    ready = np.searchsorted(lanes.start, call_end[host.call[waits]], side="left")  # so many activities begin before
    part, stream = _parts(len(rows), ready, across)[rows], lanes.stream[rows]
    follows = np.append(False, stream[1:] == stream[:-1])[: len(rows)]
    # What follows another starts no earlier than that, unless it overlaps it.
    opens = np.flatnonzero(~follows | (lanes.follow_delay[rows] < 0))
    cut = np.append(~follows, True)
    cut[1:-1] |= (part[1:] != part[:-1]) | (launched[1:] != launched[:-1])
    cut[place[across.row]] = True
    for asked in (place[host.waits_for[waits]], place[across.source], place[np.array(last, np.int64)], opens):
        cut[asked + 1] = True
    begins = np.flatnonzero(cut[:-1])
    turns = np.append(np.arange(len(begins)), np.full(len(waits), WAIT))
    order = np.lexsort((turns != WAIT, np.append(rows[begins], ready)))
    of = np.cumsum(cut[:-1]) - 1  # the segment of each place
    return Segments(
        rows=rows,
        place=place,
        launched=launched,
        begins=begins,
        follows=follows[begins],
        across=_by_segment(of[place[across.row]], of[place[across.source]]),
        openers=of[opens],
        turns=tuple(turns[order].tolist()),
        waits=waits,
        waited=waited,
    )


def _by_segment(segment: IntArray, source: IntArray) -> dict[int, list[tuple[int, int]]]:
    """Return the waits for other streams of each segment that has some, as `Segments` has them."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, (waits, waits_for) in enumerate(zip(segment.tolist(), source.tolist(), strict=True)):
        found.setdefault(waits, []).append((waits_for, number))
    return found


def _parts(count: int, ready: IntArray, across: Across) -> IntArray:
    """Return a number for each activity, that grows: those of one wait for nothing of another stream in it."""
    cuts = sorted_unique(np.append(0, ready))
    order = np.argsort(across.row, kind="stable")
    row, source = across.row[order], across.source[order]
    least = cuts[np.searchsorted(cuts, row, side="right") - 1]
    more, latest = [], 0
    for at, waits_for, cut in zip(row.tolist(), source.tolist(), least.tolist(), strict=True):
        if waits_for >= max(cut, latest):
            latest = at
            more.append(at)
    cuts = sorted_unique(np.append(cuts, np.array(more, np.int64)))
    return np.searchsorted(cuts, np.arange(count), side="right")
