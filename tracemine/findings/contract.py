"""What every report must keep: no share above its whole, no saving above what there is, no interval out of order.

A scan that breaks it is shown all the same, with a warning: whoever reads it can judge. `raises` makes it an error, as
the tests do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec.structs import replace

from tracemine.findings.accounting import room_of_step
from tracemine.findings.record import NOTHING, Finding, PerStep, Range, Scan, Variant

_RAISES: ContextVar[bool] = ContextVar("raises", default=False)


class ContractError(RuntimeError):
    """A scan whose figures cannot be."""


@contextmanager
def raises() -> Iterator[None]:
    """Make figures that cannot be an error, for as long as this lasts."""
    before = _RAISES.set(True)
    try:
        yield
    finally:
        _RAISES.reset(before)


def kept(scan: Scan) -> Scan:
    """Return a scan that keeps the contract; one that does not with a warning. Raise ContractError under `raises`."""
    broken = breaches(scan)
    if not broken:
        return scan
    if _RAISES.get():
        raise ContractError("; ".join(broken))
    text = f"Figures of this report cannot be, which is a fault of tracemine's: {broken[0]}."
    return replace(scan, warnings=(*scan.warnings, text))


def breaches(scan: Scan) -> list[str]:
    """Return what a scan breaks, in words."""
    return [text for text, holds in _RULES if not holds(scan)]


# --- whole and parts -------------------------------------------------------------------------------------------------


def _shares(scan: Scan) -> bool:
    bound, parts = scan.summary.bound, scan.summary.parts
    shares = [finding.per_step.share_of_unprofiled for finding in scan.findings if finding.per_step is not None]
    if bound is not None:
        shares += [bound.idle_share, bound.cause_share or 0.0, bound.bare_communication_share]
        shares += [bound.work_share, bound.unclassified_share]
        idle = bound.unprofiled_idle_share
        shares += [] if idle is None else [idle.low, idle.mid, idle.high]
    shares += [] if parts is None else [parts.least_known_share]
    return all(0.0 <= share <= 1.0 for share in shares)


def _parts_add_up(scan: Scan) -> bool:
    parts = scan.summary.parts
    return parts is None or (
        all(part.ns >= 0 for part in parts.parts) and sum(part.ns for part in parts.parts) == parts.ns
    )


def _variants_add_up(scan: Scan) -> bool:
    return all(
        not finding.variants or sum(variant.measured_ns for variant in finding.variants) == finding.measured_ns
        for finding in scan.findings
    )


def _cost_is_there(scan: Scan) -> bool:
    summary = scan.summary
    on_gpu, gaps = (sum(f.measured_ns for f in scan.findings if f.on_gpu is is_on) for is_on in (True, False))
    return on_gpu <= summary.gpu_time_ns and gaps <= summary.gpu_idle_ns


def _step_within_trace(scan: Scan) -> bool:
    return all(f.per_step is None or f.per_step.measured_ns <= f.measured_ns for f in scan.findings)


# --- savings ---------------------------------------------------------------------------------------------------------


def _figures(scan: Scan) -> Iterator[tuple[Finding, Finding | Variant | PerStep]]:
    for finding in scan.findings:
        yield finding, finding
        yield from ((finding, variant) for variant in finding.variants)
        if finding.per_step is not None:
            yield finding, finding.per_step


def _in_order(scan: Scan) -> bool:
    summary = scan.summary
    ranges = [summary.gpu_saving_ns, summary.step_saving_ns]
    ranges += [] if summary.per_step is None else [summary.per_step.step_saving_ns or NOTHING]
    for _, one in _figures(scan):
        ranges += [one.gpu_saving_ns, one.step_saving_ns]
        ranges += [] if isinstance(one, PerStep) or one.fused_ns is None else [one.fused_ns]
    return all(0 <= each.low <= each.mid <= each.high for each in ranges)


def _no_more_than_it_cost(scan: Scan) -> bool:
    return all(
        one.gpu_saving_ns.high <= one.measured_ns and (whole.on_gpu or one.step_saving_ns.high <= one.measured_ns)
        for whole, one in _figures(scan)
    )


def _each_step(findings: Iterable[Finding]) -> Sequence[PerStep]:
    return [finding.per_step for finding in findings if finding.per_step is not None]


def _leaves_the_work(scan: Scan) -> bool:
    room, each = room_of_step(scan.summary), _each_step(scan.findings)
    if room is None:
        return scan.summary.step_saving_ns.high <= scan.summary.span_ns
    most = room.most_saved(_sum(one.gpu_saving_ns for one in each))
    return sum(one.step_saving_ns.mid for one in each) <= most.mid <= room.unprofiled.mid


def _gaps_are_idle(scan: Scan) -> bool:
    room = room_of_step(scan.summary)
    gaps = _each_step(finding for finding in scan.findings if not finding.on_gpu)
    return room is None or sum(gap.step_saving_ns.mid for gap in gaps) <= room.idle.mid


def _alone(scan: Scan) -> Iterator[tuple[Finding, Finding | PerStep, Range]]:
    """Yield the findings of which it is known what each saves alone, over the trace and a step."""
    for finding, part in _figures(scan):
        if not isinstance(part, Variant) and part.step_saving_alone_ns is not None:
            yield finding, part, part.step_saving_alone_ns


def _alone_within(scan: Scan) -> bool:
    room = room_of_step(scan.summary)
    for finding, part, alone in _alone(scan):
        gaps = finding.on_gpu or part.step_saving_ns.mid <= alone.mid <= alone.high <= part.measured_ns
        if not (gaps and 0 <= alone.low <= alone.mid <= alone.high):
            return False
        if room is not None and isinstance(part, PerStep):
            most = room.most_saved(part.gpu_saving_ns) if finding.on_gpu else room.idle
            if alone.mid > most.mid:
                return False
    return True


def _no_less_together(scan: Scan) -> bool:
    for parts in (scan.findings, _each_step(scan.findings)):
        best = max(((part.step_saving_alone_ns or NOTHING).mid for part in parts), default=0)
        if best > sum(part.step_saving_ns.mid for part in parts):
            return False
    return True


def _together(scan: Scan) -> bool:
    step = scan.summary.per_step
    if step is None or step.step_saving_ns is None:
        return True
    return step.step_saving_ns.mid == sum(one.step_saving_ns.mid for one in _each_step(scan.findings))


def _sum(ranges: Iterable[Range]) -> Range:
    return sum(ranges, NOTHING)


_RULES: tuple[tuple[str, Callable[[Scan], bool]], ...] = (
    ("a share of a whole is not between 0 and 100%", _shares),
    ("the parts of a step do not add up to it", _parts_add_up),
    ("a finding's variants do not add up to it", _variants_add_up),
    ("findings cost more than there is", _cost_is_there),
    ("a finding costs a step more than all of them", _step_within_trace),
    ("an interval is out of order", _in_order),
    ("a finding saves more than it cost", _no_more_than_it_cost),
    ("savings do not leave the GPU's work that is left", _leaves_the_work),
    ("gaps save more than a step is idle", _gaps_are_idle),
    ("findings do not add up to what all save together", _together),
    ("a finding alone saves more than there is, or less than of gaps", _alone_within),
    ("all findings save less than one of them alone", _no_less_together),
)
