"""Verdicts applied to findings: a measured saving replaces the predicted one, or the claim is taken away.

A verdict is of one occurrence. What it says of the time that one kernel takes off is carried over as a share: to the
time that the trace recorded for every occurrence like it, in operators, shapes, strides and traffic. Occurrences that
differ in strides or traffic keep what is predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tracemine.findings.accounting import joined
from tracemine.findings.grouping import variants_of, with_variants
from tracemine.findings.like_lost import like_lost, losing, lowered
from tracemine.findings.parts import fixed
from tracemine.findings.payback import payback
from tracemine.findings.ranking import ranked_again
from tracemine.findings.record import CALL, NOTHING, PINNED, Finding, Parts, Range, Scan, Verified
from tracemine.units import count_text, percent_text, time_text

Judge = Callable[[Finding], Verified | None]

# What can become of a verdict that was read: keys of `Scan.evidence`, which add up to all of them.
ACCOUNTS = {
    "measured": "its measured saving takes the predicted one's place",
    "refuted": "it takes away what the finding claims",
    "predicted": "it leaves the prediction as it is: nothing was timed, or not what the trace ran",
    "repeated": "another one on the same finding counts",
    "other_gpu": "it is of another GPU, or of one that is not named",
    "no_finding": "the trace has no such finding, or not one that is reported",
}


def judged_ns(verified: Verified, measured_ns: int, predicted: Range) -> Range:
    """Return the GPU time saved by occurrences that a verdict speaks for: they took measured_ns.

    >>> from tracemine.findings.record import Share
    >>> one = Verified(basis="measured", level="L4", says="", device="G", state="cold", eager_ns=20, fused_ns=5,
    ...                compiled_ns=None, saved_share=Share(0.7, 0.75, 0.8), predicted_ns=NOTHING, occurrences=1,
    ...                assumptions=(), not_tested=(), file="v.json")
    >>> judged_ns(one, 1_000, Range(100, 200, 300))
    Range(low=700, mid=750, high=800)
    """
    if verified.basis == "refuted":
        return NOTHING
    share = verified.saved_share
    return predicted if verified.basis != "measured" or share is None else share.of(measured_ns)


def judged(finding: Finding, verified: Verified) -> Finding:
    """Return the finding with the verdict, and with what GPU time it saves now. What the step gains stays as it was."""
    alike, measured_ns = finding.alike, finding.measured_ns
    if alike is None or verified.basis == "predicted":
        return replace(finding, verdict=replace(verified, basis="predicted"))
    saving = NOTHING
    if verified.basis == "measured":
        # The others: what was predicted of all, without what was predicted of those.
        pairs = zip(_ends(finding.gpu_saving_ns), _ends(alike.gpu_saving_ns), strict=True)
        rest = Range(*(max(whole - part, 0) for whole, part in pairs))
        saving = (judged_ns(verified, alike.measured_ns, alike.gpu_saving_ns) + rest).at_most(measured_ns)
    return replace(
        finding,
        gpu_saving_ns=saving,
        fused_ns=_left(measured_ns, saving),
        assumptions=(*finding.assumptions, _carried_over(finding, verified)),
        verdict=verified,
    )


def unjudged(finding: Finding) -> Finding:
    """Return the finding as it was predicted, so that it can be verified again. What the step gains stays as it is."""
    if finding.verdict is None:
        return finding
    saving, measured_ns = finding.verdict.predicted_ns, finding.measured_ns
    return replace(finding, gpu_saving_ns=saving, fused_ns=_left(measured_ns, saving), verdict=None)


def with_verdicts(scan: Scan, judge: Judge) -> Scan:
    """Return a stored scan with verdicts, without its trace: what the step gains is no more than was predicted.

    Where less GPU time is saved than was predicted, the step gains less in proportion; where more, it gains what it
    did. What gap findings gain stays, also where a fusion that was to close part of them is refuted.
    """
    each = [[_with(one, judge) for one in variants_of(finding)] for finding in scan.findings]
    lost = losing([variant for variants in each for variant in variants])
    each = [[_lowered(variant, lost) for variant in variants] for variants in each]
    findings = ranked_again(scan, [with_variants(*one) for one in zip(scan.findings, each, strict=True)])
    summary = joined(scan.summary, findings)
    if summary.gpu_saving_ns != scan.summary.gpu_saving_ns:
        peak = None  # it takes the trace
        summary = replace(summary, parts=_parts_left(scan, findings), peak_memory=peak, payback=payback(findings))
    return replace(scan, findings=tuple(findings), summary=summary)


def _parts_left(scan: Scan, findings: Sequence[Finding]) -> Parts | None:
    """Return the rest of the step with these findings fixed; the least GPU time is not known without the trace."""
    parts, step = scan.summary.parts, scan.summary.per_step
    alone = scan.summary.unprofiled_ns if step is None else step.unprofiled_ns
    if parts is None or alone is None:
        return parts
    return fixed(
        replace(parts, least_gpu_time_ns=None),
        alone.mid,
        findings,
        devices=1 if scan.recorded is None else scan.recorded.devices,
    )


def _with(before: Finding, judge: Judge) -> Finding:
    """Return a variant with the verdict on it, if there is one and none was before."""
    verified = judge(before) if before.verdict is None else None
    after = before if verified is None else judged(before, verified)
    return _with_step(before, after)


def _lowered(before: Finding, lost: Sequence[Finding]) -> Finding:
    """Return a variant with less where one like it lost."""
    like = like_lost(before, lost)
    return before if like is None else _with_step(before, lowered(before, like))


def _with_step(before: Finding, after: Finding) -> Finding:
    """Return what the finding became, with what the step gains in proportion."""
    if after.gpu_saving_ns == before.gpu_saving_ns:
        return after
    ends = before.gpu_saving_ns.mid, after.gpu_saving_ns.mid
    return replace(after, step_saving_ns=_in_proportion(before.step_saving_ns, *ends))


def account(counts: dict[str, int]) -> dict[str, int]:
    """Return what became of verdicts, in the order of ACCOUNTS, without what none came to."""
    return {name: counts[name] for name in ACCOUNTS if counts.get(name)}


def _in_proportion(step: Range, before_ns: int, after_ns: int) -> Range:
    if after_ns >= before_ns:
        return step
    return Range(*(ns * after_ns // before_ns for ns in _ends(step)))


def _left(measured_ns: int, saving: Range) -> Range:
    return Range(measured_ns - saving.high, measured_ns - saving.mid, measured_ns - saving.low)


def _ends(of: Range) -> tuple[int, int, int]:
    return of.low, of.mid, of.high


def _carried_over(finding: Finding, verified: Verified) -> str:
    """Return how a verdict on one occurrence became a saving of all."""
    if verified.basis == "refuted":
        return "a verdict on the first occurrence takes the claim away for all"
    alike, share = finding.alike, verified.saved_share
    assert alike is not None  # noqa: S101 - what was measured is of the GPU
    assert share is not None  # noqa: S101 - what makes a verdict a measured one
    others = finding.occurrences - alike.occurrences
    rest = f"; {count_text(others, 'occurrence')} with other strides or traffic stay predicted" if others else ""
    times = "the first occurrence was" if alike.occurrences == 1 else f"one of {alike.occurrences:,} occurrences was"
    by = verified.by if verified.by in (PINNED, CALL) else "one kernel"
    eager, recorded = verified.eager_ns or 0, alike.measured_ns // max(alike.occurrences, 1)
    return (
        f"{times} replayed alone with a {verified.state or 'warm'} cache, and the share that {by} takes off, "
        f"{percent_text(share.mid, 1)}, is taken off what the trace recorded: {time_text(eager)} there, "
        f"{time_text(recorded)} in the trace{rest}"
    )
