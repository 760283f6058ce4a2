"""Step savings: what the step gains of each finding, all done at once; and findings reported for that alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tracemine.findings.accounting import Room, idle_of, most_saved
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.identity import Place
from tracemine.findings.record import Finding, activity_rows
from tracemine.findings.steps import Fix
from tracemine.matching.advice import Fact
from tracemine.matching.rule import Rule
from tracemine.perfmodel import COMPILED_CALL_NS, NOTHING, Range
from tracemine.perfmodel.ranges import outwards
from tracemine.perfmodel.unprofiled import timing_spread
from tracemine.rows.table import IntArray

# Findings of little GPU time that are tried for what the step gains, those with most launches first, and how many times
# of activities are kept for that: 160 MB each for starts and ends.
_MOST_TRIED, _MOST_TIMES = 64, 20_000_000
_COMPILED_NOTE = (
    f"a call of a compiled function costs the host {COMPILED_CALL_NS.mid // 1000} µs more than an operator's "
    f"({COMPILED_CALL_NS.low // 1000}–{COMPILED_CALL_NS.high // 1000}, measured on one host)"
)


class Reported(Struct, frozen=True):
    """A finding, its rule, and for each class of its matches the rows and the saving of GPU time."""

    finding: Finding
    rule: Rule
    matrices: list[IntArray]
    savings: list[Range]
    first: int  # the class with the first occurrence
    place: Place
    facts: dict[str, Fact]  # what advice may ask of it
    call: str = "operator"  # what its fix calls: one of CALLS
    call_ns: Range = NOTHING  # that each such call costs the host beyond what one of its kind does, mean

    @property
    def fix(self) -> Fix:
        """The effect of its fix on the timeline."""
        call = "graph" if self.call == "module" else self.call
        return Fix(self.matrices, self.savings, call, self.rule.saving == "pin_memory", call_ns=self.call_ns)


class Claim(Struct, frozen=True):
    """What a finding would have of a step, nanoseconds."""

    saving: Range  # made after those before it
    most: Range  # no end is above its own
    gpu_saving: Range | None  # GPU time that it saves while nothing else runs; None: it closes gaps
    calls_ns: int = 0  # that calls of what is compiled cost the host

    def high_of(self, idle: Range) -> int:
        """Return its high end: what it saves where the device sets the pace, and gaps all that is idle."""
        if self.gpu_saving is None:
            return min(self.saving.high, self.most.high, idle.high)
        return min(max(self.saving.high, self.gpu_saving.high), self.most.high)


def split_by_gain(
    context: ScanContext, reported: Sequence[Reported], little: Sequence[Reported], threshold_ns: int
) -> tuple[list[Reported], list[Reported]]:
    """Divide variants that save little GPU time into those that the step feels, by launches that go, and others.

    Both claim what no other finding has claimed; the felt ones count after all others. What is felt is felt of all
    variants of a finding. The others save too little to be reported.
    """
    on_gpu = [candidate for candidate in reported if candidate.finding.on_gpu]
    tried = _untouched(context, [candidate for candidate in little if candidate.finding.on_gpu])
    tried = _most_launches(tried, min(_MOST_TRIED, _MOST_TIMES // max(len(context.accounts.dur_ns), 1) - len(on_gpu)))
    if tried:
        both = [*on_gpu, *tried]
        gains = context.steps.usual_gains([candidate.fix for candidate in both])
        gained = Counter[str]()
        for candidate, ns in zip(tried, gains[len(on_gpu) :], strict=True):
            gained[candidate.place.mark] += ns
        tried = [candidate for candidate in tried if gained[candidate.place.mark] >= threshold_ns]
    kept = {id(candidate) for candidate in tried}
    claim(context, tried)
    left = [candidate for candidate in little if id(candidate) not in kept]
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
    launches = [-sum(matrix[:, 1:].size for matrix in candidate.matrices) for candidate in little]
    chosen = sorted(range(len(little)), key=launches.__getitem__)[: max(most, 0)]
    return [little[i] for i in sorted(chosen)]


def with_steps(
    context: ScanContext, reported: Sequence[Reported], unfelt: Sequence[Reported], threshold_ns: int
) -> list[Finding]:
    """Return the variants with what the step gains, all done at once: on the GPU first, then gaps that are still there.

    A gap that the fusions leave nothing of is left out. What is `unfelt` on the GPU gains the step nothing.
    """
    on_gpu = [candidate for candidate in reported if candidate.finding.on_gpu and not candidate.finding.refuted]
    idle = [candidate for candidate in (*reported, *unfelt) if not candidate.finding.on_gpu]
    gpu = sum((candidate.finding.gpu_saving_ns for candidate in on_gpu), NOTHING)
    idle_ns = idle_of(context.accounts, context.unprofiled)
    claims = [*_claims_on_gpu(context, on_gpu), *(_claim_of_gaps(context, one) for one in idle)]
    given = share_out(claims, most_saved(context.accounts, context.unprofiled, gpu), idle_ns)
    counted = {candidate.finding.fingerprint for candidate in unfelt}  # below the threshold before
    return [
        *(_unfelt(one.finding) for one in unfelt if one.finding.on_gpu),
        *(replace(candidate.finding, step_saving_ns=NOTHING) for candidate in reported if candidate.finding.refuted),
        *(_gaining(one, step, untimed=context.timeline.untimed) for one, step in zip(on_gpu, given, strict=False)),
        *_still_idle(context, zip(idle, given[len(on_gpu) :], strict=True), counted, threshold_ns),
    ]


def _claims_on_gpu(context: ScanContext, on_gpu: Sequence[Reported]) -> list[Claim]:
    """Return what the step gains of fixes on the GPU; from here on gaps are as long as these leave them."""
    if not on_gpu:
        return []
    gains = context.steps.gains([candidate.fix for candidate in on_gpu])
    context.unprofiled_gaps_ns = context.steps.gaps_ns([context.steps.change(candidate.fix) for candidate in on_gpu])
    return [claim_on_gpu(context, one, gained) for one, gained in zip(on_gpu, gains, strict=True)]


def claim_on_gpu(context: ScanContext, one: Reported, gained: Range) -> Claim:
    """Return what a fix on the GPU would have of a step that it makes shorter by `gained`."""
    # Streams that then overlap more can gain more than is idle or measured: that much is not claimed. What is hidden
    # behind other work is launched as before, so that no idle time goes with it.
    hides = one.rule.saving == "overlap"
    most_ns = one.finding.measured_ns + (0 if hides else context.accounts.gpu_idle_ns)
    alone_ns = int(context.accounts.exclusive_ns[activity_rows([one.finding])].sum())  # besides, another kernel runs
    calls = sum(len(matrix) for matrix in one.matrices) if one.call == "compiled" else 0
    most, saved = Range(most_ns, most_ns, most_ns), one.finding.gpu_saving_ns.at_most(alone_ns)
    calls_ns = calls * COMPILED_CALL_NS.mid + sum(map(len, one.matrices)) * one.call_ns.mid
    if one.call == "iteration":  # how often it is called is not known, nor that any launch goes
        gained, calls_ns = Range(0, 0, gained.high), saved.mid
    return Claim(gained.at_most(most_ns), most, saved, calls_ns)


def _claim_of_gaps(context: ScanContext, one: Reported) -> Claim:
    """Return what closing gaps gains: as long as they are now, and no more than alone, as long as they were."""
    again = [context.estimate(one.rule, matrix) for matrix in one.matrices]
    gained = sum((each.step_saving_ns for each in again if isinstance(each, ClassEstimate)), NOTHING)
    alone, most_ns = one.finding.step_saving_ns, one.finding.measured_ns
    return Claim(gained, Range(alone.low, alone.mid, most_ns), None)


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
        yield replace(one.finding, step_saving_ns=step)


def share_out(claims: Sequence[Claim], left: Range, idle: Range) -> list[Range]:
    """Cut claims, one after another, to what is left; those of gaps also to what is idle.

    What gaps may not claim is GPU time that others save, and that the step gains once it does not wait for the host:
    these have it by what they save of it and their calls do not cost. At its high end each may be all that is there.

    >>> some, nothing = Range(0, 9, 9), Range(0, 0, 0)
    >>> share_out([Claim(Range(1, 5, 6), some, nothing), Claim(some, some, nothing)], Range(2, 8, 12), nothing)
    [Range(low=1, mid=5, high=6), Range(low=0, mid=3, high=9)]
    >>> share_out([Claim(nothing, some, Range(2, 4, 5)), Claim(some, some, None)], Range(0, 8, 9), Range(5, 5, 6))
    [Range(low=0, mid=3, high=5), Range(low=0, mid=5, high=6)]
    """
    mids = _in_turn([one.saving.mid for one in claims], left.mid)
    of_gaps = iter(
        _in_turn(
            [min(mid, one.most.mid) for one, mid in zip(claims, mids, strict=True) if one.gpu_saving is None], idle.mid
        )
    )
    kept = [mid if one.gpu_saving is not None else next(of_gaps) for one, mid in zip(claims, mids, strict=True)]
    rooms = [
        0 if one.gpu_saving is None else max(min(one.gpu_saving.mid, one.most.mid) - one.calls_ns - mid, 0)
        for one, mid in zip(claims, kept, strict=True)
    ]
    more = _in_proportion(sum(mids) - sum(kept), rooms)
    mids = [mid + each for mid, each in zip(kept, more, strict=True)]
    lows = _in_turn([min(one.saving.low, mid) for one, mid in zip(claims, mids, strict=True)], left.low)
    return [
        Range(low, mid, max(mid, min(one.high_of(idle), left.high)))
        for one, low, mid in zip(claims, lows, mids, strict=True)
    ]


def within_step(
    findings: Sequence[Finding], room: Room, hidden: frozenset[str] = frozenset(), *, timed: bool = False
) -> list[Finding]:
    """Cut what findings save a step to what there is of it, as over the trace: their share of it is only estimated.

    hidden: rules of which a fix hides work behind other work, and closes no gap. timed: how long a step takes
    unprofiled is known from timing, here or elsewhere; what closing gaps saves shows in a second such timing.
    """
    gaps_last = sorted(findings, key=lambda one: not one.on_gpu)
    each = [one.per_step for one in gaps_last if one.per_step is not None]
    if len(each) < len(findings):
        return list(findings)
    idle_ns = sum(own.step_saving_ns.mid for one, own in zip(gaps_last, each, strict=True) if not one.on_gpu)
    spread = timing_spread(idle_ns, room.unprofiled.mid) if timed else 0.0
    claims = []
    for finding, own in zip(gaps_last, each, strict=True):
        most_ns, saving = Range(0, own.measured_ns, own.measured_ns), own.step_saving_ns
        if finding.on_gpu:  # as wide as timings are apart already
            more_ns = 0 if finding.rule in hidden else room.idle.high
            claims.append(Claim(saving, most_ns + Range(0, more_ns, more_ns), NOTHING))
        else:
            wide = outwards(saving.low * (1 - spread), saving.mid, saving.high * (1 + spread))
            claims.append(Claim(wide, most_ns, None))
    left = room.most_saved(sum((own.gpu_saving_ns for own in each), NOTHING))
    found = []
    for finding, own, step in zip(gaps_last, each, share_out(claims, left, room.idle), strict=True):
        share = round(step.mid / max(room.unprofiled.mid, 1), 4)
        cut = replace(own, step_saving_ns=step, share_of_unprofiled=share)
        found.append(replace(finding, per_step=cut))
    return found


def _in_turn(wanted: Sequence[int], left: int) -> list[int]:
    found = []
    for each in wanted:
        found.append(min(each, max(left, 0)))
        left -= found[-1]
    return found


def _in_proportion(whole: int, rooms: Sequence[int]) -> list[int]:
    """Divide a whole by how much room there is; what no room is left for goes to none.

    >>> _in_proportion(6, [2, 0, 4]), _in_proportion(3, [2, 0, 4]), _in_proportion(9, [2, 0, 4])
    ([2, 0, 4], [1, 0, 2], [2, 0, 4])
    """
    total = sum(rooms)
    return [min(whole, total) * room // max(total, 1) for room in rooms]


def _unfelt(finding: Finding) -> Finding:
    note = "it saves too little to be reported: what the step gains counts as the gaps' around it"
    return replace(finding, step_saving_ns=NOTHING, assumptions=(*finding.assumptions, note))


def _gaining(one: Reported, gained: Range, *, untimed: bool) -> Finding:
    note = (
        "GPU times are sums, and what the step gains of them is not known"
        if untimed
        else "saving = the step's critical path after the findings above; low end: no launch time comes back"
        if gained.mid
        else "something else sets the pace here, and the step gains nothing before that is fixed"
    )
    notes = (note, _COMPILED_NOTE) if one.call in ("compiled", "iteration") else (note,)
    finding = replace(one.finding, step_saving_ns=gained)
    return replace(finding, assumptions=(*finding.assumptions, *notes))
