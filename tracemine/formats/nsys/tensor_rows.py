"""Write rows of the `tensors` table, of storages that NVTX ranges name."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import prod

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.formats.kineto.scan import MISSING
from tracemine.timeline.arrow import lists, table_of, texts

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
    ends = np.cumsum(list(map(len, shapes)))
    flat = np.fromiter(chain.from_iterable(shapes), np.int64)
    columns = {
        "op_row": op,
        "is_output": is_output,
        "position": position,
        "list_index": np.where(index >= 0, index, MISSING),
        "tensor_id": storage,
        "storage_id": storage,
        "offset_elements": np.zeros(count, np.int64),
        "numel": np.array(list(map(prod, shapes))),
        "device": texts(np.array([devices.index(device) for device in on_device]), [f"cuda:{d}" for d in devices]),
        "shape": lists(flat, ends),
    }
    return table_of("tensors", columns, count)
