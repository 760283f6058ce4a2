"""Step savings: what the step gains of each finding, all done at once; and findings reported for that alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tracemine.findings.accounting import most_saved
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import ESTIMATES, ClassEstimate
from tracemine.findings.identity import Placed
from tracemine.findings.record import Finding
from tracemine.findings.steps import Fix
from tracemine.matching.rule import Rule
from tracemine.perfmodel import COMPILED_CALL_NS, NOTHING, Range
from tracemine.rows.table import IntArray

# Findings of little GPU time that are tried for what the step gains, those with most launches first, and how many times
# of activities are kept for that: 160 MB each for starts and ends.
_MOST_TRIED, _MOST_TIMES = 64, 20_000_000
_COMPILED_NOTE = (
    f"a call of a compiled function costs the host {COMPILED_CALL_NS.mid // 1000} µs more than an operator's "
    f"({COMPILED_CALL_NS.low // 1000}–{COMPILED_CALL_NS.high // 1000}, measured on one host)"
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A finding, its rule, and for each class of its matches the rows and the saving of GPU time."""

    finding: Finding
    rule: Rule
    matrices: list[IntArray]
    savings: list[Range]
    first: int  # the class with the first occurrence
    placed: Placed
    call: str = "operator"  # what its fix calls: one of CALLS

    @property
    def fix(self) -> Fix:
        """The effect of its fix on the timeline."""
        return Fix(self.matrices, self.savings, self.call, self.rule.saving == "pin_memory")


def split_by_gain(
    context: ScanContext, reported: Sequence[Reported], little: Sequence[Reported], threshold_ns: int
) -> tuple[list[Reported], list[Reported]]:
    """Divide variants that save little GPU time into those that the step feels, by launches that go, and others.

    Both claim what no other finding has claimed; the felt ones count after all others. What is felt is felt of all
    variants of a finding. The others save too little to be reported.
    """
    on_gpu = [one for one in reported if one.finding.on_gpu]
    tried = _untouched(context, [one for one in little if one.finding.on_gpu])
    tried = _most_launches(tried, min(_MOST_TRIED, _MOST_TIMES // max(len(context.accounts.dur_ns), 1) - len(on_gpu)))
    if tried:
        both = [*on_gpu, *tried]
        gains = context.steps.usual_gains([one.fix for one in both])
        gained = Counter[str]()
        for one, ns in zip(tried, gains[len(on_gpu) :], strict=True):
            gained[one.placed.place.mark] += ns
        tried = [one for one in tried if gained[one.placed.place.mark] >= threshold_ns]
    kept = {id(one) for one in tried}
    claim(context, tried)
    left = [one for one in little if id(one) not in kept]
    for one in left:
        context.drop("below_threshold", one.finding.occurrences)
    left = _untouched(context, left)
    claim(context, left)
    return tried, left


def claim(context: ScanContext, variants: Sequence[Reported]) -> None:
    """Claim the rows of variants, so that no finding after them has them."""
    for one in variants:
        for matrix in one.matrices:
            context.claimed[one.rule.rows][matrix] = True


def _untouched(context: ScanContext, little: Sequence[Reported]) -> list[Reported]:
    """Return the variants of which nothing is claimed, and that have nothing of one before them."""
    taken = {kind: claimed.copy() for kind, claimed in context.claimed.items()}
    found = []
    for one in little:
        claimed = taken[one.rule.rows]
        if not any(claimed[matrix].any() for matrix in one.matrices):
            found.append(one)
            for matrix in one.matrices:
                claimed[matrix] = True
    return found


def _most_launches(little: Sequence[Reported], most: int) -> list[Reported]:
    """Return the variants that save most launches, in the given order."""
    launches = [-sum(matrix[:, 1:].size for matrix in one.matrices) for one in little]
    chosen = sorted(range(len(little)), key=launches.__getitem__)[: max(most, 0)]
    return [little[i] for i in sorted(chosen)]


def with_steps(
    context: ScanContext, reported: Sequence[Reported], unfelt: Sequence[Reported], threshold_ns: int
) -> list[Finding]:
    """Return the variants with what the step gains, all done at once: on the GPU first, then gaps that are still there.

    A gap that the fusions leave nothing of is left out. What is `unfelt` on the GPU gains the step nothing.
    """
    on_gpu = [one for one in reported if one.finding.on_gpu and not one.finding.refuted]
    idle = [one for one in (*reported, *unfelt) if not one.finding.on_gpu]
    gpu = sum((one.finding.gpu_saving_ns for one in on_gpu), NOTHING)
    left = most_saved(context.accounts, context.unprofiled, gpu)
    given = share_out([*_gains_on_gpu(context, on_gpu), *(_gain_of_gaps(context, one) for one in idle)], left)
    counted = {one.finding.fingerprint for one in unfelt}  # below the threshold before
    return [
        *(_unfelt(one.finding) for one in unfelt if one.finding.on_gpu),
        *(msgspec.structs.replace(one.finding, step_saving_ns=NOTHING) for one in reported if one.finding.refuted),
        *(_gaining(one, step) for one, step in zip(on_gpu, given, strict=False)),
        *_still_idle(context, zip(idle, given[len(on_gpu) :], strict=True), counted, threshold_ns),
    ]


def _gains_on_gpu(context: ScanContext, on_gpu: Sequence[Reported]) -> list[Range]:
    """Return what the step gains of fixes on the GPU; from here on gaps are as long as these leave them."""
    if not on_gpu:
        return []
    gains = context.steps.gains([one.fix for one in on_gpu])
    context.unprofiled_gaps_ns = context.steps.gaps_ns([context.steps.change(one.fix) for one in on_gpu])
    # Streams that then overlap more can gain more than is idle or measured: that much is not claimed.
    idle_ns = context.accounts.gpu_idle_ns
    return [gained.at_most(one.finding.measured_ns + idle_ns) for one, gained in zip(on_gpu, gains, strict=True)]


def _gain_of_gaps(context: ScanContext, one: Reported) -> Range:
    """Estimate gaps again, as long as they are now."""
    again = [ESTIMATES[one.rule.saving](context, one.rule, matrix) for matrix in one.matrices]
    return sum((each.step_saving_ns for each in again if isinstance(each, ClassEstimate)), NOTHING)


def _still_idle(
    context: ScanContext, idle: Iterable[tuple[Reported, Range]], counted: set[str], threshold_ns: int
) -> Iterable[Finding]:
    """Yield the gaps that something is left of; `counted` are below the threshold already."""
    for one, step in idle:
        if not step.mid:
            context.drop("nothing_to_win", one.finding.occurrences)
            continue
        if step.mid < threshold_ns and one.finding.fingerprint not in counted:
            context.drop("below_threshold", one.finding.occurrences)
        yield msgspec.structs.replace(one.finding, step_saving_ns=step)


def share_out(savings: Sequence[Range], left: Range) -> list[Range]:
    """Cut savings, one after another, to what is left; the high end leaves those behind their usual.

    >>> share_out([Range(1, 5, 9), Range(0, 5, 9)], Range(2, 8, 12))
    [Range(low=1, mid=5, high=9), Range(low=0, mid=3, high=3)]
    >>> share_out([Range(1, 5, 9), Range(0, 5, 9)], Range(2, 3, 3))
    [Range(low=1, mid=3, high=3), Range(low=0, mid=0, high=0)]
    """
    mids, found = list[int](), list[Range]()
    for saving in savings:
        mids.append(min(saving.mid, max(left.mid - sum(mids), 0)))
    behind, low_left, high_left = sum(mids), left.low, max(left.high, left.mid)
    for saving, mid in zip(savings, mids, strict=True):
        behind -= mid
        high = max(min(saving.high, high_left - behind), mid)
        low = min(saving.low, max(low_left, 0), mid)
        low_left, high_left = low_left - low, high_left - high
        found.append(Range(low, mid, high))
    return found


def _unfelt(finding: Finding) -> Finding:
    note = "it saves too little to be reported: what the step gains counts as the gaps' around it"
    return msgspec.structs.replace(finding, step_saving_ns=NOTHING, assumptions=(*finding.assumptions, note))


def _gaining(one: Reported, gained: Range) -> Finding:
    note = (
        "the step gains what its critical path does, after the findings that claim before: GPU time where the device "
        "sets the pace; where the host does, launches that are not made any more (none of them at the low end)"
        if gained.high
        else "something else sets the pace here, and the step gains nothing"
    )
    notes = (note, _COMPILED_NOTE) if one.call == "compiled" else (note,)
    finding = msgspec.structs.replace(one.finding, step_saving_ns=gained)
    return msgspec.structs.replace(finding, assumptions=(*finding.assumptions, *notes))
