"""How long each tensor lived, where allocations were recorded."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import numpy as np

from tracemine.columns import MISSING, numbers, rows_that, string_ids
from tracemine.flow.order import Order
from tracemine.flow.record import IntArray
from tracemine.ops import itemsize
from tracemine.ops.infer import TensorSpec
from tracemine.timeline import Timeline

_ROUNDED_TO = 512  # bytes, by the CUDA caching allocator (kMinBlockSize)
_NOT_SPLIT = 1 << 20  # it leaves as much at the end of a large block (kSmallSize)
_FOREVER = np.iinfo(np.int64).max
_HOST = "cpu"
_CLEARS = "Optimizer.zero_grad#"


class Lives:
    """When what operators made is freed. Without recorded allocations nothing ever is."""

    def __init__(
        self, start: list[int], blocks: dict[int, list[tuple[int, int]]], clears: list[tuple[int, int]]
    ) -> None:
        self._start = start  # of each root, by position
        self._blocks = blocks  # by root, in order of allocation: bytes, and when they were freed
        self._clears = clears  # from when to when optimizers let go of gradients
        self._freed: dict[int, int] = {}  # by storage

    @staticmethod
    def of(timeline: Timeline, order: Order, roots: IntArray) -> Lives | None:
        """The lives of tensors on GPUs by the operators that are run on their own; None where nothing recorded any."""
        memory = timeline.memory
        device, devices = string_ids(memory.column("device"))
        on_gpu = np.array([*(name != _HOST for name in devices), False], np.bool_)[device]
        address = numbers(memory.column("address"))
        rows = np.flatnonzero(on_gpu & (address != MISSING))
        if not len(rows):
            return None
        root = np.full(len(order.row), -1)
        root[roots] = roots
        root = np.append(order.inherited(root), -1)
        owner = root[np.append(order.position, -1)[numbers(memory.column("op_row"), -1)[rows]]]
        size, at = numbers(memory.column("bytes"))[rows], numbers(memory.column("start_ns"))[rows]
        ends = np.append(order.end, 0)[owner]
        freed = _freed(device[rows], address[rows], size, at)
        blocks = defaultdict(list)
        kept = np.flatnonzero((size > 0) & (owner >= 0) & (freed > ends))
        for one in kept.tolist():
            blocks[int(owner[one])].append((int(size[one]), int(freed[one])))
        start, dur = (numbers(timeline.ops.column(name)) for name in ("start_ns", "dur_ns"))
        clears = rows_that(timeline.ops.column("name"), lambda text: text.startswith(_CLEARS))
        spans = list(zip(start[clears].tolist(), (start + dur)[clears].tolist(), strict=True))
        return Lives(start[order.row].tolist(), dict(blocks), spans)

    def again(self) -> Lives:
        """Return the same for another simulation, which numbers storages anew."""
        return Lives(self._start, self._blocks, self._clears)

    def made(self, root: int, storages: list[int], specs: list[TensorSpec]) -> None:
        """An operator gives these in new storages: each is a block that it left, where the size tells which."""
        blocks = self._blocks.get(root, ())
        wanted = [_bytes(spec) for spec in specs]
        for number, (storage, size) in enumerate(zip(storages, wanted, strict=True)):
            fits = [freed_ns for held, freed_ns in blocks if _holds(held, size)]
            if size and len(fits) == wanted.count(size):
                self._freed[storage] = fits[wanted[:number].count(size)]

    def ended(self, storage: int, root: int) -> bool:
        """Return whether a storage was freed before an operator began."""
        freed = self._freed.get(storage)
        return freed is not None and freed <= self._start[root]

    def cleared(self, storage: int) -> int | None:
        """Return when a gradient was freed, if by an optimizer that goes through its parameters for that."""
        freed = self._freed.get(storage, _FOREVER)
        at = bisect_right(self._clears, (freed, _FOREVER)) - 1
        return freed if at >= 0 and freed < self._clears[at][1] else None


def _freed(device: IntArray, address: IntArray, size: IntArray, at: IntArray) -> IntArray:
    """Return for each allocation when the next event at its address is, which is its free."""
    found = np.full(len(at), _FOREVER)
    order = np.lexsort((np.arange(len(at)), at, address, device))
    same = size[order][:-1] > 0
    for place in (device, address):
        same &= place[order][1:] == place[order][:-1]
    found[order[:-1][same]] = at[order[1:][same]]
    return found


def _bytes(spec: TensorSpec) -> int:
    """Of the storage that a tensor of this kind is given; 0: not known."""
    item = itemsize(spec.dtype) if spec.dtype is not None else None
    if not item or not spec.elements:
        return 0
    if spec.strides is None:
        return spec.elements * item
    return (1 + sum((size - 1) * step for size, step in zip(spec.shape, spec.strides, strict=True))) * item


def _holds(block: int, size: int) -> bool:
    least = -(-size // _ROUNDED_TO) * _ROUNDED_TO
    return least <= block <= (least if size < _NOT_SPLIT else least + _NOT_SPLIT)
