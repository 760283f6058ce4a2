"""What each finding saves alone: by how much a step gets shorter where its fix is the only one that is made.

Fixes that are made together share what there is: once the GPU's work is less, gaps matter more, and an idle nanosecond
that goes with a launch is not closed again. So savings alone do not add up to what all findings save together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from tracemine.findings.accounting import idle_of, most_saved, most_saved_by
from tracemine.findings.context import ScanContext
from tracemine.findings.inside import ALL_OF_IT, Inside
from tracemine.findings.ranking import RankScale, of_step, rated
from tracemine.findings.record import NOTHING, Finding
from tracemine.findings.step_savings import Claim, Reported, claim_on_gpu, share_out
from tracemine.perfmodel import Range
from tracemine.tables import table_beside

# Findings that the timeline is replayed for, the most worth first: each replay takes as long as following all streams.
_MOST_REPLAYED = 24


def with_alone(
    context: ScanContext,
    findings: Sequence[Finding],
    variants: Mapping[str, Reported],
    scale: RankScale,
    inside: Mapping[str, Inside],
) -> list[Finding]:
    """Return the findings in the same order, with what each saves alone where a report shows it.

    variants: by fingerprint, with the savings of gaps as long as they are before any fix. inside: by fingerprint, the
    part of a finding that lies in steps, before any fix.
    """
    shown = [finding for finding in findings if finding.reported and not finding.refuted]
    on_gpu = [finding for finding in shown if finding.on_gpu][:_MOST_REPLAYED]
    parts = [list(_by_call(finding, variants)) for finding in on_gpu]
    gains = context.steps.gains_of([[part.fix for part in of_finding] for of_finding in parts])
    claims = {
        finding.fingerprint: [claim_on_gpu(context, *claim) for claim in zip(of_finding, gained, strict=True)]
        for finding, of_finding, gained in zip(on_gpu, parts, gains, strict=True)
    }
    claims |= {finding.fingerprint: [_of_gaps(finding, variants)] for finding in shown if not finding.on_gpu}
    by_mark = {finding.fingerprint: finding for finding in findings}
    alone = {mark: _alone(context, by_mark[mark], claim) for mark, claim in claims.items()}
    return rated((_with(finding, alone.get(finding.fingerprint), scale, inside) for finding in findings), scale)


def _by_call(finding: Finding, variants: Mapping[str, Reported]) -> Iterator[Reported]:
    """Yield a finding's fix, in as many parts as there are kinds of calls that its variants are fixed with."""
    by_call: dict[str, list[Reported]] = {}
    for variant in finding.variants:
        reported = variants[variant.identity.finding]
        by_call.setdefault(reported.call, []).append(reported)
    for parts in by_call.values():
        matrices = [matrix for part in parts for matrix in part.matrices]
        savings = [saving for part in parts for saving in part.savings]
        yield replace(parts[0], finding=finding, matrices=matrices, savings=savings)


def _of_gaps(finding: Finding, variants: Mapping[str, Reported]) -> Claim:
    saving = sum((variants[variant.identity.finding].finding.step_saving_ns for variant in finding.variants), NOTHING)
    return Claim(saving, Range(finding.measured_ns, finding.measured_ns, finding.measured_ns), None)


def _alone(context: ScanContext, finding: Finding, claims: Sequence[Claim]) -> Range:
    """Return what a finding saves over the trace, no more than there is of it."""
    most = most_saved(context.accounts, context.unprofiled, finding.gpu_saving_ns)
    given = share_out(claims, most, idle_of(context.accounts, context.unprofiled))
    saving = corrected(sum(given, NOTHING), MEASURED.get(finding.rule))
    return saving.at_most(most_saved_by(finding, context.accounts))


def _with(finding: Finding, alone: Range | None, scale: RankScale, inside: Mapping[str, Inside]) -> Finding:
    own = finding.per_step
    if alone is None:
        return finding
    if own is not None:
        step = of_step(replace(finding, step_saving_ns=alone), scale, inside.get(finding.fingerprint, ALL_OF_IT))
        own = replace(own, step_saving_alone_ns=_reaching(step, own.step_saving_ns, finding))
    return replace(finding, step_saving_alone_ns=_reaching(alone, finding.step_saving_ns, finding), per_step=own)


def _reaching(alone: Range, together: Range, finding: Finding) -> Range:
    """Return a saving alone that is, of gaps, no less than their part of all: closed they are either way."""
    if finding.on_gpu:
        return alone
    mid = max(alone.mid, together.mid)
    return Range(min(alone.low, mid), mid, max(alone.high, together.high))


class MeasuredBySaid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of so many programs, what was measured by the likely one that was said; least and most without the outermost."""

    programs: int
    least: float
    middle: float = 1.0
    most: float


MEASURED: Final = msgspec.convert(table_beside(__file__, "measured_fixes.toml"), dict[str, MeasuredBySaid])


def corrected(said: Range, measured: MeasuredBySaid | None) -> Range:
    """Return a saving as fixes of its rule turned out elsewhere: its interval holds what it held, and more.

    >>> corrected(Range(0, 100, 120), MeasuredBySaid(programs=9, least=0.5, middle=1.2, most=1.6))
    Range(low=0, mid=120, high=160)
    """
    if measured is None:
        return said
    mid = round(said.mid * measured.middle)
    low, high = min(said.low, round(said.mid * measured.least)), max(said.high, round(said.mid * measured.most))
    return Range(min(low, mid), mid, max(high, mid))
