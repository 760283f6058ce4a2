"""One pass over lists of tensors: a fused optimizer's kernels, `torch._foreach_*`, or what torch.compile makes of it.

PyTorch's kernels over lists take so many tensors, and so many chunks of them, a launch, a chunk a block. A launch lasts
as long as its last block, whatever the bandwidth: that is what they take besides moving their bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.ranges import Abstained, Estimate, Range, Traffic, outwards

# multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh): elements of a chunk, chunks a launch, and tensors a launch
# by how many lists it takes.
_CHUNK, _BLOCKS, _TENSORS = 65_536, 320, (110, 64, 48, 36, 30)
# What a launch takes besides its bytes where a tensor fills a chunk, and where all are small. On an H200, torch 2.11:
# 10.4 to 11.6 µs a kernel of `_foreach_mul_` and `_foreach_add_` (ResNet-50), 9 to 16 of SGD's, 19 to 41 of AdamW's.
_CHUNK_NS, _HEAVY_CHUNK_NS, _LAUNCH_NS = 10_000, 20_000, 2_000
_HEAVY = 4  # lists: Adam and its kin, which divide and take roots
_LIST_RANGE: Final = (0.75, 1.35)
_COMPILED_RANGE: Final = (0.9, 1.9)
_COMPILED = 1.2  # of moving the bytes at full rate, with launches of as many tensors as fit a kernel's arguments
_COMPILED_TENSORS = 250
# Where no sizes were recorded: what is left of the time, by the number of times that each element is moved.
_BY_SHARE: Final = (0.75, 1.3)
_OF_A_LOOP: Final = (0.1, 0.9)  # of a parameter at a time, whose kernels may be short of work


class Pass(Struct, frozen=True, kw_only=True):
    """One pass over lists: bytes that it must read and write, and the sizes of one list's tensors, in elements."""

    reads: int
    writes: int
    sizes: tuple[int, ...]
    lists: int  # how many are read or written

    @property
    def launches(self) -> int:
        """Kernels of a list operator.

        >>> Pass(reads=0, writes=0, sizes=(65_536 * 600,), lists=4).launches
        2
        """
        chunks = sum(-(-size // _CHUNK) for size in self.sizes)
        tensors = _TENSORS[min(max(self.lists, 1), len(_TENSORS)) - 1]
        return max(-(-chunks // _BLOCKS), -(-len(self.sizes) // tensors), 1)


def listed_ns(curves: Curves, one: Pass) -> float:
    """Return time of one list operator, its inputs not in the cache.

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> elements, sizes = 39_326_720, (39_326_720,)
    >>> round(listed_ns(curves, Pass(reads=8 * elements, writes=6 * elements, sizes=sizes, lists=4)) / 1000)
    165
    """
    largest = min(max(one.sizes, default=0), _CHUNK) / _CHUNK
    full = _HEAVY_CHUNK_NS if one.lists >= _HEAVY else _CHUNK_NS
    return curves.memory_ns(one.reads, one.writes, 0.0) + one.launches * (_LAUNCH_NS + largest * (full - _LAUNCH_NS))


def one_pass(
    passes: Sequence[Pass],
    before: Traffic | None,
    measured_ns: float,
    curves: Curves | None,
    *,
    sure: bool = True,
    compiled: bool = False,
    alike: bool = False,
) -> Estimate | Abstained:
    """Estimate passes over lists in place of what was measured.

    `before`: bytes that all of it moves now; None: not known. `sure`: whether tensors were recorded, not their sizes
    alone. `compiled`: torch.compile writes the pass. `alike`: what was measured are list operators themselves, which
    are as far from full rate as those that take their place.

    >>> one_pass([], None, 1000, None)
    Abstained(reason='device_unknown')
    """
    if curves is None:
        return Abstained("device_unknown")
    if not passes:
        return Estimate(after_ns=Range(0, 0, 0), traffic_bytes=before, assumptions=("nothing is left of it",))
    reads, writes = sum(one.reads for one in passes), sum(one.writes for one in passes)
    if compiled:
        launches = sum(-(-len(one.sizes) // _COMPILED_TENSORS) for one in passes)
        mid = _COMPILED * curves.memory_ns(reads, writes, 0.0) + launches * _LAUNCH_NS
    else:
        mid = sum(listed_ns(curves, one) for one in passes)
    less, more = _COMPILED_RANGE if compiled else _LIST_RANGE
    low, high = mid * less, mid * more
    assumptions = [
        "what torch.compile writes moves each byte once, at a rate near the device's best"
        if compiled
        else "kernels over lists move each byte once and take 2 to 20 µs a launch on top of that, as on an H200"
    ]
    if alike and before is not None and before.before:
        # They are as far from full rate now as they are then.
        shared = measured_ns * before.after / before.before
        low, mid, high = min(low, shared), max(mid, 0.9 * shared), max(high, shared)
        assumptions.append("list operators take as long a byte as those that take their place")
    if not sure:
        low, high = 0.8 * low, 1.25 * high
        assumptions.append("which tensors are the same is inferred from their shapes: the bytes are a guess")
    least = math.ceil(curves.least_ns(reads + writes))
    after_ns = outwards(low, mid, high).at_least(least)
    return Estimate(after_ns=after_ns, traffic_bytes=before, assumptions=tuple(assumptions))


def share_of(
    measured_ns: float, after: int, before: int, curves: Curves | None, *, loop: int = 0
) -> Estimate | Abstained:
    """Estimate the same where no sizes were recorded: each element is moved `after` times in place of `before`.

    loop: kernels of a loop over parameters; 0: it is none. What each takes besides its bytes goes with it.

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> share_of(100_000, 7, 20, curves).after_ns
    Range(low=26250, mid=35000, high=45500)
    >>> share_of(100_000, 3, 3, curves, loop=20).after_ns.mid < 100_000
    True
    """
    if curves is None:
        return Abstained("device_unknown")
    moving_ns = max(measured_ns - loop * curves.least_ns(0), measured_ns * _OF_A_LOOP[0])
    mid = moving_ns * min(after / max(before, 1), 1.0)
    ends = (
        (min(mid, measured_ns * _OF_A_LOOP[0]), measured_ns * _OF_A_LOOP[1])
        if loop
        else (mid * _BY_SHARE[0], mid * _BY_SHARE[1])
    )
    return Estimate(
        after_ns=outwards(ends[0], mid, max(ends[1], mid)).at_least(math.ceil(curves.least_ns(0))),
        assumptions=(
            f"sizes were not recorded: each element is moved {before} times now and {after} times in one pass, at the "
            "same rate",
            *(["each kernel of a loop takes as long besides that as the shortest one does"] if loop else []),
        ),
    )


_COPY_OF_ADDITION = 2 / 3  # what is read and written by a copy, of what an addition in place reads and writes


def without_zeros(measured_ns: float, added_ns: float) -> Estimate:
    """Estimate gradients that are not filled with zeros and then added to, `added_ns` of it.

    >>> without_zeros(5_000, 3_000).after_ns
    Range(low=0, mid=0, high=2000)
    """
    notes = ["nothing is left of the fills"]
    if added_ns:
        notes.append("the backward pass keeps what it has computed in place of adding it; high end: it has to copy it")
    return Estimate(after_ns=outwards(0, 0, min(_COPY_OF_ADDITION * added_ns, measured_ns)), assumptions=tuple(notes))
