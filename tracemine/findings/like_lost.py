"""Findings like one whose fused form lost when it was timed on the GPU: what they claim is lowered, and says why.

Like it are findings of the same rule, operators and dtype whose occurrences take about as long, and that have no
verdict of their own. The prediction that was wrong there is theirs as well, so nothing is sure of it: what was its low
end is the middle, and nothing is the low end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from tracemine.findings.record import Finding, Range, Verified
from tracemine.units import time_text

_AS_LONG = 2.0  # times as long, or as short, an occurrence may take
_SAYS = "lowered: a finding like it"


def lost(verified: Verified | None) -> bool:
    """Return whether the fused form was timed and took longer than what it was to replace."""
    if verified is None or verified.eager_ns is None or verified.fused_ns is None:
        return False
    return verified.basis in ("refuted", "measured") and verified.fused_ns > verified.eager_ns


def like_lost(finding: Finding, losing: Iterable[Finding]) -> Finding | None:
    """Return the finding among those that lost which this one is like, if there is one and it was not lowered yet."""
    if (
        finding.verdict is not None
        or not finding.gpu_saving_ns.high
        or any(_SAYS in each for each in finding.assumptions)
    ):
        return None
    return next((one for one in losing if _alike(finding, one)), None)


def losing(findings: Sequence[Finding]) -> list[Finding]:
    """Return those of which the fused form lost."""
    return [finding for finding in findings if lost(finding.verdict)]


def lowered(finding: Finding, like: Finding) -> Finding:
    """Return the finding with a saving that nothing is sure of, because of one like it. The step's stays as it was."""
    verified = like.verdict
    assert verified is not None  # noqa: S101 - that is why it is among those that lost
    saving = lowered_ns(finding.gpu_saving_ns)
    fused = Range(*(finding.measured_ns - end for end in (saving.high, saving.mid, saving.low)))
    took = f"{time_text(verified.fused_ns or 0)} for {time_text(verified.eager_ns or 0)}"
    says = f"{_SAYS} ({like.fingerprint[:4]}) lost when it was timed on the GPU: {took}"
    return replace(finding, gpu_saving_ns=saving, fused_ns=fused, assumptions=(*finding.assumptions, says))


def lowered_ns(saving: Range) -> Range:
    """Return a saving that nothing is sure of.

    >>> lowered_ns(Range(20, 50, 60))
    Range(low=0, mid=20, high=60)
    """
    return Range(0, max(saving.low, 0), saving.high)


def _alike(one: Finding, other: Finding) -> bool:
    """Return whether rule, operators and dtype are the same, and an occurrence takes about as long."""
    if (one.rule, one.dtype, sorted(set(one.ops))) != (other.rule, other.dtype, sorted(set(other.ops))):
        return False
    a, b = (each.measured_ns / max(each.occurrences, 1) for each in (one, other))
    return max(a, b) <= _AS_LONG * min(a, b)
