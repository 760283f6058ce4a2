"""The collectives of one rank, as arrays: what was recorded with them, and what their kernels' names say."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Struct

from tracemine.columns import numbers, string_ids
from tracemine.ops import classify
from tracemine.ops.collectives import PAIRED, kind_of, message_bytes
from tracemine.rows.arrow import blocks_of
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

_MOST_RANKS = 1 << 17  # of a group; what a file lists beyond is no group
_LONGEST = 8 * _MOST_RANKS  # characters of their list
_LARGEST = 1 << 40  # ranks and rows beyond are damage
_RANKS = msgspec.json.Decoder(tuple[int, ...])
_KEPT = ("sequence", "elements_in", "elements_out")
_CALLS, _NEAREST = ("c10d::", "nccl:"), 4  # operators around the record of a call


class ProcessGroup(Struct, frozen=True):
    """A process group as its collectives name it. Its name is a number that each process counts for itself."""

    ranks: tuple[int, ...] | None  # None: not recorded
    size: int | None
    description: str | None


class SentPart(Struct, frozen=True):
    """One send or receive of a kernel that may hold several."""

    kind: str
    peer: int | None
    elements: int | None


class Collectives(Struct, frozen=True, kw_only=True):
    """All of one rank that have a kernel, in order of start. Integer arrays hold -1 where nothing is known."""

    activity: IntArray  # row of `activities`
    kind: tuple[str, ...]  # of each
    group: IntArray  # place in `groups`
    groups: tuple[ProcessGroup, ...]
    nbytes: IntArray  # the full message: of an all-gather what comes out, else what goes in
    sequence: IntArray
    elements_in: IntArray
    elements_out: IntArray
    blocks: IntArray  # of its kernel; 0: not recorded
    parts: tuple[tuple[SentPart, ...], ...]  # sends and receives; empty of others

    def __len__(self) -> int:
        return len(self.activity)

    def group_of(self, at: int) -> ProcessGroup:
        """Return the group of one."""
        return self.groups[int(self.group[at])]

    def reordered(self, order: IntArray) -> Collectives:
        """Return them in another order."""
        rows = order.tolist()
        arrays = ("activity", "group", "nbytes", "sequence", "elements_in", "elements_out", "blocks")
        return msgspec.structs.replace(
            self,
            kind=tuple(self.kind[row] for row in rows),
            parts=tuple(self.parts[row] for row in rows),
            **{name: getattr(self, name)[order] for name in arrays},
        )


def collectives_of(timeline: Timeline) -> Collectives:
    """Return the collectives of a timeline that have a kernel; those of one rank alone are left out.

    >>> from tracemine.timeline import Meta
    >>> len(collectives_of(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    0
    """
    table, activities = timeline.collectives, timeline.activities
    at, size = (numbers(table.column(name), null=-1) for name in ("activity_row", "group_size"))
    rows = _records(timeline, at, size)
    start = numbers(activities.column("start_ns"))
    order = np.array(sorted(rows, key=lambda row: (int(start[row]), row)), np.int64)
    records, first = [rows[row] for row in order.tolist()], np.array([(*rows[row], -1)[0] for row in order], np.int64)
    name, dtype = ([*_texts(table.column(each)), None] for each in ("name", "dtype"))
    of = {each: np.append(numbers(table.column(each), null=-1), -1) for each in (*_KEPT, "peer", "group_size")}
    kinds, (group, groups) = _kinds(timeline, order, first, name), _groups(timeline, first, of["group_size"])
    into, out = (of[each][first].tolist() for each in _KEPT[1:])
    sent = zip(kinds, into, out, group.tolist(), first.tolist(), strict=True)
    nbytes = [message_bytes(kind, a, b, groups[one].size, dtype[at]) for kind, a, b, one, at in sent]
    parts = [_parts(kind, own, name, of) for kind, own in zip(kinds, records, strict=True)]
    return Collectives(
        activity=order,
        kind=tuple("send_recv" if len(each) > 1 else kind for kind, each in zip(kinds, parts, strict=True)),
        group=group,
        groups=groups,
        nbytes=np.array(nbytes, np.int64),
        blocks=blocks_of(activities)[order],
        parts=tuple(parts),
        **{each: of[each][first] for each in _KEPT},
    )


def _kinds(timeline: Timeline, order: IntArray, first: IntArray, name: list[str | None]) -> list[str]:
    """Return the kind of each: as its record, the operator around it or its kernel is named."""
    called, kernel = _called(timeline, order.tolist()), _texts(timeline.activities.column("name"))
    both = zip(order.tolist(), first.tolist(), strict=True)
    return [kind_of(name[at] if at >= 0 else called[row], kernel[row]) or "unknown" for row, at in both]


def _groups(timeline: Timeline, first: IntArray, size: IntArray) -> tuple[IntArray, tuple[ProcessGroup, ...]]:
    """Return the place of each one's group, and the groups."""
    columns = (timeline.collectives.column(each) for each in ("ranks", "group_description"))
    listed, described = ([*_texts(column), None] for column in columns)
    found = [_group(listed[at], int(size[at]), described[at]) for at in first.tolist()]
    place = {group: number for number, group in enumerate(dict.fromkeys(found))}
    return np.array([place[group] for group in found], np.int64), tuple(place)


def _records(timeline: Timeline, at: IntArray, size: IntArray) -> dict[int, list[int]]:
    """Return the records of each activity that communicates; none where its name alone tells."""
    rows: dict[int, list[int]] = {int(row): [] for row in _by_name(timeline, at[at >= 0])}
    for record in np.flatnonzero((at >= 0) & (size != 1)).tolist():
        rows.setdefault(int(at[record]), []).append(record)
    return rows


def _parts(kind: str, records: list[int], name: list[str | None], of: dict[str, IntArray]) -> tuple[SentPart, ...]:
    found = []
    for at in records if kind in PAIRED else ():
        peer, elements = (int(of[each][at]) for each in ("peer", "elements_in"))
        known = (None if each < 0 else each for each in (peer, elements))
        found.append(SentPart(kind_of(name[at], None) or "unknown", *known))
    return tuple(found)


def _group(listed: str | None, size: int, described: str | None) -> ProcessGroup:
    ranks = ranks_in(listed)
    ranks = None if ranks is not None and size >= 0 and len(ranks) != size else ranks
    return ProcessGroup(ranks, size if size >= 0 else None, described)


def _by_name(timeline: Timeline, recorded: IntArray) -> IntArray:
    """Return activities that communicate by their kernels' names, and of which nothing was recorded."""
    code, names = string_ids(timeline.activities.column("name"))
    communicates = np.array([*(family.op_class == "collective" for family in classify(names)), False])
    size = numbers(timeline.activities.column("group_size"), null=-1)
    rows = np.flatnonzero(communicates[code] & (size != 1))
    return rows[~np.isin(rows, recorded)]


def _called(timeline: Timeline, rows: list[int]) -> dict[int, str | None]:
    """Return the name of the `c10d` operator that called each activity, if one did: older torch records no more."""
    owner, parent = (
        numbers(table.column(name), null=-1)
        for table, name in ((timeline.activities, "op_row"), (timeline.ops, "parent_row"))
    )
    code, names = string_ids(timeline.ops.column("name"))
    caller: dict[int, str | None] = {}
    for row in rows:
        chain = [int(owner[row])]
        while chain[-1] >= 0 and len(chain) < _NEAREST:
            chain.append(int(parent[chain[-1]]))
        called = [names[code[at]] for at in chain if at >= 0]
        caller[row] = next((name.rpartition(":")[2] for name in called if name.startswith(_CALLS)), None)
    return caller


def _texts(column: object) -> list[str | None]:
    code, names = string_ids(column)
    return [None if at < 0 else names[at] for at in code.tolist()]


def ranks_in(text: str | None) -> tuple[int, ...] | None:
    """Return a list of small numbers, None where it is none.

    >>> ranks_in("[0,2]"), ranks_in("[0,...]"), ranks_in("[]"), ranks_in(None)
    ((0, 2), None, None, None)
    """
    if not text or len(text) > _LONGEST:
        return None
    try:
        ranks = _RANKS.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ranks if ranks and len(ranks) <= _MOST_RANKS and min(ranks) >= 0 and max(ranks) < _LARGEST else None
