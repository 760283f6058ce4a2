"""The time of one fused kernel, from what a device was measured to do with its access pattern.

A kernel's time has three parts. It moves its bytes (`copy`, `read` and `write` of as many bytes, cold or warm). It
computes (so many picoseconds an element and function). And its kind of reduction adds time (rows that are looped over,
few rows that leave multiprocessors idle). The first two overlap as far as there are several waves of threads; the third
is read off the pattern of that kind, at that row length and number of elements.

A device that was not measured takes the calibration of one that was, scaled by the data sheets of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from tracemine.devices import Device, find_device
from tracemine.fusion.kernel import FINISH, REDUCTIONS, FusedKernel
from tracemine.perfmodel.calibration import Calibration, Point, calibration_of, shipped_calibrations
from tracemine.perfmodel.curves import BASE_PS, NEEDED, PICO, DeviceCurves, ReductionOverhead, item_bytes
from tracemine.perfmodel.ranges import (
    ABOVE_LEAST,
    ELSEWHERE,
    FITTED_ON,
    INTERVALS,
    OUTSIDE,
    SCALED,
    Prediction,
    combined,
)

_WHOLE = 1024  # a row up to here stays in one program's registers, and is read once
_STEP = 2048  # elements of a row that one iteration takes
_SPLIT = 8192  # rows longer than this are split where there are too few of them
_ROWS_PER_SM = 2
# Outer-contiguous, as Inductor generates it: no program keeps a row longer than so many elements in registers
# (choices.py, should_use_persistent_reduction), and so many rows a multiprocessor are not split (ir.py, num_splits).
_ACROSS_WHOLE, _ACROSS_ROWS_PER_SM = 64, 64
_ACROSS_BYTES = 1.5  # of what is read: sectors of which other rows use a part (layer norm of a sum with a transpose)
_ROWS_AT_ONCE = 8  # that a multiprocessor loops over at once: programs of eight warps
# A softmax whose mask is computed on the way takes so many times as long as a plain one: indices are int64, rows are
# read twice, and padded ones are written. torch.compile's kernels in five models: 1.7, 1.9, 2.8, 3.1 and 3.8 times.
_MASKED = 2.0
# Of a mask that is read it is less certain: 2.0 and 2.2 times in float16 on an H100, where indices of a mask are
# computed that heads share, and 1.1 times on an H200 where rows and columns alone have one. The middle of both.
_SELECTED = 1.4
# What adds at computed places waits for others that add there: torch.compile's kernels of two graph networks took 1.9
# and 2.0 times as long as their bytes and arithmetic do.
_ATOMIC = 2.0
_HELD_BY_L2 = 0.5  # of the L2 cache: what a loop finds again of what the loop before it read
_NARROW, _NARROW_SHARE = 2, 0.3  # elements a thread of the narrower shape; how often it is taken
_WAVE_NS = 750  # of one wave of threads that wait for memory
_TINY_BYTES = 1 << 16  # a reduction of no more is as many launches as a compiler makes of it
_TIMED_NS = 6000  # from here on the better shape is found
# Arithmetic of the code that torch.compile generates, in picoseconds an element on an H200; other devices are scaled
# by what their functions take. Read off large two-byte points of benchmarks/results, where memory hides none.
# One loop over a row that is too long for registers
_PASS_PS = {"sum": 0.15, "welford": 0.6, "softmax": 1.2, "scan": 1.2}
_FINISH = 2400  # elements that combining a program's running values at the end of a loop costs as much as
_WRITE_PASS_PS = 0.45  # the last loop, which writes
_HELD_PS = {"sum": 0.15, "welford": 0.3, "softmax": 0.5, "scan": 0.5}  # of a row in registers, beyond base
_COLUMN_PS, _COLUMN_LOAD_PS = 0.75, 0.45  # reducing along an axis that is not the contiguous one; another input
_LOAD_PS = 0.2  # one more full-size input, in each loop
# Each row's number summed to one: torch.compile's kernels of cross_entropy on an H100, 1024 to 262,144 rows.
_FINISH_ROW_NS, _FINISH_ROWS = 1.1, 1 << 13
GENERATED = 1.1  # of a function's time: the same function, generated and written by hand
_READY: dict[str, tuple[Device, Curves | None]] = {}  # by title


class Curves(DeviceCurves):
    """One device's calibration, made ready to be read between its points. InputError where a pattern is missing.

    >>> from tracemine.perfmodel.calibration import calibration_of
    >>> curves = Curves(calibration_of("NVIDIA H200 SXM"))
    >>> relu = FusedKernel(reads=(1 << 29,), writes=(1 << 29,), rows=1 << 28, item_bytes=2, steps=("simple",))
    >>> round(curves.predict(relu).mid_ns / 1000)
    247
    """

    @cached_property
    def _overhead(self) -> dict[tuple[str, int], ReductionOverhead]:
        """By row pattern and item size."""
        return {
            (name, item): ReductionOverhead([p for p in of if item_bytes(p) == item], self._own_ns, self._missed(item))
            for name, of in self._points.items()
            if name in NEEDED and name.startswith("row_")
            for item in (2, 4)
        }

    @classmethod
    def of(cls, device: Device) -> Curves | None:
        """Return a device's curves, or those of the measured device with the nearest bandwidth, scaled; else None.

        >>> from tracemine.devices import find_device
        >>> Curves.of(find_device("NVIDIA H200")).scaled_from is None
        True
        >>> Curves.of(find_device("NVIDIA A100-SXM4-80GB")).scaled_from
        'NVIDIA H100 80GB HBM3'
        """
        ready = _READY.get(device.title)
        if ready is None or ready[0] != device:  # made once a device: it takes longer than scanning a small trace
            ready = _READY[device.title] = device, cls._made(device)
        return ready[1]

    @classmethod
    def _made(cls, device: Device) -> Curves | None:
        own = calibration_of(device.title)
        if own is not None:
            return cls(own)
        found = ((base, find_device(base.gpu, sm_count=base.sm_count)) for base in shipped_calibrations())
        known = [(base, row) for base, row in found if row is not None]
        if not known:
            return None
        base, row = min(known, key=lambda one: abs(math.log(one[1].achieved_bytes_per_s / device.achieved_bytes_per_s)))
        return cls(scaled(base, row, device), scaled_from=base.gpu, device=device)

    def predict(self, kernel: FusedKernel, warm: float = 0.0) -> Prediction:
        """Predict the time of `kernel` with the share `warm` (0 to 1) of its inputs in the L2 cache.

        Of a kernel that moves more than the cache holds, 1 says that the cache is full of what must be written back, as
        other work leaves it, and 0 that it was cleared.
        """
        mid, kind, kernels, notes = self._mid(kernel, warm)
        if (kernel.masked or kernel.selected) and kind != "scan":
            mid, kind = mid * (_MASKED if kernel.masked else _SELECTED), "masked"
        if "atomic" in kernel.steps:
            mid, kind = mid * _ATOMIC, "atomic"
        if "random" in kernel.steps:  # a kernel of its own makes the seed first
            mid, kernels, kind = mid + self.floor_ns[1], kernels + 1, "random"
        if FINISH in kernel.steps:
            mid, kernels = mid + (self.floor_ns[1] + _FINISH_ROW_NS * min(kernel.rows, _FINISH_ROWS)), kernels + 1
        if kernel.nbytes <= self.calibration.l2_bytes:
            kind += "_small"
        if kernel.nbytes <= _TINY_BYTES and kernel.walks:
            kind = "tiny"
        low, high, why = self._interval(kind, kernel.nbytes)
        least = self.least_ns(kernel.nbytes, kernels) / self.guess_spread[1]
        floor = (least, least * ABOVE_LEAST[0], least * ABOVE_LEAST[1])  # nothing stands at what is impossible to beat
        low_ns, mid_ns, high_ns = (max(ends) for ends in zip((mid * low, mid, mid * high), floor, strict=True))
        return Prediction(
            low_ns=low_ns, mid_ns=mid_ns, high_ns=high_ns, kind=kind, kernels=kernels, notes=(*notes, *why)
        )

    def _interval(self, kind: str, nbytes: int) -> tuple[float, float, list[str]]:
        """Return the ends of a prediction as shares of its middle, and notes on what widens them."""
        (low, high), notes = INTERVALS[kind], list[str]()
        if not self._copy.covers(nbytes):
            low, high = min(low, OUTSIDE[0]), max(high, OUTSIDE[1])
            notes.append(f"{nbytes} bytes are beyond what was calibrated")
        if self.scaled_from is not None:
            fewest, most = self.guess_spread
            low, high = combined(low, SCALED[0], 1 / most), combined(high, SCALED[1], 1 / fewest)
            notes.append(f"not calibrated: the curves of {self.scaled_from}, scaled by the data sheets")
        elif self.calibration.gpu != FITTED_ON:
            low, high = combined(low, ELSEWHERE[0]), combined(high, ELSEWHERE[1])
            notes.append(f"what arithmetic takes besides this GPU's own curves was set on an {FITTED_ON}")
        return low, high, notes

    def epilogue(self, product_ns: float, product_bytes: int, kernel: FusedKernel) -> Prediction:
        """Predict a matrix product and what follows as one `kernel`, which reads the product's `product_bytes`.

        The middle keeps the library's product and makes one kernel of the rest, as torch.compile does. Only the low
        end puts the rest into the product's own kernel: that costs no less than reading what else is read, and the
        product is never faster for it. Recorded on an H200, a generated product with its epilogue inside took as long
        as the two kernels, or longer.

        >>> from tracemine.perfmodel.calibration import calibration_of
        >>> curves = Curves(calibration_of("NVIDIA H200 SXM"))
        >>> out = 4096 * 4096 * 2
        >>> rest = FusedKernel(reads=(out, 8192), writes=(out,), rows=1 << 24, item_bytes=2, steps=("simple",))
        >>> found = curves.epilogue(170_000, out, rest)
        >>> round(found.low_ns / 1000), round(found.mid_ns / 1000)
        (170, 187)
        """
        warm = min(_HELD_BY_L2 * self.calibration.l2_bytes / max(product_bytes, 1), 1.0)
        rest = self.predict(kernel, warm)
        extra = max(sum(kernel.reads) - product_bytes, 0)
        reading = max(self.memory_ns(extra, 0, 0.0) - self.memory_ns(1, 0, 0.0), 0.0)
        return Prediction(
            low_ns=product_ns + min(reading, rest.low_ns),
            mid_ns=product_ns + rest.mid_ns,
            high_ns=product_ns + rest.high_ns,
            kind="epilogue",
            kernels=1 + rest.kernels,
            notes=(*rest.notes, "only the low end lets the rest ride on the product"),
        )

    def _mid(self, kernel: FusedKernel, warm: float) -> tuple[float, str, int, tuple[str, ...]]:
        reductions = [step for step in kernel.steps if step in REDUCTIONS]
        if not reductions:
            return self._pointwise(kernel, warm), self._pointwise_kind(kernel, warm), 1, ()
        if "scan" in reductions:
            return self._one_row_kernel(kernel, reductions, warm), "scan", 1, ()
        many = kernel.rows >= _ACROSS_ROWS_PER_SM * self.calibration.sm_count and self._full_output(kernel)
        few = kernel.rows < _ROWS_PER_SM * self.calibration.sm_count
        columns = kernel.columns or _of_channels(kernel.steps)
        if (columns and not many) or (few and kernel.length > _SPLIT):
            mid, kernels = self._split(kernel, reductions, columns, warm)
            return mid, "columns" if columns else "split", kernels, ()
        kind = "rows" if kernel.length <= _WHOLE else "softmax_looped" if "softmax" in reductions else "rows_looped"
        return self._one_row_kernel(kernel, reductions, warm), kind, 1, ()

    def _pointwise_kind(self, kernel: FusedKernel, warm: float) -> str:
        memory = self.memory_ns(sum(kernel.reads), sum(kernel.writes), warm)
        return "arithmetic" if self._function_ns(kernel) > 0.7 * memory else "pointwise"

    def _function_ns(self, kernel: FusedKernel, passes: int = 1) -> float:
        """Return the time of the functions; those before a reduction run again in every later pass over the row."""
        ps, left, before = 0.0, passes, ""
        for step in kernel.steps:
            if step not in REDUCTIONS:
                ps += self.function_ps[step] * left
            elif before not in REDUCTIONS:
                left = max(left - 1, 1)
            if step == "softmax" and kernel.passes > 1 and passes > 1:  # normalised again in the loops that follow
                ps += self.function_ps["exp"]
            before = step
        elements = kernel.elements if passes == 1 else kernel.rows * _computed(kernel.length)
        return ps * PICO * GENERATED * (elements + self.wave / 2)

    def _reduction_ns(self, kernel: FusedKernel, walks: Sequence[tuple[str, ...]], passes: int) -> float:
        """Return time of loading, converting and reducing, whatever is computed in between."""
        inputs = sum(nbytes >= kernel.elements for nbytes in kernel.reads)
        ps = _LOAD_PS * max(inputs - 1, 0) * passes
        if passes == 1:
            ps += BASE_PS + sum(_HELD_PS[step] for walk in walks for step in walk)
        else:
            finish = _FINISH / kernel.length if kernel.length > _STEP else 0.0
            ps += sum(_PASS_PS[step] for walk in walks for step in walk) * (1 + finish)
            ps += _WRITE_PASS_PS * self._full_output(kernel)
        return ps * self.scale * PICO * kernel.rows * (kernel.length if passes == 1 else _computed(kernel.length))

    def _missed(self, item_bytes: int) -> Callable[[float], float]:
        """Return the share of a row that has left the L2 cache when it is looped over again, by its length."""
        held = _HELD_BY_L2 * self.calibration.l2_bytes / (item_bytes * self.calibration.sm_count * _ROWS_AT_ONCE)
        return lambda length: max(1 - held / length, 0.0)

    def _pointwise(self, kernel: FusedKernel, warm: float) -> float:
        memory = self.memory_ns(sum(kernel.reads), sum(kernel.writes), warm)
        if kernel.strided:
            memory = max(memory, self._strided.at(kernel.nbytes, warm))
        inputs = sum(nbytes >= kernel.elements for nbytes in kernel.reads)
        ps = BASE_PS + _LOAD_PS * max(inputs - 1, 0)
        base = ps * self.scale * PICO * (kernel.elements + self.wave / 2)
        total = self._together(memory, base + self._function_ns(kernel), kernel.elements, warm)
        return total + self._narrow_ns(total, kernel)

    def _narrow_ns(self, total: float, kernel: FusedKernel, share: float = _NARROW_SHARE) -> float:
        """Return what small kernels lose on average to the narrower of the two tile shapes that a compiler tries.

        Two elements a thread in place of eight: more waves of threads, each of which waits for memory once. Timing
        them picks the better one where the difference is larger than the timer's own scatter.
        """
        waves = kernel.elements / (_NARROW * self.wave)
        lost = self.floor_ns[1] + waves * _WAVE_NS - total
        return share * max(lost, 0.0) if total < _TIMED_NS else 0.0

    def _together(self, memory: float, arithmetic: float, elements: float, warm: float) -> float:
        """Overlap memory and arithmetic: all of the longer one, and of the shorter what the waves leave over."""
        cold, hot = self.floor_ns
        floor = min(cold + (hot - cold) * warm, memory)
        moving = memory - floor
        waves = max(elements / self.wave, 1.0)
        return floor + max(moving, arithmetic) + min(moving, arithmetic) / waves

    def _one_row_kernel(self, kernel: FusedKernel, reductions: Sequence[str], warm: float) -> float:
        """Return the time of bytes and arithmetic, and what the nearest pattern took beyond its own."""
        full_output = self._full_output(kernel)
        # A scan that needs one step carries nothing over.
        across = kernel.strided or kernel.columns
        held = kernel.length <= (_STEP if "scan" in reductions else _ACROSS_WHOLE if across else _WHOLE)
        pattern = _pattern(reductions, kernel.passes, kernel.length, full_output)
        item = 2 if kernel.item_bytes <= 2 else 4
        length = min(kernel.length, _WHOLE) if held else kernel.length
        beyond = self._overhead[pattern, item].at(kernel.elements, length, warm)
        passes = 1 if held else max(kernel.passes + full_output, 2)
        arithmetic = self._reduction_ns(kernel, kernel.walks, passes)
        arithmetic += self._function_ns(kernel, 1 if held else kernel.passes + full_output)
        # Outer-contiguous, no program keeps a row in registers: each loop reads it again.
        again = _ACROSS_BYTES * (1 if held else kernel.passes + full_output) if across else 1.0
        memory = self.memory_ns(again * sum(kernel.reads), sum(kernel.writes), warm)
        return self._together(memory, arithmetic, kernel.elements, warm) + beyond

    def _own_ns(self, point: Point, warm: float) -> float:
        """Return the time of a row pattern's bytes and arithmetic."""
        memory = self.memory_ns(point.bytes_read, point.bytes_written, warm)
        return self._together(memory, self.row_ps(point.pattern) * PICO * point.elements, point.elements, warm)

    def _split(self, kernel: FusedKernel, reductions: Sequence[str], columns: bool, warm: float) -> tuple[float, int]:
        """Return the time of few long rows: each reduction is two kernels, and a last one writes what is full-size.

        The inputs are read again by each; what fits the L2 cache is warm from the second time on.
        """
        kinds = [kind for walk in kernel.walks for kind in set(walk)]
        stages = sum(2 if kind == "softmax" else 1 for kind in kinds)
        read = sum(kernel.reads)
        full = self._full_output(kernel)
        finish = self.memory_ns(1 << 16, 0, 1.0)
        again = 1.0 if read <= self.calibration.l2_bytes * 0.6 else 0.0
        # What uses a channel's numbers comes when they are there.
        own = _of_channels(kernel.steps)
        steps = tuple(step for step in kernel.steps if not (own and step == "channel"))
        functions = self._function_ns(replace(kernel, steps=steps)) / stages
        ps = _PASS_PS["welford" if "welford" in reductions else "sum"]
        if columns:
            ps += _COLUMN_PS - _PASS_PS["sum"]
            ps += _COLUMN_LOAD_PS * (sum(nbytes >= kernel.elements for nbytes in kernel.reads) - 1)
            finish += self.floor_ns[1] / 2
        total = 0.0
        for stage in range(stages):
            state = warm if stage == 0 else again
            reducing = ps * self.scale * PICO * kernel.elements
            memory = self.memory_ns(read, 0, state)
            total += self._together(memory, reducing + functions, kernel.elements, state) + finish
        if full:
            last = self._together(
                self.memory_ns(read, sum(kernel.writes), again), self._function_ns(kernel), kernel.elements, again
            )
            total += last + self._narrow_ns(last, kernel, 1.0)  # it looks its row up: nothing is loaded in one go
        return total, 2 * stages + full

    def _full_output(self, kernel: FusedKernel) -> bool:
        return max(kernel.writes, default=0) >= kernel.elements


def _pattern(reductions: Sequence[str], passes: int, length: int, full_output: bool) -> str:
    """Return the calibrated pattern that waits and reads again as this row kernel does."""
    if "scan" in reductions:
        return "row_scan"
    if not full_output and passes == 1 and set(reductions) == {"sum"}:
        return "row_sum"
    if length <= _WHOLE:
        return "row_softmax" if "softmax" in reductions else "row_norm"
    if "softmax" in reductions:
        return "row_softmax_online"
    if "welford" in reductions:
        return "row_welford"
    return "row_two_sums" if passes > 1 else "row_norm_looped"


def _of_channels(steps: Sequence[str]) -> bool:
    """Return whether channels are reduced, whose elements are apart in every layout: a batch norm in training.

    >>> _of_channels(("welford", "channel", "simple")), _of_channels(("channel", "simple", "sum"))
    (True, False)
    """
    first = next((at for at, step in enumerate(steps) if step in REDUCTIONS), len(steps))
    return "channel" in steps[first:]


def _computed(length: int) -> int:
    """Return the elements of a row that is looped over, lanes that are masked out in the last one included.

    >>> _computed(5120), _computed(96)
    (6144, 128)
    """
    return -(-length // _STEP) * _STEP if length > _STEP else 1 << (length - 1).bit_length()


def scaled(base: Calibration, known: Device, device: Device) -> Calibration:
    """Scale a calibrated device's patterns to another one: bytes by bandwidth, launches as they are.

    Arithmetic is scaled along: devices whose arithmetic falls behind their bandwidth are why the interval is wide.
    """
    ratio = known.achieved_bytes_per_s / device.achieved_bytes_per_s
    cold, warm = (min(getattr(p, name) for p in base.points) for name in ("cold_ns", "warm_ns"))
    points = tuple(
        msgspec.structs.replace(
            point,
            cold_ns=round(cold + (point.cold_ns - cold) * ratio),
            warm_ns=round(warm + (point.warm_ns - warm) * ratio),
        )
        for point in base.points
    )
    return msgspec.structs.replace(
        base,
        gpu=device.title,
        sm_count=device.sm_count,
        l2_bytes=base.l2_bytes if device.l2_bytes is None else device.l2_bytes,
        points=points,
    )
