"""What the simulation found as the table that an execution trace would have given."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tracemine.columns import MISSING, texts
from tracemine.flow.inferred.pools import Bindings
from tracemine.flow.inferred.subtrees import Subtrees
from tracemine.flow.inferred.wiring import HOST
from tracemine.flow.inferred.wiring_record import Wiring, WiringRow
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.ops import itemsize
from tracemine.ops.infer import TensorSpec
from tracemine.timeline.arrow import lists_of, table_of


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
        shape=lists_of([each.shape for each in specs], spec),
        strides=lists_of([each.strides for each in specs], spec),
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
    numbers = {
        "op_row": op_row,
        "position": position,
        "list_index": list_index,
        "tensor_id": storage,
        "storage_id": storage,
        "offset_elements": offset,
        "numel": numel,
        "itemsize_bytes": itemsize_bytes,
    }
    known = {name: np.where(values >= 0, values, MISSING) for name, values in numbers.items()}
    return table_of("tensors", {**known, "is_output": is_output, **others}, len(op_row))
