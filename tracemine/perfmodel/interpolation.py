"""Interpolation of calibration points: times over bytes, and what a row pattern took beyond its bytes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tracemine.perfmodel.calibration import Point

FloatArray = NDArray[np.float64]
WARM = 1.15  # of the time that moving bytes in the L2 cache takes: calibration keeps the best configuration


class BandwidthCurve:
    """Cold and warm time over bytes: monotone, straight between two points on log-log axes."""

    def __init__(self, nbytes: FloatArray, cold: FloatArray, warm: FloatArray) -> None:
        self.nbytes, self.cold, self.warm = nbytes, cold, warm
        self._log = np.log(nbytes), np.log(cold), np.log(warm)

    @classmethod
    def of(cls, points: Iterable[Point]) -> BandwidthCurve:
        rows = sorted({p.nbytes: (p.nbytes, p.cold_ns, p.warm_ns) for p in points}.values())
        table = np.array(rows, dtype=np.float64)
        return cls(table[:, 0], np.maximum.accumulate(table[:, 1]), np.maximum.accumulate(table[:, 2]))

    def covers(self, nbytes: float) -> bool:
        return nbytes <= float(self.nbytes[-1]) * 1.5

    def at(self, nbytes: float, warm: float) -> float:
        x, cold, hot = self._log
        at = math.log(max(nbytes, 1.0))
        beyond = max(at - float(x[-1]), 0.0)  # beyond the last point time is proportional to bytes
        c, h = float(np.exp(np.interp(at, x, cold))), float(np.exp(np.interp(at, x, hot)))
        h = min(self.warm[0] + (h - self.warm[0]) * WARM, max(c, h))
        return float(c ** (1 - warm) * h**warm * np.exp(beyond))


class ReductionOverhead:
    """Time of a row pattern beyond its own bytes and arithmetic, over row length and elements; cold and warm.

    This difference is interpolated, not the time: points are too few to show where the cache ends.
    """

    def __init__(
        self, points: Sequence[Point], own_ns: Callable[[Point, float], float], missed: Callable[[float], float]
    ) -> None:
        self._missed = missed
        by_length: dict[int, list[tuple[float, float, float]]] = defaultdict(list)
        for p in sorted(points, key=lambda p: p.elements):
            cold, warm = p.cold_ns - own_ns(p, 0.0), p.warm_ns - own_ns(p, 1.0)
            by_length[p.length].append((math.log(p.elements), max(cold, 0.0), max(warm, 0.0)))
        self._lengths = np.array(sorted(by_length), dtype=np.float64)
        self._lines = [np.array(by_length[length], dtype=np.float64) for length in sorted(by_length)]

    def at(self, elements: int, length: int, warm: float) -> float:
        """Return nanoseconds; beyond the last point in proportion to elements, beyond the last length as there."""
        upper = int(np.searchsorted(self._lengths, length))
        lower = max(upper - 1, 0)
        upper = min(upper, len(self._lines) - 1)
        share = self._share(length, self._lengths[lower], self._lengths[upper])
        return (1 - share) * self._on_line(lower, elements, warm) + share * self._on_line(upper, elements, warm)

    def _share(self, length: float, lower: float, upper: float) -> float:
        """Return how far from one calibrated length to the next: by what the cache no longer holds, if that is it."""
        if upper == lower:
            return 1.0
        begin, at, end = self._missed(lower), self._missed(length), self._missed(upper)
        if end > begin:
            return (at - begin) / (end - begin)
        return min(max(math.log(length / lower) / math.log(upper / lower), 0.0), 1.0)

    def _on_line(self, line: int, elements: int, warm: float) -> float:
        x, cold, hot = self._lines[line].T
        at = math.log(max(elements, 1))
        value = (1 - warm) * np.interp(at, x, cold) + warm * np.interp(at, x, hot)
        return float(value * math.exp(max(at - float(x[-1]), 0.0)))
