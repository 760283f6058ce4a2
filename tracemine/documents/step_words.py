"""Say in words what a step takes, and what of a recording tells nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.devices import UNESTIMATED
from tracemine.findings.summary import SUMS
from tracemine.units import count_text, range_text, time_text

_KINDS = 4  # of steps, that are shown
_APART = 3  # steps apart, that are shown
_DEVICES = 16  # that are shown
_UNEQUAL = 0.2  # of a step: what one device idles more than another, that is reported first
_FEWEST_STEPS = 3  # of which percentiles say more than their mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracemine.findings.record import DeviceTime, Scan, StepApart, StepSummary, Summary


def nothing_text(scan: Scan) -> str:
    """Say that next to nothing ran on the GPU; "" where more did, and where nothing did: that is said elsewhere."""
    stored_before = scan.recorded is None  # there were bounds
    if scan.summary.bound is not None or stored_before or not scan.summary.gpu_busy_ns:
        return ""
    ran = count_text(scan.trace.activities, "GPU activity")
    return f"nothing to judge: {ran}, {time_text(scan.summary.gpu_busy_ns)} in all that was recorded"


def unestimated(scan: Scan) -> str:
    """Say that savings of GPU time are not estimated, and what to do; "" where they are."""
    return next((warning for warning in scan.warnings if UNESTIMATED in warning), "")


def is_sums(summary: Summary) -> bool:
    """Return whether a recording holds sums, and no times."""
    return summary.bound is not None and summary.bound.by == SUMS


def share_text(share: float) -> str:
    """Return a share without decimals, that says neither all nor nothing where it is neither.

    >>> share_text(0.614), share_text(0.9996), share_text(0.001), share_text(1)
    ('61%', 'over 99%', 'below 1%', '100%')
    """
    if 0.995 <= share < 1:
        return "over 99%"
    return "below 1%" if 0 < share < 0.005 else f"{100 * share:.0f}%"


def step_texts(steps: StepSummary) -> Iterator[str]:
    """Yield what a step takes, where steps were not marked what tells them apart, and the kinds of steps, a line each.

    >>> from tracemine.findings.record import StepSummary
    >>> print(*step_texts(StepSummary(span_ns=7_100_000, gpu_busy_ns=1_150_000, count=3, span_p50_ns=7_000_000,
    ...     span_p99_ns=7_400_000, gpu_busy_p50_ns=1_150_000, gpu_busy_p99_ns=1_160_000, source="annotation",
    ...     evidence="3 × `Optimizer.step#SGD.step` (torch.optim)", confidence=0.9)), sep="\\n")
    7.10 ms on the host (p50 7.00 ms, p99 7.40 ms), 1.15 ms of GPU work (p50 1.15 ms, p99 1.16 ms)
    3 steps inferred from annotation: 3 × `Optimizer.step#SGD.step` (torch.optim); confidence 0.90
    """
    span = _percentiles(steps.span_p50_ns, steps.span_p99_ns, steps.count)
    busy = _percentiles(steps.gpu_busy_p50_ns, steps.gpu_busy_p99_ns, steps.count)
    # A step that is nothing but its GPU work is an engine's run, of which the host's time is not recorded.
    host = "" if steps.span_ns == steps.gpu_busy_ns else f"{time_text(steps.span_ns)} on the host{span}, "
    yield f"{host}{time_text(steps.gpu_busy_ns)} of GPU work{busy}"
    if steps.source != "marked":
        inferred = f"{count_text(steps.count, 'step')} inferred from {steps.source}: {steps.evidence}"
        yield f"{inferred}; confidence {steps.confidence:.2f}"
    if steps.apart:
        yield apart_text(steps.apart)
    if len(steps.kinds) > 1:
        for kind in steps.kinds[:_KINDS]:
            span = _percentiles(kind.span_p50_ns, kind.span_p99_ns, _FEWEST_STEPS)
            busy = _percentiles(kind.gpu_busy_p50_ns, kind.gpu_busy_p99_ns, _FEWEST_STEPS)
            yield f"{kind.count:,} × {kind.name}: host{span}, GPU{busy}"


def unequal_text(devices: Sequence[DeviceTime]) -> str:
    """Return which devices idle least and most, where that differs much; "" where it does not.

    >>> from tracemine.findings.record import DeviceTime
    >>> of = [DeviceTime(ordinal=at, busy_ns=1, idle_share=idle) for at, idle in enumerate((0.33, 0.2, 0.83))]
    >>> unequal_text(of), unequal_text(of[:2])
    ('the GPUs are not equally busy: as recorded device 1 idles 20%, device 2 83%', '')
    """
    if not devices:
        return ""
    least, most = min(devices, key=lambda one: one.idle_share), max(devices, key=lambda one: one.idle_share)
    if most.idle_share - least.idle_share <= _UNEQUAL:
        return ""
    idle = f"device {least.ordinal} idles {share_text(least.idle_share)}"
    return f"the GPUs are not equally busy: as recorded {idle}, device {most.ordinal} {share_text(most.idle_share)}"


def device_texts(summary: Summary) -> Iterator[str]:
    """Yield of each of several devices how long it is at work, a line each."""
    each = "in all" if summary.per_step is None else "a step"
    for one in summary.devices[:_DEVICES]:
        name = "not named" if one.ordinal < 0 else one.ordinal
        idle = f"idle {share_text(one.idle_share)} as recorded"
        yield f"device {name}: {time_text(one.busy_ns)} of GPU work {each}, {idle}"
    if len(summary.devices) > _DEVICES:
        yield f"and {count_text(len(summary.devices) - _DEVICES, 'more device')}"


def apart_text(apart: Sequence[StepApart]) -> str:
    """Return which steps are in no figure, and how long they took.

    >>> from tracemine.findings.record import StepApart
    >>> apart_text([StepApart(number=5, why="last", span_ns=174_000_000, gpu_busy_ns=80_000_000)])
    'apart, in no figure: 1 step, number 5 (last) of 174 ms'
    """
    each = [f"number {one.number} ({one.why}) of {time_text(max(one.span_ns, one.gpu_busy_ns))}" for one in apart]
    more = f" and {len(each) - _APART:,} more" if len(each) > _APART else ""
    return f"apart, in no figure: {count_text(len(apart), 'step')}, {', '.join(each[:_APART])}{more}"


def _percentiles(p50_ns: int | None, p99_ns: int | None, count: int) -> str:
    if p50_ns is None or p99_ns is None or count < _FEWEST_STEPS:
        return ""
    return f" (p50 {time_text(p50_ns)}, p99 {time_text(p99_ns)})"


def payback_text(scan: Scan) -> str:
    """Return after how many steps compiling has paid for itself; "" where it never does, or no finding is shown."""
    of = scan.summary.payback
    if of is None or not scan.reported:  # what is too small to show is no reason to compile
        return ""
    takes = range_text(of.compile_low_ns, of.compile_high_ns)
    low, high = (f"{float(f'{steps:.2g}'):,.0f}" for steps in (of.low_steps, of.high_steps))
    return f"takes {takes} once ({of.source}): regained after {low}–{high} steps"
