"""Measured times of one device for moving bytes and for arithmetic, read between its calibration's points."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from itertools import filterfalse

import numpy as np
from numpy.typing import NDArray

from tracemine.devices import Device, find_device
from tracemine.errors import InputError
from tracemine.fusion.kernel import FINISH, SIMPLE, FusedKernel, Unfused
from tracemine.perfmodel.calibration import Calibration, Point

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


_THREADS_PER_SM = 2048
_TELLING = 1.15  # of the cold time: a kernel that takes longer is slow for another reason
_DIFFER = 1.01  # warm and cold times of more than the cache that can be distinguished
_BASE_DTYPE = "float32"  # of the curves of bytes alone: a type whose arithmetic never shows
_FUNCTION_DTYPE = "bfloat16"  # of the points that tell what a function takes
_LARGE_WAVES = 16  # of threads: from here on memory's own time is steady
PICO = 1e-3  # ns

_FUNCTIONS = ("exp", "log", "tanh", "erf", "divide", "sigmoid", "log_exp_tanh")
NEEDED = {
    *("read", "write", "copy", "add", "widen", "strided", *_FUNCTIONS),
    *("row_sum", "row_norm", "row_norm_looped", "row_two_sums", "row_welford"),
    *("row_softmax", "row_softmax_online", "row_scan"),
}

# Arithmetic of the code that torch.compile generates, in picoseconds an element on an H200, as in `fused_time`.
_RANDOM_PS = 2.35  # ten rounds of Philox
_CHANNEL_PS = 0.65  # four numbers of a channel, a root and a division, for each element anew (a whole model's kernels)
_BLEND_PS = 1.4  # four places and four weights, for each element anew (one model: 1.2 joined with others, 2.7 alone)
_SIMPLE_PS = 0.03  # one instruction an element on every lane
BASE_PS = 0.45  # what `base` is on the H200


class DeviceCurves:
    """One device's calibration, read between its points. InputError where a pattern is missing."""

    def __init__(
        self,
        calibration: Calibration,
        scaled_from: str | None = None,
        device: Device | None = None,
        file: str | None = None,
    ) -> None:
        """`scaled_from`: the GPU whose curves these are, scaled to `device`. `file`: the name of a user's own file."""
        self.calibration = calibration
        self.file = file
        self.scaled_from = scaled_from
        self._device = device or find_device(calibration.gpu, sm_count=calibration.sm_count)
        self.wave = calibration.sm_count * _THREADS_PER_SM  # elements that are computed at once
        by_pattern: dict[str, list[Point]] = defaultdict(list)
        for point in calibration.points:
            by_pattern[point.pattern].append(point)
        self._points = dict(by_pattern)
        if missing := self._missing():
            raise InputError(f"the calibration of {calibration.gpu} lacks {', '.join(missing)}")

        def in_cache(point: Point) -> bool:
            return point.nbytes < 2 * calibration.l2_bytes

        base = {name: [p for p in own if p.dtype == _BASE_DTYPE] for name, own in self._points.items()}
        self._copy = BandwidthCurve.of(base["copy"])
        # By the share of its bytes that a kernel reads.
        self._by_share = {
            0.0: BandwidthCurve.of(base["write"]),
            1 / 3: BandwidthCurve.of([*filter(in_cache, base["copy"]), *filterfalse(in_cache, self._points["widen"])]),
            1 / 2: self._copy,
            2 / 3: BandwidthCurve.of(base["add"]),
            1.0: BandwidthCurve.of(base["read"]),
        }
        self._strided = BandwidthCurve.of(self._points["strided"])

    @property
    def guess_spread(self) -> tuple[float, float]:
        """Least and most bandwidth that the device may have, as factors: 1 where it is known."""
        return (1.0, 1.0) if self._device is None else self._device.guess_spread

    def _missing(self) -> list[str]:
        """Return patterns without a point that is needed of them: of all types that are asked for, and large ones."""
        missing = []
        for name in sorted(NEEDED):
            points = self._points.get(name, [])
            items = {item_bytes(point) for point in points}
            large = {point.dtype for point in points if point.elements > _LARGE_WAVES * self.wave}
            if name in _FUNCTIONS:
                there = _FUNCTION_DTYPE in large
            elif name.startswith("row_"):
                there = bool(large) and items >= {2, 4}
            else:
                there = name == "widen" or any(point.dtype == _BASE_DTYPE for point in points)
            if not points or not there:
                missing.append(name)
        return missing

    def warmth(self, kernel: FusedKernel, unfused: Sequence[Unfused]) -> float:
        """Return how warm the cache would be for one kernel in place of `unfused`, which are in the order of running.

        The first of them meets the inputs as the one kernel would; the others find what it has just written. Where the
        first is too slow for its bytes to tell anything, the warmest of all is asked.

        >>> from tracemine.perfmodel.calibration import calibration_of
        >>> curves = DeviceCurves(calibration_of("NVIDIA H200 SXM"))
        >>> one = FusedKernel(reads=(4 << 20,), writes=(4 << 20,), rows=2 << 20, item_bytes=2, steps=("simple",) * 2)
        >>> size = {"reads": 4 << 20, "writes": 4 << 20}
        >>> curves.warmth(one, [Unfused(**size, dur_ns=3_300), Unfused(**size, dur_ns=1_900)])
        0.0
        >>> curves.warmth(one, [Unfused(**size, dur_ns=9_900), Unfused(**size, dur_ns=1_900)])
        1.0
        """
        if not unfused:
            return 0.0
        first = unfused[0]
        if kernel.nbytes > self.calibration.l2_bytes:
            inside = first.reads + first.writes <= self.calibration.l2_bytes
            return 1.0 if inside else self.residency(first.reads, first.writes, first.dur_ns)
        told = [self.residency(one.reads, one.writes, one.dur_ns) for one in unfused]
        slow = first.dur_ns > _TELLING * self.memory_ns(first.reads, first.writes, 0.0)
        return max(told) if slow else told[0]

    def residency(self, reads: int, writes: int, measured_ns: float) -> float:
        """Return how far an unfused kernel's duration lies from the cold curve to the warm one, 0 to 1.

        Within the L2 cache: the share of its inputs that it found there. A kernel can be slower than the curve for many
        reasons and faster for none: a low answer says little, a high one a lot. Beyond the cache warm is the slower
        one, full of lines that must be written back first, which is what other work leaves behind; where the two
        hardly differ, that is the answer.

        >>> from tracemine.perfmodel.calibration import calibration_of
        >>> curves = DeviceCurves(calibration_of("NVIDIA H200 SXM"))
        >>> curves.residency(4 << 20, 4 << 20, 3_300), curves.residency(4 << 20, 4 << 20, 1_900)
        (0.0, 1.0)
        """
        cold, warm = self.memory_ns(reads, writes, 0.0), self.memory_ns(reads, writes, 1.0)
        if reads + writes > self.calibration.l2_bytes:
            if warm < cold * _DIFFER:
                return 1.0
        elif cold <= warm:
            return 0.0
        return min(max(math.log(cold / max(measured_ns, 1.0)) / math.log(cold / warm), 0.0), 1.0)

    def least_ns(self, nbytes: float, kernels: int = 1) -> float:
        """Return the least time of launches and of bytes beyond the L2 cache at the memory's peak bandwidth.

        >>> from tracemine.perfmodel.calibration import calibration_of
        >>> curves = DeviceCurves(calibration_of("NVIDIA H200 SXM"))
        >>> curves.least_ns(1 << 20), round(curves.least_ns(4_800_000_000 + curves.calibration.l2_bytes))
        (576, 1000000)
        """
        beyond = max(nbytes - self.calibration.l2_bytes, 0)
        return max(kernels * self._empty_ns, beyond / self._peak_bytes_per_ns)

    @cached_property
    def _empty_ns(self) -> int:
        """A kernel that does nothing, or the smallest that moves anything, whichever was shorter."""
        return min(self.calibration.launch.empty_kernel_ns, *(p.warm_ns for p in self.calibration.points))

    @cached_property
    def _peak_bytes_per_ns(self) -> float:
        """Of the data sheet; where the GPU is not in the device table, the highest that was measured."""
        if self._device is not None:
            return self._device.bandwidth_bytes_per_s / 1e9
        beyond = ((p, p.nbytes - self.calibration.l2_bytes) for p in self.calibration.points)
        return max(1.0, *(more / min(p.cold_ns, p.warm_ns) for p, more in beyond))

    @cached_property
    def floor_ns(self) -> tuple[float, float]:
        """(cold, warm) time of the smallest copy."""
        line = self._copy
        return float(line.cold[0]), float(line.warm[0])

    @cached_property
    def function_ps(self) -> dict[str, float]:
        """Picoseconds an element and function when memory hides nothing; `base` is loading, converting and storing.

        Every pattern's time is base + its functions; the pattern of three functions says how much is base.
        """
        upper = {
            name: min(
                (t - floor) / p.elements / PICO
                for p in self._points[name]
                if p.dtype == _FUNCTION_DTYPE and p.elements > _LARGE_WAVES * self.wave
                for t, floor in ((p.cold_ns, self.floor_ns[0]), (p.warm_ns, self.floor_ns[1]))
            )
            for name in _FUNCTIONS
        }
        base = (upper["log"] + upper["exp"] + upper["tanh"] - upper["log_exp_tanh"]) / 2
        base = min(max(base, 0.0), min(upper.values()))
        single = {name: max(ps - base, 0.0) for name, ps in upper.items() if name != "log_exp_tanh"}
        scale = base / BASE_PS
        own = {
            FINISH: 0.0,
            "random": _RANDOM_PS,
            "channel": _CHANNEL_PS,
            "blend": _BLEND_PS,
            **dict.fromkeys(SIMPLE, _SIMPLE_PS),
        }
        return {"base": base, **{name: ps * scale for name, ps in own.items()}, **single}

    @cache  # noqa: B019 - a calibration or two a process
    def row_ps(self, pattern: str) -> float:
        """Return the most that arithmetic can take an element in a row pattern, in picoseconds, whatever its type."""
        return min(
            (t - floor) / p.elements / PICO
            for p in self._points[pattern]
            if p.elements > _LARGE_WAVES * self.wave
            for t, floor in ((p.cold_ns, self.floor_ns[0]), (p.warm_ns, self.floor_ns[1]))
        )

    def memory_ns(self, read: float, written: float, warm: float) -> float:
        """Return the time of moving bytes, by the share that is read: writing costs more when mixed with reading."""
        total = max(read + written, 1.0)
        times = [line.at(total, warm) for line in self._by_share.values()]
        return float(np.interp(read / total, list(self._by_share), times))

    @cached_property
    def scale(self) -> float:
        """This device's arithmetic against the H200's."""
        return self.function_ps["base"] / BASE_PS


def item_bytes(point: Point) -> int:
    return {"float32": 4, "int8": 1}.get(point.dtype, 2)
