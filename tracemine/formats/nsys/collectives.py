"""Collectives as NCCL's own NVTX ranges tell them: which call, of how many bytes, on which communicator.

A range carries a payload of binary data, whose layout the export's table of payload schemas gives. Nsight Systems
exports payloads with `--include-blobs=true` alone; without them the calls are known, and not their sizes.
"""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from tracemine.columns import Array, sorted_unique
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.device_rows import ACTIVITY_KINDS, Columns
from tracemine.formats.nsys.ranges import Ranges
from tracemine.formats.nsys.tables import Tables
from tracemine.timeline import TABLES
from tracemine.timeline.arrow import MISSING, table_of, take

_CALL = re.compile(
    r"nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|Gather|Scatter|Send|Recv)"
)
_JOINED = re.compile(r"ncclComm(?:InitRank\w*|Split|Shrink|Grow)")
_GROUP = (re.compile("ncclGroupStart"), re.compile("ncclGroupEnd"))
_KERNEL: Final = ACTIVITY_KINDS.index("kernel")
_HEADER: Final = struct.Struct("<QQQQ")  # domain, schema, bytes of the payload, and where it stands
_FIELDS: Final = {
    "NCCL communicator ID": "communicator", "Message size [bytes]": "nbytes", "Peer rank": "peer",
    "No. of ranks": "size",
}  # fmt: skip
# Types of a payload's entries, as NVTX numbers them.
_FORMATS: Final = {"<i": (5, 15), "<I": (6, 16), "<q": (7, 9, 17), "<Q": (8, 10, 18, 22)}
_TYPES: Final = {kind: format for format, kinds in _FORMATS.items() for kind in kinds}
_PAIRED: Final = ("ncclSend", "ncclRecv")
_Row: TypeAlias = "dict[str, int | str | None]"
_LARGEST: Final = 1 << 62
_PART_OF_OUTPUT: Final = "ncclReduceScatter"  # its bytes are of what comes out
_EACH_PEER: Final = "ncclAlltoAll"  # its bytes are of what goes to each rank
NO_SIZES: Final = (
    "NCCL's calls are recorded without the sizes of their messages: export with nsys export --include-blobs=true."
)


Payload = dict[str, int]  # what NCCL says of a call, by the names of _FIELDS


class Payloads:
    """Payloads of NVTX ranges, taken apart by the layouts that the export gives."""

    def __init__(self, tables: Tables) -> None:
        rows, names = tables.numbers(schema.NVTX_ENTRIES), tables.texts(schema.NVTX_ENTRIES)["name"]
        columns = (rows[name].tolist() for name in ("domainId", "schemaId", "type", "offset"))
        self._fields: dict[tuple[int, int], dict[str, tuple[str, int]]] = defaultdict(dict)
        for name, domain, layout, kind, offset in zip(names, *columns, strict=True):
            if name in _FIELDS and kind in _TYPES:  # that of the first stands nowhere
                self._fields[domain, layout][_FIELDS[name]] = _TYPES[kind], max(offset, 0)

    def read(self, blob: bytes | str | None) -> Payload:
        """Return what a payload says: nothing where it is none, or another than the export's layouts.

        Exports hold it as bytes, or as the text of hexadecimal digits.
        """
        try:
            data = bytes.fromhex(blob) if isinstance(blob, str) else bytes(blob or b"")
            domain, layout, nbytes, _ = _HEADER.unpack_from(data)
        except (ValueError, struct.error):
            return {}
        part = data[_HEADER.size : _HEADER.size + nbytes]
        said = {
            name: struct.unpack_from(kind, part, offset)[0]
            for name, (kind, offset) in self._fields.get((domain, layout), {}).items()
            if offset + struct.calcsize(kind) <= len(part)
        }
        return {name: value for name, value in said.items() if name == "communicator" or 0 <= value < _LARGEST}


def collectives_table(
    tables: Tables, blobs: Mapping[int, bytes | str], ops: Ranges, gpu: Columns, api: Columns, launch: Array
) -> pa.Table:
    """Return the table `collectives`.

    blobs: payloads, by row of the table of NVTX events. launch: of each activity the row of its call.
    """
    text = ops.columns["text"]
    record = _rows_of(_CALL, ops)
    if not len(record):
        return table_of("collectives", {}, 0)
    payloads = Payloads(tables)

    def read(rows: Array) -> list[Payload]:
        return [payloads.read(blobs.get(row)) for row in ops.columns["row"][rows].tolist()]

    said = read(record)
    if not any("nbytes" in each for each in said):
        tables.warnings.append(NO_SIZES)
    sizes = {each.get("communicator"): each.get("size") for each in read(_rows_of(_JOINED, ops))} | {None: None}
    kernel = _kernels(ops, record, gpu, api, launch)
    together: dict[tuple[bool, int], list[_Row]] = defaultdict(list)
    for at, op, own, each in zip(text[record].tolist(), record.tolist(), kernel.tolist(), said, strict=True):
        name = ops.parsed[at].name
        if name not in _PAIRED or "peer" in each:  # else the kernel says as much
            row = _row(name, op, own, each, sizes.get(each.get("communicator")))
            together[own < 0, own if own >= 0 else op].append(row)
    rows = [row for key in sorted(together) for row in _exchange(together[key])]
    types = TABLES["collectives"].schema
    columns = {name: pa.array([row.get(name) for row in rows], types.field(name).type) for name in types.names}
    return table_of("collectives", columns, len(rows))


def _row(name: str, op: int, kernel: int, said: Payload, size: int | None) -> _Row:
    """Return a row: of a reduce-scatter NCCL says what comes out, of an all-to-all what goes to each rank."""
    nbytes, communicator = said.get("nbytes"), said.get("communicator")
    whole = nbytes
    if name in (_PART_OF_OUTPUT, _EACH_PEER):
        whole = None if nbytes is None or size is None else nbytes * size
    group = None if communicator is None else f"communicator {communicator:x}"
    return {
        "activity_row": kernel if kernel >= 0 else None,
        "op_row": op,
        "name": name,
        "group_name": group,
        "group_description": group,  # the same on all ranks: what they are matched by
        "group_size": size,
        "peer": said.get("peer"),
        "elements_in": whole,
        "elements_out": nbytes if name == _PART_OF_OUTPUT else None,
        "dtype": None if nbytes is None else "Byte",
    }


def _exchange(rows: list[_Row]) -> list[_Row]:
    """Return the sends and receives of one kernel as the all-to-all that they are where they reach every rank."""
    sent, got = (_by_peer(rows, name) for name in _PAIRED)
    size = rows[0]["group_size"] or len(sent)
    whole = set(range(size)) if isinstance(size, int) and 1 < size <= len(rows) else {-1}
    if len(rows) != len(sent) + len(got) or not sent.keys() == got.keys() == whole:
        return rows
    parts, counts = ([each[peer] for peer in sorted(each)] for each in (sent, got))
    return [
        rows[0] | {
            "name": _EACH_PEER, "peer": None, "group_size": size, "elements_in": sum(parts),
            "elements_out": sum(counts), "splits_in": json.dumps(parts), "splits_out": json.dumps(counts),
        }
    ]  # fmt: skip


def _by_peer(rows: list[_Row], name: str) -> dict[int, int]:
    """Return the bytes to or from each peer."""
    return {int(row["peer"]): int(row["elements_in"] or 0) for row in rows if row["name"] == name}  # type: ignore[arg-type]


def _rows_of(pattern: re.Pattern[str], ops: Ranges) -> Array:
    """Return the ranges whose text is such a call."""
    fits = np.array([*(pattern.fullmatch(each.name) is not None for each in ops.parsed), False])
    return np.flatnonzero(fits[ops.columns["text"]])


def _kernels(ops: Ranges, record: Array, gpu: Columns, api: Columns, launch: Array) -> Array:
    """Return the kernel that each call launched, the first of those of its group; -1 where there is none.

    A call launches it itself, or, inside a group, the group's outermost end does.
    """
    kernel_of = np.full(len(record), -1, np.int64)
    begins, ends = (_rows_of(pattern, ops) for pattern in _GROUP)
    kernels = np.flatnonzero((launch >= 0) & (gpu["category"] == _KERNEL))
    threads, called = api["thread"][launch[kernels]], api["start_ns"][launch[kernels]]
    change = np.zeros(len(ops), np.int64)
    change[begins], change[ends] = 1, -1
    may_launch = np.isin(np.arange(len(ops)), np.concatenate((record, ends)))
    for thread in sorted_unique(ops.columns["thread"][record]).tolist():
        own = np.flatnonzero((ops.columns["thread"] == thread) & (may_launch | (change != 0)))
        depth = np.cumsum(change[own])
        depth -= np.minimum(np.minimum.accumulate(depth), 0)  # of groups that began before recording
        mine = np.flatnonzero(threads == thread)
        launching = own[may_launch[own]]
        at = np.searchsorted(ops.columns["start_ns"][launching], called[mine], "right") - 1
        inside = (at >= 0) & (called[mine] <= take(ops.columns["end_ns"][launching], at, MISSING))
        first = np.full(len(ops) + 1, -1, np.int64)
        first[launching[at[inside]][::-1]] = kernels[mine[inside]][::-1]
        outermost = np.append(np.flatnonzero((change[own] < 0) & (depth == 0)), len(own))
        places = np.flatnonzero(np.isin(own, record))
        closing = outermost[np.searchsorted(outermost, places)]
        closer = np.where(depth[places] > 0, np.append(own, len(ops))[closing], own[places])
        kernel_of[np.searchsorted(record, own[places])] = first[closer]
    return kernel_of
