"""Events that stand in a file twice: a trace merged with a copy of itself, or appended to itself, holds each again."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tracemine.columns import MISSING, Array, codes
from tracemine.units import count_text, time_text

Columns = dict[str, Array]

REPEATED = "the same event once more"
_ODD = np.int64(-7046029254386353131)  # 2⁶⁴ by the golden ratio: neighbours come far apart
_OVERLAP_TO_SAY = 0.25  # of a stream's work: where kernels begin before the last one ends, on Blackwell, it is 8 %


def repeated(start: Array, *others: Array) -> Array:
    """Return which rows, in order of `start`, equal an earlier one in all columns.

    >>> repeated(np.array([1, 5, 5, 5]), np.array([7, 7, 8, 7])).tolist()
    [False, False, False, True]
    """
    found = np.zeros(len(start), np.bool_)
    rows = _perhaps_repeated(start, others)
    code = codes(start[rows])
    for column in others:  # each leaves fewer to compare
        code = codes(code, _comparable(column[rows]))
        again = (np.bincount(code) > 1)[code] if len(code) else np.empty(0, np.bool_)
        rows, code = rows[again], code[again]
    found[rows] = True
    found[rows[np.unique(code, return_index=True)[1]]] = False
    return found


def _perhaps_repeated(start: Array, others: tuple[Array, ...]) -> Array:
    """Return the rows of which sums over all columns are equal: all that are repeated, and none as a rule."""
    tied = start[1:] == start[:-1]
    if not tied.any():
        return np.empty(0, np.int64)
    rows = np.flatnonzero(np.append(tied, False) | np.append(False, tied))
    total = start[rows].astype(np.int64)
    for column in others:
        total = total * _ODD + _comparable(column[rows])  # wraps around
    ordered = np.sort(total)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    return rows[np.isin(total, again)] if len(again) else np.empty(0, np.int64)


def without_repetitions(columns: Columns, dropped: Counter[str], more: Columns | None = None) -> Columns:
    """Return columns in order of `start_ns` without rows that repeat an earlier one in all of them, and count those.

    more: columns in which rows that repeat others may differ.
    """
    again = repeated(columns["start_ns"], *(column for name, column in columns.items() if name != "start_ns"))
    columns = columns | (more or {})
    if not again.any():
        return columns
    dropped[REPEATED] += int(again.sum())
    return {name: column[~again] for name, column in columns.items()}


def repetition_notes(gpu: Columns, dropped: Counter[str]) -> list[str]:
    """Say that events stood in the file twice, and which stream overlaps itself for much of its work."""
    notes = []
    if again := dropped[REPEATED]:
        stand = "stands" if again == 1 else "stand"
        notes.append(
            f"{count_text(again, 'event')} {stand} in the file once more, the same in all: each was read once."
        )
    overlaps = _overlaps(gpu)
    if overlaps:
        (device, stream), beside_ns, work_ns = max(overlaps, key=lambda overlap: overlap[1])
        others = f" (so do {count_text(len(overlaps) - 1, 'other stream')})" if len(overlaps) > 1 else ""
        notes.append(
            f"Stream {stream} of device {device} overlaps itself for {time_text(beside_ns)} of {time_text(work_ns)}"
            f"{others}: a stream runs one thing at a time, so several recordings may stand in this file, and GPU time "
            "is the sum of all."
        )
    return notes


def _overlaps(gpu: Columns) -> list[tuple[tuple[int, int], int, int]]:
    """Return of each stream that overlaps itself its device and number, for how long, and how long it works."""
    of_process = [gpu[name] for name in ("process", "context") if name in gpu]
    code = codes(gpu["device"], gpu["stream"], *of_process)
    rows = np.argsort(code, kind="stable")
    start, dur, stream = gpu["start_ns"][rows], gpu["dur_ns"][rows], code[rows]
    end = start + dur
    beside = np.minimum(end[1:], end[:-1]) - start[1:]
    overlapping = np.flatnonzero((stream[1:] == stream[:-1]) & (gpu["stream"][rows][1:] != MISSING) & (beside > 0))
    if not len(overlapping):
        return []
    beside_ns, work_ns = np.zeros(int(code.max()) + 1, np.int64), np.zeros(int(code.max()) + 1, np.int64)
    np.add.at(beside_ns, stream[1:][overlapping], beside[overlapping])
    np.add.at(work_ns, stream, dur)
    much = np.flatnonzero(beside_ns > _OVERLAP_TO_SAY * work_ns)
    first = rows[np.searchsorted(stream, much)]
    places = zip(gpu["device"][first].tolist(), gpu["stream"][first].tolist(), strict=True)
    return list(zip(places, beside_ns[much].tolist(), work_ns[much].tolist(), strict=True))


def _comparable(column: Array) -> Array:
    """Return integers that are equal where the values are, NaN being equal to NaN."""
    return column.astype(np.float64).view(np.int64) if column.dtype.kind == "f" else column.astype(np.int64, copy=False)
