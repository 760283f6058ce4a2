"""The kernels of one rank, to be compared with its peers': how often they ran, and for how long."""

from __future__ import annotations

from typing import TypeAlias
from zlib import crc32

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers, string_ids
from tracemine.rows.arrow import blocks_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

Kernel: TypeAlias = tuple[str, int, int]  # its name, its blocks, and a number for its shapes
_MOST = 100  # distinct kernels that are kept, those that take most


class KernelTimes(Struct, frozen=True):
    """Kernels by name, blocks and shapes, those that take most: how often they ran in the window, and for how long.

    Next to a collective a kernel is slower, and runs next to it for as long as that waits for others.
    """

    name: tuple[str, ...]
    blocks: IntArray
    shapes: IntArray  # a number for the operator's recorded shapes, the same on all ranks
    count: IntArray
    time_ns: IntArray
    alone_count: IntArray  # while no collective ran
    alone_ns: IntArray

    def by_kernel(self) -> dict[Kernel, KernelSums]:
        """Return them one by one."""
        alone = self.alone_ns / np.maximum(self.alone_count, 1)
        keys = zip(self.name, self.blocks.tolist(), self.shapes.tolist(), strict=True)
        times = map(KernelSums, self.count.tolist(), self.time_ns.tolist(), alone.tolist())
        return dict(zip(keys, times, strict=True))


class KernelSums(Struct, frozen=True):
    """A kernel of a rank: how often and for how long, and how long one of them takes alone; 0: none is."""

    count: int
    time_ns: int
    alone: float


def kernel_times(timeline: Timeline, chosen: IntArray, dur: IntArray, next_to: BoolArray) -> KernelTimes:
    """Return kernels that were chosen, by their rows. next_to: whether a collective ran meanwhile, of each of them."""
    code, names = string_ids(timeline.activities.column("name"))
    keys = np.stack((code[chosen], blocks_of(timeline.activities)[chosen], _shape_numbers(timeline)[chosen]))
    kinds, which = np.unique(keys, axis=1, return_inverse=True)

    def summed(weights: IntArray) -> IntArray:
        return np.bincount(which.reshape(-1), weights=weights, minlength=kinds.shape[1]).astype(np.int64)

    ones, time = np.ones(len(chosen), np.int64), summed(dur)
    most = np.argsort(-time, kind="stable")[:_MOST]
    sums = (summed(ones), time, summed(ones * ~next_to), summed(dur * ~next_to))
    called = tuple(names[at] if at >= 0 else "" for at in kinds[0][most].tolist())
    return KernelTimes(called, kinds[1][most], kinds[2][most], *(each[most] for each in sums))


def _shape_numbers(timeline: Timeline) -> IntArray:
    op = numbers(timeline.activities.column("op_row"), null=-1)
    code, texts = string_ids(timeline.ops.column("input_shapes"))
    number = np.array([*(crc32(text.encode()) for text in texts), 0], np.int64)
    of_op = np.append(number[np.where(code < 0, len(texts), code)], 0)
    return of_op[op]
