"""One kernel in place of a run of neighbours whose reads are not known: durations are all there is.

Where dataflow and its bytes are known, groups are estimated instead: see group.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tracemine.perfmodel.fused_time import Curves
from tracemine.perfmodel.ranges import Abstained, Estimate, Range

# The share of the time beyond the longest member that the mid estimate saves.
_SHARE_OF_THE_REST = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
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
        f"{unknown}: one kernel takes as long as the longest of them (low), as all of them (high), or half-way between",
    ]
    if kept:
        assumptions.append("products and convolutions keep their time; only the low end lets the rest ride on them")
        longest = 0
    # What each stretch moves is not known, so of its floor the launch alone is; it never took longer than it did.
    least = math.ceil(len(stretches) * curves.least_ns(0))
    rest = Range(longest, mid, total).at_least(least).at_most(total)
    return Estimate(after_ns=Range(kept + rest.low, kept + rest.mid, kept + rest.high), assumptions=tuple(assumptions))
