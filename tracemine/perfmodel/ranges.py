"""Parts of every estimate: a range of nanoseconds, bytes before and after, or the reason why there is none."""

from __future__ import annotations

import math

import msgspec
from msgspec import Struct


class Range(msgspec.Struct, frozen=True):
    """A low, middle and high estimate in integer nanoseconds; low ≤ mid ≤ high."""

    low: int
    mid: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.mid + other.mid, self.high + other.high)

    def __mul__(self, times: int) -> Range:
        return Range(self.low * times, self.mid * times, self.high * times)

    def __floordiv__(self, by: int) -> Range:
        return Range(self.low // by, self.mid // by, self.high // by)

    def at_most(self, limit: int) -> Range:
        """Cut each end at `limit`.

        >>> Range(1, 5, 9).at_most(6)
        Range(low=1, mid=5, high=6)
        """
        return Range(min(self.low, limit), min(self.mid, limit), min(self.high, limit))

    def at_least(self, limit: int) -> Range:
        """Raise each end to `limit`.

        >>> Range(1, 5, 9).at_least(6)
        Range(low=6, mid=6, high=9)
        """
        return Range(max(self.low, limit), max(self.mid, limit), max(self.high, limit))


NOTHING = Range(0, 0, 0)


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Device memory traffic in bytes, unfused and fused."""

    before: int
    after: int


class Estimate(Struct, frozen=True, kw_only=True):
    """One instance after the change."""

    after_ns: Range
    traffic_bytes: Traffic | None = None
    intermediate_bytes: int | None = None
    flops: int | None = None
    assumptions: tuple[str, ...] = ()


class Abstained(Struct, frozen=True):
    """No estimate, and the reason: a key of the scan's `dropped`."""

    reason: str


def outwards(low: float, mid: float, high: float) -> Range:
    """Return a range of integer nanoseconds, rounded outwards.

    >>> outwards(1.2, 1.6, 1.8)
    Range(low=1, mid=2, high=2)
    """
    return Range(math.floor(low), round(mid), math.ceil(high))
