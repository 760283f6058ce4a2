"""One kernel in place of a fusion group: its bytes are known, its time is read off the device's calibrated curves.

The unfused time is never modelled: it is what the trace measured. How warm the inputs are, the members themselves tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.perfmodel import Curves
from tracemine.perfmodel.ranges import Abstained, Estimate, outwards

# The interval's ends in a model's step, beyond what a kernel alone scatters. There kernels are off together: what runs
# beside them, where a compiler draws its borders. As much as makes the summed interval hold what torch.compile took in
# 18 of 20 models; of 19 others it then holds 16 (docs/inductor.md).
IN_A_STEP = 1.42


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
    """One instance of a group as one kernel. `sure`: whether who reads what is known, not guessed. `in_model`: whether
    products and convolutions run in the same steps, as in whole models, or memory-bound kernels alone. `product_bytes`:
    of the result of a product whose epilogue it could be. `more`: bytes that it reads and writes on top, if tensors
    that are written in place and look alike are not one.

    Where it is guessed, the interval reaches from inputs of equal size being one to the largest result being wanted by
    somebody else.

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
    low_ns, high_ns = found.low_ns, found.high_ns
    assumptions = [_source(curves), *found.notes]
    if not sure:
        fewer = replace(kernel, reads=tuple(dict.fromkeys(kernel.reads)))
        wanted = replace(kernel, writes=(*kernel.writes, max((*kernel.reads, *kernel.writes), default=0)))
        low_ns, least_ns = min(low_ns, curves.predict(fewer, warm).low_ns), curves.least_ns(fewer.nbytes)
        high_ns = max(high_ns, curves.predict(wanted, warm).high_ns)
        assumptions.append(
            "which tensor feeds which kernel is the likeliest of several; low end: inputs of equal size are one, high "
            "end: somebody else reads the largest result"
        )
    if any(more):
        apart = replace(kernel, reads=(*kernel.reads, more[0]), writes=(*kernel.writes, more[1]))
        high_ns = max(high_ns, curves.predict(apart, warm).high_ns)
        assumptions.append("high end: tensors that are written in place and look alike are each a tensor of its own")
    if in_model:
        low_ns, high_ns = low_ns / IN_A_STEP, high_ns * IN_A_STEP
        assumptions.append(
            f"in a model's step kernels are off together: the interval reaches {IN_A_STEP} times further than for a "
            "kernel alone"
        )
    if product_bytes:
        low_ns = min(low_ns, curves.epilogue(0.0, product_bytes, kernel).low_ns)
        assumptions.append("only the low end lets it ride on the product in front, for what else it must read")
    if found.kernels > 1:
        assumptions.append(f"few rows for so long a reduction: {found.kernels} kernels are counted")
    after_ns = outwards(low_ns, found.mid_ns, high_ns).at_least(math.ceil(least_ns))
    return Estimate(after_ns=after_ns, assumptions=tuple(assumptions))


def _source(curves: Curves) -> str:
    if curves.scaled_from is not None:
        return f"the fused time is read off the calibration of {curves.scaled_from}, scaled by the data sheets"
    own = "" if curves.file is None else f" in {curves.file}"
    return f"the fused time is read off the calibration of {curves.calibration.gpu}{own}"
