"""In which order a timeline is run again: as long stretches of a stream at once as its waits allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tracemine.columns import sorted_unique
from tracemine.findings.replay import Across, HostEvents, Segment, Segments
from tracemine.rows.table import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Lanes:
    """Where each activity runs, and which call it waits for: as in `Replay`, by start."""

    stream: IntArray
    start: IntArray
    launch: IntArray
    inside: BoolArray


def segments_of(lanes: Lanes, host: HostEvents, call_end: IntArray, across: Across) -> Segments:
    """Return the segments of a timeline, and the host's waits between them.

    A segment ends where the host waits for the device, as what it launches then depends on that, and where an activity
    waits for one of another stream that is not done before. call_end: of each call.
    """
    waits = np.flatnonzero(host.waits_for >= 0)
    waited: IntArray = np.cumsum(host.waits_for >= 0, dtype=np.int64)
    rows = np.argsort(lanes.stream, kind="stable")
    place = np.empty(len(rows), np.int64)
    place[rows] = np.arange(len(rows))
    launched = np.zeros(len(rows), np.int64)
    made = np.flatnonzero(lanes.launch[rows] >= 0)
    launched[made] = waited[host.launch[lanes.launch[rows[made]]]]
    ready = np.searchsorted(lanes.start, call_end[host.call[waits]], side="left")  # so many activities begin before
    part = _parts(len(rows), ready, across)[rows]
    stream = lanes.stream[rows]
    begins = np.flatnonzero(np.append(True, (part[1:] != part[:-1]) | (stream[1:] != stream[:-1]))[: len(rows)])
    segments = _segments(begins, stream, np.where(lanes.inside[rows], -1, launched), _by_segment(begins, place, across))
    turns = [*segments, *place[host.waits_for[waits]].tolist()]
    order = np.lexsort((np.arange(len(turns)) < len(segments), np.append(rows[begins], ready)))
    return Segments(rows, place, launched, tuple(turns[at] for at in order.tolist()), waits, waited)


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


def _by_segment(begins: IntArray, place: IntArray, across: Across) -> dict[int, list[tuple[int, int, int]]]:
    """Return the waits for other streams of each segment that has some, as `Segment` has them."""
    at = place[across.row]
    segment = np.searchsorted(begins, at, side="right") - 1
    found: dict[int, list[tuple[int, int, int]]] = {}
    columns = (segment, at - begins[segment], place[across.source], np.arange(len(at)))
    for number, *wait in zip(*(column.tolist() for column in columns), strict=True):
        found.setdefault(number, []).append((wait[0], wait[1], wait[2]))
    return found


def _segments(
    begins: IntArray, stream: IntArray, launched: IntArray, across: dict[int, list[tuple[int, int, int]]]
) -> list[Segment]:
    """Return the segments. stream, launched: of each place; of what waits for no call `launched` is −1."""
    if not len(begins):
        return []
    ends = np.append(begins, len(stream))[1:]
    follows = (begins > 0) & (stream[begins - 1] == stream[begins])
    most = np.maximum.reduceat(launched, begins)
    same = np.minimum.reduceat(
        np.where(launched < 0, most[np.searchsorted(begins, np.arange(len(stream)), "right") - 1], launched), begins
    )
    columns = (begins, ends, follows, np.where(same == most, np.maximum(most, 0), -1))
    return [
        Segment(begin, end, behind, None if waits < 0 else waits, tuple(across.get(number, ())))
        for number, (begin, end, behind, waits) in enumerate(zip(*(column.tolist() for column in columns), strict=True))
    ]
