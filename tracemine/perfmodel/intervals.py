"""A predicted time with its 90 % interval, which belongs to a class of kernels."""

from __future__ import annotations

import math

from msgspec import Struct

from tracemine.tables import table_beside


class Prediction(Struct, frozen=True, kw_only=True):
    """Nanoseconds of one fused kernel (or the few that a split reduction takes), with the 90 % interval."""

    low_ns: float
    mid_ns: float
    high_ns: float
    kind: str  # class of kernel that the interval is calibrated for
    kernels: int
    notes: tuple[str, ...] = ()


def combined(*factors: float) -> float:
    """Combine intervals whose reasons are independent: in logarithms, squares add up.

    >>> combined(1.42, 1.0), round(combined(1.42, 1.4), 3), combined(0.8, 1.0)
    (1.42, 1.626, 0.8)
    """
    apart = math.hypot(*map(math.log, factors))
    return math.exp(-apart if min(factors) < 1 else apart)


_TABLE = table_beside(__file__, "intervals.toml")
# Measured ÷ predicted, 5th and 95th percentile by class over all recorded patterns but those kept unseen, with the
# cache's state known and inferred from durations, rounded, and wider for classes of fewer than 20 points
# (benchmarks/predictions/prediction_points.py --fit; how many of the unseen ones fall in is in benchmarks/README.md).
# `_small`: all of it fits the L2 cache, and a launch's own time counts.
INTERVALS = {kind: (low, high) for kind, (low, high) in _TABLE["intervals"].items()}
# The constants of arithmetic, and the intervals, were set by points of one GPU. Of patterns that are left out of the
# fit the intervals hold 84 to 87 % (prediction_points.py --left-out). Another GPU, with its own calibration, is further
# from the fit: of 350 points of an H100, which nothing was fitted to, they hold 90 % as they are and 93 % with this
# (of 324 inferred from durations 81 and 85 %).
FITTED_ON = "NVIDIA H200"
ELSEWHERE = (1 / 1.08, 1.08)
ABOVE_LEAST = (1.02, 1.05)  # of the least time that there is: where the middle and the high end begin
OUTSIDE = (0.6, 1.6)  # beyond the sizes that were calibrated
SCALED = (0.65, 1.6)  # a device known from its data sheet alone: another device's curves, scaled
