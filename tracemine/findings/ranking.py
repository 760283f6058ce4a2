"""Ranking: savings a step, as shares of the unprofiled step; order; severity; what is not shown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from msgspec.structs import replace

from tracemine.findings.members import activity_rows
from tracemine.findings.record import Finding, PerStep, Range, Scan
from tracemine.rows.table import BoolArray, IntArray

# A finding whose larger saving is at least this share of what is not recorded any longer is of this severity.
SEVERITIES = ((0.05, "high"), (0.01, "medium"), (0.0, "low"))
SHOWN_SHARE = 0.01  # of the unprofiled step, or of GPU time: below both it is only counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Totals that savings are shares of, nanoseconds."""

    steps: int  # 0: none are known
    unprofiled_ns: int  # an unprofiled step; where no steps are known, the span
    gpu_time_ns: int
    least_ns: int = 0  # saved over the trace, below which nothing is shown
    least_share: float = SHOWN_SHARE  # of the step or of GPU time; below both nothing is shown

    @property
    def whole_ns(self) -> int:
        """All steps unprofiled, or the span."""
        return max(self.unprofiled_ns * max(self.steps, 1), 1)


def ranked(findings: Iterable[Finding], scale: Scale, inside: dict[str, Fraction]) -> list[Finding]:
    """Rank findings by what a step gains, then by GPU time; set severity, savings a step, and whether they are shown.

    inside: by fingerprint, the share of a finding that lies in steps.
    """
    found = [_scaled(finding, scale, inside.get(finding.fingerprint, Fraction(1))) for finding in findings]
    return sorted(found, key=order)


def order(finding: Finding) -> tuple[bool, int, int, str]:
    """Order by worth, most first; what is not shown comes last."""
    return not finding.reported, -finding.step_saving_ns.mid, -finding.gpu_saving_ns.mid, finding.fingerprint


def ranked_again(scan: Scan, findings: Iterable[Finding]) -> list[Finding]:
    """Rank the findings of a stored scan, with what verdicts made of them: as `ranked`, as far as the scan says."""
    step = scan.summary.per_step
    whole = scan.summary.unprofiled_ns if step is None else step.unprofiled_ns
    if whole is None:  # of a version that did not say
        lowered = (replace(finding, severity="low") if finding.refuted else finding for finding in findings)
        return sorted(lowered, key=order)
    steps = 0 if step is None else scan.trace.steps
    scale = Scale(steps=steps, unprofiled_ns=whole.mid, gpu_time_ns=scan.summary.gpu_time_ns)
    before = {finding.fingerprint: finding for finding in scan.findings}
    found = []
    for finding in findings:
        stored = before[finding.fingerprint]
        if finding != stored:
            finding = _scaled(finding, scale, _inside(stored, steps))
        found.append(replace(finding, reported=_judged(finding) or stored.reported))
    return sorted(found, key=order)


def _inside(finding: Finding, steps: int) -> Fraction:
    """Return the share of a stored finding that lies in steps, by what it saves over the trace and a step."""
    if finding.per_step is None:
        return Fraction(1)
    pairs = (
        (finding.per_step.gpu_saving_ns.high, finding.gpu_saving_ns.high),
        (finding.per_step.step_saving_ns.high, finding.step_saving_ns.high),
    )
    each, whole = max(pairs, key=lambda pair: pair[1])
    return min(Fraction(max(each, 0) * max(steps, 1), whole), Fraction(1)) if whole > 0 else Fraction(1)


def inside_steps(finding: Finding, in_step: BoolArray, dur_ns: IntArray) -> Fraction:
    """Return how much of a finding lies in steps: of GPU time, or of gaps by the number of activities that waited."""
    rows = activity_rows([finding])
    weights = dur_ns[rows] if finding.on_gpu else in_step[rows] * 0 + 1
    whole = int(weights.sum())
    return Fraction(int(weights[in_step[rows]].sum()), whole) if whole else Fraction(0)


def _scaled(finding: Finding, scale: Scale, inside: Fraction) -> Finding:
    step, gpu = finding.step_saving_ns, finding.gpu_saving_ns
    share = max(step.mid, gpu.mid) / scale.whole_ns
    per_step = None
    if scale.steps:
        gains = _per_step(step, inside, scale.steps)
        per_step = PerStep(
            measured_ns=int(finding.measured_ns * inside / scale.steps),
            gpu_saving_ns=_per_step(gpu, inside, scale.steps),
            step_saving_ns=gains,
            share_of_unprofiled=round(gains.mid / max(scale.unprofiled_ns, 1), 4),
        )
        share = max(gains.mid, per_step.gpu_saving_ns.mid) / max(scale.unprofiled_ns, 1)
    return replace(
        finding,
        severity="low" if finding.refuted else next(name for least, name in SEVERITIES if share >= least),
        per_step=per_step,
        reported=_shown(finding, scale),
    )


def _shown(finding: Finding, scale: Scale) -> bool:
    if _judged(finding):
        return True
    step, gpu = finding.step_saving_ns.mid, finding.gpu_saving_ns.mid
    least = scale.least_share
    worth = step >= least * scale.whole_ns or gpu >= least * max(scale.gpu_time_ns, 1)
    return worth and max(step, gpu) >= scale.least_ns


def _judged(finding: Finding) -> bool:
    """Return whether it has a verdict: then it is shown, whatever it saves."""
    return finding.verdict is not None or any(variant.verdict is not None for variant in finding.variants)


def _per_step(saving: Range, inside: Fraction, steps: int) -> Range:
    """Return the mean over steps of the part that lies in them, integer nanoseconds."""
    share = inside / steps
    return Range(*(int(ns * share) for ns in (saving.low, saving.mid, saving.high)))
