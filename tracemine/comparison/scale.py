"""What times of two recordings may be compared as: the basis, the noise, and each finding's cost a step on it.

A profiler stretches the host and not the kernels. GPU time compares as it was recorded; idle time does so only where
both were recorded the same way, and else as the share of the unprofiled step that it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tracemine.comparison.record import ComparedSide, ComparedTrace, Item, Noise
from tracemine.findings.record import NOTHING, Range, UnprofiledTime

CAPTURED, RECORDED, ESTIMATED = "captured", "recorded", "estimated"
# Where too few steps tell. Of 137 models whose steps were timed alone on an H200's host, three quarters spread by less
# than the first; their GPU work, recorded twice, differed by less than the second in 19 of 20 findings.
_ASSUMED_SPAN, _ASSUMED_GPU = 0.10, 0.03
# Recordings of one program differ by so much from each other even where the steps within each do not.
_LEAST = 0.01
_DEVIATIONS = 1.4826  # of the standard deviation, in what half of normally distributed values differ by
_OF_ALL_WORK = 0.1  # noise of a small finding, in that of the whole GPU work: few kernels vary more than all do


@dataclass(frozen=True, slots=True, kw_only=True)
class CostScale:
    """How one side's times are compared."""

    step_ns: Range  # a step
    gpu_busy_ns: int
    idle: tuple[Fraction, Fraction, Fraction]  # times as recorded → as compared: low, mid, high

    def cost(self, ns: int, *, on_gpu: bool) -> Range:
        """Return a recorded time of a step as one that compares."""
        if on_gpu:
            return Range(ns, ns, ns)
        low, mid, high = (int(ns * share) for share in self.idle)
        return Range(low, mid, high)

    def of(self, item: Item) -> Range:
        """Return what a finding costs a step."""
        return self.cost(item.measured_ns, on_gpu=item.on_gpu)


def basis_of(before: ComparedTrace, after: ComparedTrace) -> str:
    """Return what the times of both compare as."""
    alone = before.unprofiled_ns, after.unprofiled_ns
    if any(one is None for one in alone):
        return RECORDED
    if all(one is not None and one.source == CAPTURED for one in alone):
        return CAPTURED
    return RECORDED if recorded_alike(before, after) else ESTIMATED


def recorded_alike(before: ComparedTrace, after: ComparedTrace) -> bool:
    """Return whether recording cost both the same, as far as they say."""
    one, other = before.recorded, after.recorded
    if before.format != after.format or one is None or other is None:
        return one is other and before.format == after.format
    return (one.shapes, one.stacks, one.traced) == (other.shapes, other.stacks, other.traced)


def scale_of(about: ComparedTrace, basis: str) -> CostScale:
    """Return one side's scale. A step that is not known lasts no time."""
    alone = about.unprofiled_ns
    one = (Fraction(1),) * 3
    if basis == RECORDED or alone is None:
        return CostScale(step_ns=Range(*(about.span_ns,) * 3), gpu_busy_ns=about.gpu_busy_ns, idle=one)
    ends = (alone.mid,) * 3 if basis == CAPTURED else _ordered(alone)
    devices = 1 if about.recorded is None else max(about.recorded.devices, 1)
    recorded_ns = devices * about.span_ns - about.gpu_busy_ns
    if recorded_ns <= 0:  # the device never waits a whole step long: nothing to scale
        return CostScale(step_ns=Range(*ends), gpu_busy_ns=about.gpu_busy_ns, idle=one)
    low, mid, high = (
        min(max(Fraction(devices * ns - about.gpu_busy_ns, recorded_ns), Fraction(0)), Fraction(1)) for ns in ends
    )
    return CostScale(step_ns=Range(*ends), gpu_busy_ns=about.gpu_busy_ns, idle=(low, mid, high))


def _ordered(alone: UnprofiledTime) -> tuple[int, int, int]:
    low, mid, high = sorted((alone.low, alone.mid, alone.high))
    return low, mid, high


def noise_of(before: ComparedTrace, after: ComparedTrace, given: float | None) -> Noise:
    """Return what is given; else the spread of the steps within each trace, the larger one; else what others' do."""
    if given is not None:
        return Noise(span=given, gpu=given, source="given")
    spans = [_spread(one.span_spread_ns, one.span_ns) for one in (before, after)]
    works = [_spread(one.gpu_busy_spread_ns, one.gpu_busy_ns) for one in (before, after)]
    if None in spans or None in works:
        return Noise(span=_ASSUMED_SPAN, gpu=_ASSUMED_GPU, source="assumed")
    span, work = (max(_LEAST, *(one for one in each if one is not None)) for each in (spans, works))
    return Noise(span=round(span, 4), gpu=round(work, 4), source="measured")


def _spread(half_ns: int | None, whole_ns: int) -> float | None:
    return None if half_ns is None or whole_ns <= 0 else min(_DEVIATIONS * half_ns / whole_ns, 1.0)


def noise_ns(noise: Noise, cost_ns: int, scales: tuple[CostScale, CostScale], *, on_gpu: bool) -> int:
    """Return the noise of a cost: idle time varies as the step does, GPU time as its kernels do."""
    if not on_gpu:
        return round(noise.span * max(one.step_ns.mid for one in scales))
    least = _OF_ALL_WORK * noise.gpu * max(one.gpu_busy_ns for one in scales)
    return round(max(noise.gpu * cost_ns, least))


def spent_ns(side: ComparedSide, scale: CostScale, *, on_gpu: bool) -> dict[str, Range]:
    """Return what each operator took, whoever claims it."""
    if side.spent is None:
        return {}
    table = side.spent.gpu_ns if on_gpu else side.spent.idle_ns
    return {name: scale.cost(ns, on_gpu=on_gpu) for name, ns in table.items()}


def total(side: ComparedSide, scale: CostScale, *, on_gpu: bool) -> int:
    """Return what the findings cost together."""
    return sum((scale.of(item) for item in side.items if item.on_gpu == on_gpu), NOTHING).mid
