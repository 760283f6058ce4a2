"""Sizes of the tensors, and lists of tensors, that calls take; where an execution trace names them, their memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tracemine.calls import Call, calls_of
from tracemine.calls.call import Extents, sizes
from tracemine.columns import booleans, numbers, string_ids
from tracemine.ops import Overload, dtype, lookup
from tracemine.ops.dtypes import itemsize
from tracemine.patterns import deferred
from tracemine.rows.table import IntArray
from tracemine.timeline import Timeline

_ELEMENT = deferred(r"Functor<(?:[^<>,]*, )?(c10::BFloat16|c10::Half|float|double)\b")
LONGEST = 1 << 44  # elements: more is damage


class ListedCall(Struct, frozen=True):
    """A call: its operator, and the sizes in elements of each tensor, or list of tensors, that it takes."""

    row: int
    name: str  # without aten::
    sizes: tuple[tuple[int, ...], ...] | None  # None: not recorded
    item_bytes: int | None

    @property
    def writes(self) -> bool:
        """Return whether its first tensors are written in place."""
        return self.name.endswith("_")

    @property
    def overload(self) -> Overload | None:
        """Return the first overload of its operator; None where the operator is not known."""
        operator = lookup(f"aten::{self.name}")
        return None if operator is None else next(iter(operator.overloads), None)

    @property
    def moved(self) -> int:
        """Return how often it reads or writes a tensor, of each member of its lists."""
        overload = self.overload
        taken = 1 if overload is None else sum(each.type.startswith("Tensor") for each in overload.arguments)
        if self.sizes is not None:
            taken = sum(bool(each) and max(each) > 1 for each in self.sizes)
        overwrites = overload is not None and bool(overload.overwrites)
        return max(taken, 1) + 1 - overwrites  # what is overwritten is among the taken


class Tensor(NamedTuple):
    """A tensor that a call takes or gives."""

    is_output: bool
    position: int  # which argument it is
    memory: tuple[int, int]  # storage and offset
    numel: int
    item_bytes: int

    @property
    def nbytes(self) -> int:
        return self.numel * self.item_bytes


class Lists:
    """The calls of a timeline and their tensors; both are looked at when the first is asked for."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._calls = calls_of(timeline)

    def calls(self, op_row: IntArray, kernels: Sequence[str]) -> list[ListedCall]:
        """Return the calls of activities, each once, in their order. `kernels`: names of the activities' kernels."""
        found = dict.fromkeys(op_row.tolist())
        name_of = dict(zip(op_row.tolist(), kernels, strict=True))
        return [self._call(row, name_of[row]) for row in found if row >= 0]

    def _call(self, row: int, kernel: str) -> ListedCall:
        call = self.recorded(row)
        known = map(call.dtype, range(len(call.dtypes or ())))
        item = next((itemsize(each) for each in known if each is not None), None)
        if item is None and (element := _ELEMENT.search(kernel)):
            item = itemsize(dtype(element[1]) or "")
        return ListedCall(row, call.name.removeprefix("aten::"), _sizes(call), item)

    def recorded(self, row: int) -> Call:
        """Return the call of a row of `ops`."""
        return self._calls[int(self._calls.number[row])]

    def name(self, row: int) -> str:
        """Return the operator that was called; "" where none is named."""
        return self.recorded(row).name

    def shapes(self, row: int) -> tuple[Extents, ...]:
        """Return the recorded shapes of a call's inputs."""
        return self.recorded(row).shapes or ()

    def types(self, row: int) -> tuple[str, ...]:
        """Return the recorded types of a call's inputs."""
        return self.recorded(row).dtypes or ()

    @cached_property
    def _tensors(self) -> tuple[IntArray, dict[str, IntArray]]:
        """Rows of `tensors` on a device, and where each operator's begin."""
        table = self._timeline.tensors
        columns = {name: numbers(table.column(name), -1) for name in _NUMBERS}
        columns["is_output"] = booleans(table.column("is_output")).astype(np.int64)
        device, texts = string_ids(table.column("device"))
        on_device = np.array([*(text is not None and not text.startswith("cpu") for text in texts), False], np.bool_)
        kept = on_device[device] & (columns["numel"] >= 0) & (columns["itemsize_bytes"] > 0)
        rows = np.flatnonzero(kept)
        rows = rows[np.argsort(columns["op_row"][rows], kind="stable")]
        return columns["op_row"][rows], {name: column[rows] for name, column in columns.items()}

    def tensors(self, row: int) -> Iterator[Tensor]:
        """Yield one operator's tensors that were recorded."""
        of, columns = self._tensors
        begin, end = np.searchsorted(of, [row, row + 1]).tolist()
        own = [columns[name][begin:end].tolist() for name in ("is_output", "position", *_MEMORY, *_SIZES)]
        for is_output, position, storage, offset, numel, item in zip(*own, strict=True):
            yield Tensor(bool(is_output), position, (storage, offset), numel, item)


_MEMORY, _SIZES = ("storage_id", "offset_elements"), ("numel", "itemsize_bytes")
_NUMBERS = ("op_row", "position", *_MEMORY, *_SIZES)


def _sizes(call: Call) -> tuple[tuple[int, ...], ...] | None:
    """Return elements of each tensor, or of each member of a list; None where a list's members were not recorded."""
    found = []
    for given, kind in zip(call.shapes or (), call.dtypes or (), strict=False):
        if kind == "TensorList":
            counts = [_elements(each) for each in given]
            if not counts:
                return None
        elif dtype(kind) is not None:
            counts = [_elements(given)]
        else:
            continue
        if any(count is None for count in counts):
            return None
        found.append(tuple(count for count in counts if count is not None))
    return tuple(found) or None


def _elements(given: Extents | int) -> int | None:
    """Return elements of a tensor of this shape; None where that is damaged.

    >>> _elements((2, 3)), _elements(()), _elements((-1,)), _elements(5)
    (6, 1, None, None)
    """
    shape = sizes(given)
    if shape is None:
        return None
    count = prod(shape)
    return count if count < LONGEST else None
