"""What the simulation found as the table that an execution trace would have given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tracemine.flow.inferred.pools import Bindings
from tracemine.flow.inferred.subtrees import Subtrees
from tracemine.flow.inferred.wiring import HOST
from tracemine.flow.inferred.wiring_record import Wiring, WiringRow
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.ops import itemsize
from tracemine.ops.infer import TensorSpec
from tracemine.timeline import TABLES


def tensors_table(bound: Bindings, order: Order, subtrees: Subtrees) -> tuple[pa.Table, BoolArray, IntArray]:
    """Return the table `tensors`, whether each row is sure, and its place in `bound.storages`."""
    wirings = list({id(wiring): wiring for wiring in bound.wiring}.values())
    number = {id(wiring): at for at, wiring in enumerate(wirings)}
    specs: dict[TensorSpec, int] = {}
    flat: list[tuple[int, ...]] = []
    begins = [0]
    for wiring in wirings:
        flat.extend(_entry(row, wiring, specs) for row in wiring.rows)
        begins.append(len(flat))
    entries = np.array(flat, np.int64).reshape(-1, 8)
    begin = np.array(begins, np.int64)
    which = np.array([number[id(wiring)] for wiring in bound.wiring], np.int64)
    counts = (begin[1:] - begin[:-1])[which] if len(which) else which
    width = np.array([len(w.call.slots) + w.new for w in bound.wiring], np.int64)
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(width)))[:-1]
    instance = np.repeat(np.arange(len(which)), counts)
    row = np.arange(len(instance)) - np.repeat(np.cumsum(counts) - counts, counts) + begin[:-1][which[instance]]
    op, is_output, position, list_index, local, offset, spec, flags = entries[row].T
    root = np.array(bound.root, np.int64)[instance]
    storage_at = first[instance] + local
    storage = np.array(bound.storages, np.int64)[storage_at]
    sure = np.array(bound.sure, np.bool_)[storage_at] & ((flags & 1) > 0)
    base = np.array(bound.offsets, np.int64)[storage_at]
    op_row = order.row[subtrees.at[subtrees.place[root] + op]]
    in_order = np.lexsort((list_index, position, is_output, op_row))
    columns = (op_row, is_output, position, list_index, storage, base + offset, flags & 2, spec)
    return _table(list(specs), *(column[in_order] for column in columns)), sure[in_order], storage_at[in_order]


def _entry(row: WiringRow, wiring: Wiring, specs: dict[TensorSpec, int]) -> tuple[int, ...]:
    spec = specs.setdefault(row.spec, len(specs))
    flags = int(row.sure) + 2 * (wiring.place.get(row.storage) == HOST)
    return row.op, int(row.is_output), row.position, row.list_index, row.storage, row.offset, spec, flags


def _table(
    specs: list[TensorSpec],
    op_row: IntArray,
    is_output: IntArray,
    position: IntArray,
    list_index: IntArray,
    storage: IntArray,
    offset: IntArray,
    host: IntArray,
    spec: IntArray,
) -> pa.Table:
    dtypes = sorted({each.dtype for each in specs if each.dtype is not None})
    number: dict[str | None, int] = {None: -1} | {dtype: at for at, dtype in enumerate(dtypes)}
    of_spec = [(number[s.dtype], 1 if s.dtype is None else itemsize(s.dtype) or 1, s.elements) for s in specs]
    dtype, itemsize_bytes, numel = np.array(of_spec, np.int64).reshape(-1, 3)[spec].T
    return table_of_tensors(
        op_row=op_row,
        is_output=is_output > 0,
        position=position,
        list_index=list_index,
        storage=storage,
        offset=offset,
        numel=numel,
        itemsize_bytes=itemsize_bytes,
        device=texts((host > 0).astype(np.int64), ["cuda", "cpu"]),
        dtype=texts(dtype, dtypes),
        shape=lists_of(spec, [each.shape for each in specs]),
        strides=lists_of(spec, [each.strides for each in specs]),
    )


def table_of_tensors(
    *,
    op_row: IntArray,
    is_output: BoolArray,
    position: IntArray,
    list_index: IntArray,
    storage: IntArray,
    offset: IntArray,
    numel: IntArray,
    itemsize_bytes: IntArray,
    **others: pa.Array,
) -> pa.Table:
    """Return a table `tensors` whose tensors are numbered as their storages are; others: its columns that are none of
    numbers."""
    columns = {
        "op_row": integers(op_row, pa.int64()),
        "is_output": pa.Array.from_buffers(pa.bool_(), len(is_output), [None, bits(is_output)]),
        "position": integers(position, pa.int32()),
        "list_index": integers(list_index, pa.int32()),
        **dict.fromkeys(("tensor_id", "storage_id"), integers(storage, pa.int64())),
        "offset_elements": integers(offset, pa.int64()),
        "numel": integers(numel, pa.int64()),
        "itemsize_bytes": integers(itemsize_bytes, pa.int64()),
        **others,
    }
    schema = TABLES["tensors"].schema
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


# By their buffers, as pa.array would import pandas for arrays of NumPy.


def integers(values: IntArray, kind: pa.DataType) -> pa.Array:
    """Return a column of integers that are not negative; null where they are."""
    own = np.ascontiguousarray(np.maximum(values, 0).astype(np.int32 if kind == pa.int32() else np.int64))
    return pa.Array.from_buffers(kind, len(own), [_present(values >= 0), pa.py_buffer(own)])


def texts(codes: IntArray, distinct: Sequence[str]) -> pa.Array:
    """Return a column of texts by their place among the distinct ones; null where that is negative."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in distinct]
    ends = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    strings = pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
    return pa.DictionaryArray.from_arrays(integers(codes, pa.int32()), strings)


def lists_of(codes: IntArray, distinct: Sequence[tuple[int, ...] | None]) -> pa.Array:
    flat = np.array([size for one in distinct for size in one or ()], np.int64)
    ends = np.cumsum([0, *(len(one or ()) for one in distinct)])
    there = np.array([*(one is not None for one in distinct), True])
    begin, length = ends[:-1][codes], np.diff(ends)[codes]
    offsets = np.append(0, np.cumsum(length))
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - begin, length)
    buffers = [_present(there[codes]), pa.py_buffer(np.ascontiguousarray(offsets.astype(np.int32)))]
    values = integers(flat[at], pa.int64())
    return pa.Array.from_buffers(pa.list_(pa.int64()), len(codes), buffers, children=[values])


def _present(there: BoolArray) -> pa.Buffer | None:
    return None if there.all() else bits(there)


def bits(flags: BoolArray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
