"""One kernel in place of a fusion group: its bytes are known, its time is read off the device's calibrated curves.

The unfused time is never modelled: it is what the trace measured. How warm the inputs are, the members themselves tell.
Of a run of neighbours whose reads are not known, durations are all there is.

Of lists of tensors one pass is a fused optimizer's kernels, `torch._foreach_*`, or what torch.compile makes of it: a
launch takes so many tensors, and so many chunks of them, a chunk a block. It lasts as long as its last block, whatever
the bandwidth: that is what it takes besides moving its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from tracemine.fusion.kernel import FINISH, FusedKernel, Unfused
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.ranges import Abstained, Estimate, Prediction, Range, Traffic, combined, outwards

# How far the interval reaches in a model's step for what a kernel alone does not show: kernels are off together there,
# by what runs meanwhile and by where a compiler draws its borders, and slower more often than faster. Of 12 models of
# an H100 1.6 to the slow side would hold 85 % (benchmarks/predictions/in_a_step.py), but of those left out in turn 75
# %, and of the 53 of an H200 about 79 %; 1.8 holds about 86 % of both.
IN_A_STEP = (1 / 1.42, 1.8)
# The share of the time beyond the longest member that the mid estimate saves.
_SHARE_OF_THE_REST = 0.5


def one_kernel(
    kernel: FusedKernel,
    members: Sequence[Unfused],
    curves: Curves | None,
    *,
    sure: bool = True,
    in_model: bool = True,
    product_bytes: int = 0,
    more: tuple[int, int] = (0, 0),
) -> Estimate | Abstained:
    """Estimate one instance of a group as one kernel.

    `sure`: whether dataflow is known, not guessed. `in_model`: whether products and convolutions run in the same steps,
    as in whole models, or memory-bound kernels alone. `product_bytes`: of the result of a product whose epilogue it
    could be. `more`: bytes that it reads and writes on top, if tensors written in place that look the same are not
    one. Where dataflow is guessed, the low end takes inputs of equal size as one, and the high end the largest result
    as live-out.

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> relu = FusedKernel(reads=(1 << 29,), writes=(1 << 29,), rows=1 << 28, item_bytes=2, steps=("simple",))
    >>> one_kernel(relu, [Unfused(reads=1 << 29, writes=1 << 29, dur_ns=250_000)] * 2, curves).after_ns.mid
    250132
    >>> one_kernel(relu, [], None)
    Abstained(reason='device_unknown')
    """
    if curves is None:
        return Abstained("device_unknown")
    warm = curves.warmth(kernel, members)
    found, least_ns = curves.predict(kernel, warm), curves.least_ns(kernel.nbytes)
    low_ns, high_ns = _ends(found, in_model)
    assumptions = [_source(curves), *found.notes]
    if not sure:
        fewer = replace(kernel, reads=tuple(dict.fromkeys(kernel.reads)))
        wanted = replace(kernel, writes=(*kernel.writes, max((*kernel.reads, *kernel.writes), default=0)))
        low_ns, least_ns = min(low_ns, _ends(curves.predict(fewer, warm), in_model)[0]), curves.least_ns(fewer.nbytes)
        high_ns = max(high_ns, _ends(curves.predict(wanted, warm), in_model)[1])
        assumptions.append(
            "which tensor feeds which kernel is the likeliest of several; low end: inputs of equal size are one, high "
            "end: another consumer reads the largest result"
        )
    if any(more):
        apart = replace(kernel, reads=(*kernel.reads, more[0]), writes=(*kernel.writes, more[1]))
        high_ns = max(high_ns, _ends(curves.predict(apart, warm), in_model)[1])
        assumptions.append("high end: tensors that are written in place and look the same are each a tensor of its own")
    if in_model:
        assumptions.append(
            f"in a model's step kernels are off together by {IN_A_STEP[0]:.2g} to {IN_A_STEP[1]:g} times, not counting "
            "what each is off alone"
        )
    if product_bytes:
        low_ns = min(low_ns, curves.epilogue(0.0, product_bytes, kernel).low_ns)
        assumptions.append("only the low end lets it ride on the product in front, for what else it must read")
    if FINISH in kernel.steps:
        assumptions.append(f"what the rows give is summed by a kernel of its own: {found.kernels} are counted")
    elif found.kernels > 1:
        assumptions.append(f"few rows for so long a reduction: {found.kernels} kernels are counted")
    after_ns = outwards(low_ns, found.mid_ns, high_ns).at_least(math.ceil(least_ns))
    return Estimate(after_ns=after_ns, assumptions=tuple(assumptions))


def _ends(found: Prediction, in_model: bool) -> tuple[float, float]:
    """Return the interval of a kernel where it runs."""
    less, more = IN_A_STEP if in_model else (1.0, 1.0)
    low, high = (combined(end / found.mid_ns, by) for end, by in ((found.low_ns, less), (found.high_ns, more)))
    return found.mid_ns * low, found.mid_ns * high


def _source(curves: Curves) -> str:
    if curves.scaled_from is not None:
        return f"the fused time is read off the calibration of {curves.scaled_from}, scaled by the data sheets"
    own = "" if curves.file is None else f" in {curves.file}"
    return f"the fused time is read off the calibration of {curves.calibration.gpu}{own}"


class Neighbour(Struct, frozen=True, kw_only=True):
    """One operator of a run with all the kernels that it launched there."""

    dur_ns: int  # mean over the instances
    compute: bool = False  # its time is arithmetic (a matrix product, a convolution), which fusing does not shorten


def fused_run(run: Sequence[Neighbour], curves: Curves | None, *, legal: bool = False) -> Estimate | Abstained:
    """Estimate one kernel for each stretch of a run that no product or convolution interrupts; those keep their time.

    `legal`: that they are one fusion group is known, only its bytes are not.

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> fused_run([Neighbour(dur_ns=3000), Neighbour(dur_ns=5000), Neighbour(dur_ns=2000)], curves).after_ns
    Range(low=5000, mid=7500, high=10000)
    >>> fused_run([Neighbour(dur_ns=3000)], None)
    Abstained(reason='device_unknown')
    """
    if curves is None:
        return Abstained("device_unknown")
    stretches = [[one.dur_ns for one in part] for compute, part in groupby(run, key=lambda n: n.compute) if not compute]
    if not stretches:
        return Abstained("compute_bound")
    kept = sum(one.dur_ns for one in run if one.compute)
    total, longest = sum(map(sum, stretches)), sum(map(max, stretches))
    mid = total - sum(round((sum(part) - max(part)) * _SHARE_OF_THE_REST) for part in stretches)
    unknown = (
        "the dataflow is known, dtypes and so bytes are not"
        if legal
        else "what each kernel reads and writes is not known"
    )
    assumptions = [
        f"{unknown}: one kernel takes as long as the longest of them (low), as all of them (high), or half-way between"
    ]
    if kept:
        assumptions.append("products and convolutions keep their time; only the low end lets the rest ride on them")
        longest = 0
    # What each stretch moves is not known, so of its floor the launch alone is; it never took longer than it did.
    least = math.ceil(len(stretches) * curves.least_ns(0))
    rest = Range(longest, mid, total).at_least(least).at_most(total)
    return Estimate(after_ns=Range(kept + rest.low, kept + rest.mid, kept + rest.high), assumptions=tuple(assumptions))


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
    reads, writes = sum(each_pass.reads for each_pass in passes), sum(each_pass.writes for each_pass in passes)
    if compiled:
        launches = sum(-(-len(each_pass.sizes) // _COMPILED_TENSORS) for each_pass in passes)
        mid = _COMPILED * curves.memory_ns(reads, writes, 0.0) + launches * _LAUNCH_NS
    else:
        mid = sum(listed_ns(curves, each_pass) for each_pass in passes)
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
