"""One kernel in place of a fusion group: its bytes are known, its time is read off the device's calibrated curves.

The unfused time is never modelled: it is what the trace measured. How warm the inputs are, the members themselves tell.
Of a run of neighbours whose reads are not known, durations are all there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from tracemine.fusion.kernel import FINISH, FusedKernel, Unfused
from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.ranges import Abstained, Estimate, Prediction, Range, combined, outwards

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
