"""Write rows of the `tensors` table, of storages that NVTX ranges name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.formats.arrow import booleans, integers, lists, row_numbers, texts
from tracemine.formats.kineto.scan import MISSING
from tracemine.timeline import TABLES

Shape = tuple[int, ...]


class NvtxTensor(Struct):
    """One tensor object as far as it is known: its storage, and its shape where that is known."""

    storage: int
    shape: Shape | None


# One row of `tensors`: operator, whether it is an output, position, place in a list, tensor, device.
TensorRow = tuple[int, bool, int, int, NvtxTensor, int]


def tensors_table(rows: Sequence[TensorRow]) -> pa.Table | None:
    """Return the table; None where there are no rows."""
    if not rows:
        return None
    *numbers, tensors, on_device = zip(*rows, strict=True)
    op, is_output, position, index = map(np.array, numbers)
    storage, shapes = np.array([tensor.storage for tensor in tensors]), [tensor.shape or () for tensor in tensors]
    devices = sorted(set(on_device))
    count = len(rows)
    missing = np.full(count, MISSING)
    ends = np.cumsum(list(map(len, shapes)))
    flat = np.fromiter(chain.from_iterable(shapes), np.int64)
    columns = {
        "op_row": row_numbers(op),
        "is_output": booleans(is_output),
        "position": integers(position, pa.int32()),
        "list_index": integers(np.where(index >= 0, index, MISSING), pa.int32()),
        "tensor_id": integers(storage, pa.int64()),
        "storage_id": integers(storage, pa.int64()),
        "offset_elements": integers(np.zeros(count, np.int64), pa.int64()),
        "numel": integers(np.array(list(map(prod, shapes))), pa.int64()),
        "itemsize_bytes": integers(missing, pa.int64()),
        "device": texts(np.array([devices.index(device) for device in on_device]), [f"cuda:{d}" for d in devices]),
        "dtype": texts(np.full(count, -1), []),
        "shape": lists(flat, ends),
        "strides": lists(np.empty(0, np.int64), np.zeros(count, np.int64), present=np.zeros(count, np.bool_)),
    }
    return pa.Table.from_arrays([columns[f.name] for f in TABLES["tensors"].schema], schema=TABLES["tensors"].schema)
