"""Say in words what bounds a step, and where its time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.devices import UNESTIMATED
from tracemine.findings.summary import BOUND_BY, SUMS
from tracemine.units import bytes_text, count_text, time_text

# Classes of operators that read badly as they are.
_WORK = {
    "gemm": "matrix products",
    "collective": "communication",
    "conv": "convolutions",
    "norm": "normalisation",
    "pointwise": "pointwise kernels",
    "reduction": "reductions",
    "copy": "copies",
    "embedding": "embeddings",
    "quantize": "quantisation",
    "foreach": "foreach kernels",
    "optimizer": "optimizer kernels",
}
_HIDES_IDLE = frozenset({"gpu", "unclear", "communication", "transfer"})  # what a first line can say next to idle time
_LEAST_IDLE = 0.1  # of what was recorded, that is reported
_BUSY = {"gpu": "GPU-bound", "unclear": "GPU or host, cannot tell"}  # of what is said by how busy the GPU is
_KINDS = 4  # of steps, that are shown
_APART = 3  # steps apart, that are shown
_SECOND = 0.1  # of the idle time: a second cause that is named
_DEVICES = 16  # that are shown
_UNEQUAL = 0.2  # of a step: what one device idles more than another, that is reported first
_FEWEST_STEPS = 3  # of which percentiles say more than their mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracemine.findings.record import Bound, DeviceTime, Parts, Scan, StepApart, StepSummary, Summary, Transfers


def headline(scan: Scan) -> str:
    """Say what bounds the unprofiled step, in one line; "" where nothing ran."""
    if scan.summary.bound is None:
        return nothing_text(scan)
    return "; ".join(filter(None, (bound_sentence(scan), unestimated(scan))))


def bound_sentence(scan: Scan) -> str:
    """Say what bounds the step with the ends of the estimate, as recorded too, and how unlike devices are."""
    bound, summary = scan.summary.bound, scan.summary
    if bound is None:
        return ""
    as_recorded = _as_recorded(summary)
    parts = [
        bound_text(bound, summary.parts, as_recorded=as_recorded),
        "" if as_recorded else recorded_text(bound),
        unequal_text(summary.devices),
    ]
    if summary.parts is None:
        parts.append(work_text(bound))
    return "; ".join(filter(None, parts))


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


def bound_text(bound: Bound, parts: Parts | None = None, *, as_recorded: bool = True) -> str:
    """Return who waits for whom, and how sure that is.

    >>> from tracemine.findings.record import Bound, Share
    >>> facts = dict(bare_communication_share=0.0, work="attention", work_share=0.61, unclassified_share=0.0)
    >>> print(bound_text(Bound(by="host", idle_share=0.75, cause="host_bound", cause_share=0.98, **facts)))
    host-bound: the GPU idles 75%
    >>> print(bound_text(Bound(by="unknown", idle_share=0.75, cause=None, cause_share=None, **facts)))
    the GPU idles 75%, cause unknown
    >>> held = "`hipMemcpyWithStream` in `aten::copy_`"
    >>> print(bound_text(Bound(by="unknown", idle_share=0.75, cause=None, cause_share=None, held=held, **facts)))
    the GPU idles 75%, most of it while the host waits in `hipMemcpyWithStream` in `aten::copy_`
    >>> print(bound_text(Bound(by="gpu", idle_share=0.02, cause="host_bound", cause_share=0.98, **facts)))
    GPU-bound: the GPU is busy 98%
    >>> unclear = dict(idle_share=0.75, cause=None, cause_share=None, unprofiled_idle_share=Share(0.02, 0.1, 0.4))
    >>> print(bound_text(Bound(by="unclear", **unclear, **facts), as_recorded=False))
    GPU or host, cannot tell: unprofiled, the GPU is busy 90% (60–98%)
    """
    share = bound.unprofiled_idle_share
    low, mid, high = (bound.idle_share,) * 3 if share is None else (share.low, share.mid, share.high)
    how = "" if as_recorded else "unprofiled, "
    idles = f"{how}the GPU idles {share_text(mid)}{_spread_text(low, high)}"
    if bound.by == SUMS:
        return "GPU time summed (a tree has no timeline)"
    if bound.by in _BUSY:
        return f"{_BUSY[bound.by]}: {how}the GPU is busy {share_text(1 - mid)}{_spread_text(1 - high, 1 - low)}"
    if bound.by == "communication":
        bare = bound.bare_communication_share if parts is None else _share_of(parts, "communication")
        return f"communication-bound: {how}the GPU does nothing else {share_text(bare)} of the time"
    if bound.by == "transfer" and bound.transfers is not None:
        return f"transfer-bound: {how}{_transfers_text(bound.transfers)}"
    if bound.by == "unknown":
        return f"{idles}{_unknown_text(bound)}"
    causes = _causes_text(bound, as_recorded=as_recorded)
    if bound.by == "host":
        return f"host-bound: {idles}{causes if len(_named_causes(bound)) > 1 else ''}"
    return f"{idles}{causes}"


def _named_causes(bound: Bound) -> list[tuple[str, float]]:
    """Return who is waited for most, and second most where that is worth a word; with the shares."""
    if not bound.causes:  # one alone was stored before
        return [] if bound.cause is None else [(BOUND_BY.get(bound.cause, bound.by), bound.cause_share or 0.0)]
    return [(one.name, one.share) for one in bound.causes[:2] if one is bound.causes[0] or one.share > _SECOND]


def _causes_text(bound: Bound, *, as_recorded: bool) -> str:
    """Return what idle time is for, behind what says how much of it there is.

    >>> from tracemine.findings.record import Bound, IdleCause
    >>> facts = dict(bare_communication_share=0.0, work="attention", work_share=0.61, unclassified_share=0.0)
    >>> both = [IdleCause(name=name, cause=name, share=share) for name, share in (("host", 0.6), ("graph launch", 0.3))]
    >>> bound = Bound(by="host", idle_share=0.75, cause="host", cause_share=0.6, causes=tuple(both), **facts)
    >>> _causes_text(bound, as_recorded=True)
    ', 60% of that for the host, 30% for graph launch'
    """
    each = [f"{share_text(share)} for {_for(name)}" for name, share in _named_causes(bound)]
    if bound.causes_recorded and not as_recorded:
        return f"; of the idle time as recorded {' and '.join(each)}"
    return f", {', '.join([each[0].replace(' for ', ' of that for ', 1), *each[1:]])}" if each else ""


def _unknown_text(bound: Bound) -> str:
    """Return in which call the host waits through the idle time, or that the cause is unknown."""
    return ", cause unknown" if bound.held is None else f", most of it while the host waits in {bound.held}"


def _transfers_text(transfers: Transfers) -> str:
    """Return how long nothing but transfers ran, and what they moved.

    >>> from tracemine.findings.record import Transfers
    >>> _transfers_text(Transfers(alone_share=0.97, bytes=50_950_000_000, bytes_per_s=27_700_000_000, memory="pinned"))
    'the GPU does nothing but copy to and from the host 97% of the time: 51.0 GB at 27.7 GB/s, pinned memory'
    """
    memory = "" if transfers.memory is None else f", {transfers.memory} memory"
    moved = f"{bytes_text(transfers.bytes)} at {bytes_text(transfers.bytes_per_s)}/s{memory}"
    return (
        f"the GPU does nothing but copy to and from the host {share_text(transfers.alone_share)} of the time: {moved}"
    )


def recorded_text(bound: Bound) -> str:
    """Return how long the GPU idled while it was recorded, where the estimate without the profiler hides that.

    >>> from tracemine.findings.record import Bound, Share
    >>> facts = dict(by="gpu", bare_communication_share=0.0, work="attention", work_share=0.61, unclassified_share=0.0)
    >>> recorded_text(Bound(idle_share=0.25, cause="data_loading", cause_share=1.0, **facts))
    'as recorded it idles 25%, 100% of that for data loading'
    >>> recorded_text(Bound(idle_share=0.08, cause="data_loading", cause_share=1.0, **facts))
    ''
    """
    if bound.by not in _HIDES_IDLE or bound.idle_share <= _LEAST_IDLE:
        return ""
    why = _causes_text(bound, as_recorded=True) or _unknown_text(bound)
    return f"as recorded it idles {share_text(bound.idle_share)}{why}"


def _for(name: str) -> str:
    return f"the {name}" if name == "host" else name


def work_text(bound: Bound) -> str:
    """Return what the GPU does most when it works.

    >>> from tracemine.findings.record import Bound
    >>> facts = dict(idle_share=0.2, bare_communication_share=0.0, cause=None, cause_share=None, unclassified_share=0.0)
    >>> work_text(Bound(by="gpu", work="attention", work_share=0.61, **facts))
    'of its work 61% is attention'
    """
    whose = "its other work" if bound.by == "communication" else "its work"
    what = "not classified" if bound.work is None else _WORK.get(bound.work, bound.work)
    return f"of {whose} {share_text(bound.work_share)} is {what}"


def _share_of(parts: Parts, name: str) -> float:
    return sum(part.ns for part in parts.parts if part.name == name) / max(parts.ns, 1)


def _as_recorded(summary: Summary) -> bool:
    """Return whether a step counts as it was recorded: what recording costs is not known, or it costs nothing."""
    step = summary.per_step
    alone = summary.unprofiled_ns if step is None else step.unprofiled_ns
    recorded_ns = summary.span_ns if step is None else max(step.span_ns, step.gpu_busy_ns)
    return alone is None or (alone.source != "captured" and alone.low == alone.mid >= recorded_ns)


def _spread_text(low: float, high: float) -> str:
    """Return the ends of a share, in brackets; "" where they read the same.

    >>> _spread_text(0.821, 0.894), _spread_text(0.821, 0.822)
    (' (82–89%)', '')
    """
    first, last = (f"{100 * each:.0f}" for each in (low, high))
    return "" if first == last else f" ({first}–{last}%)"


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
