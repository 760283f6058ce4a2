"""The ranks of a job that one file holds: each process with each of its devices that communicates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import numbers
from tracemine.ranks.collectives import collectives_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import TABLES, Timeline

# Columns that number the rows of another table, by table; of others that a rank needs none is changed.
_NUMBERED = {
    "ops": {"parent_row": "ops"},
    "api": {"op_row": "ops"},
    "activities": {"launch_row": "api", "op_row": "ops", "step_row": "steps"},
    "collectives": {"activity_row": "activities", "op_row": "ops"},
}


def ranks_apart(timeline: Timeline) -> list[Timeline]:
    """Return the timeline of each rank of a file, in order of process and device; the timeline itself of one rank.

    >>> from tracemine.timeline import Meta
    >>> len(ranks_apart(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    1
    """
    device = numbers(timeline.activities.column("device"), null=-1)
    communicates = collectives_of(timeline).activity
    if len(np.unique(device[communicates])) < 2:
        return [timeline]
    process = _processes(timeline, device)
    pairs = sorted(set(zip(process[communicates].tolist(), device[communicates].tolist(), strict=True)))
    if len(pairs) < 2:
        return [timeline]
    order = {pair: rank for rank, pair in enumerate(sorted(pairs, key=lambda pair: pair[::-1]))}
    return [_of(timeline, (process == pid) & (device == at), pid, order[pid, at]) for pid, at in order]


def _processes(timeline: Timeline, device: IntArray) -> IntArray:
    """Return the process of each activity: of its launch, else of most launches on its device; -1: not known."""
    pid = numbers(timeline.api.column("pid"), null=-1)
    launch = numbers(timeline.activities.column("launch_row"), null=-1)
    process = np.append(pid, -1)[launch]
    for ordinal in np.unique(device).tolist():
        known = process[(device == ordinal) & (process >= 0)]
        if len(known):
            usual = int(np.bincount(np.unique(known, return_inverse=True)[1]).argmax())
            process[(device == ordinal) & (process < 0)] = np.unique(known)[usual]
    return process


def _of(timeline: Timeline, activities: BoolArray, pid: int, rank: int) -> Timeline:
    """Return what one rank did: its activities, and the host of its process."""
    kept: dict[str, BoolArray] = {"activities": activities}
    for name in ("ops", "api", "steps"):
        kept[name] = numbers(getattr(timeline, name).column("pid"), null=-1) == pid
    at = numbers(timeline.collectives.column("activity_row"), null=-1)
    kept["collectives"] = (at >= 0) & np.append(activities, False)[at]
    tables: dict[str, pa.Table] = {name: TABLES[name].schema.empty_table() for name in ("tensors", "light", "memory")}
    for name, rows in kept.items():
        table = getattr(timeline, name).filter(pa.array(rows))
        for column, target in _NUMBERED.get(name, {}).items():
            place = table.schema.get_field_index(column)
            values = _renumbered(numbers(table.column(column), null=-1), kept[target])
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(values, field.type, mask=values < 0))
        tables[name] = table
    return replace(timeline, meta=replace(timeline.meta, rank=rank), **tables)


def _renumbered(rows: IntArray, kept: BoolArray) -> IntArray:
    """Return row numbers as they are once other rows are gone; -1 of what is gone.

    >>> _renumbered(np.array([2, 0, -1]), np.array([False, True, True])).tolist()
    [1, -1, -1]
    """
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)
    found: IntArray = number[rows]
    return found
