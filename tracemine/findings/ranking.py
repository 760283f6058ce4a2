"""Ranking: savings a step, as shares of the unprofiled step; order; severity; what is not shown.

All findings together save no less than the best of them alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from tracemine.findings.accounting import Room
from tracemine.findings.inside import ALL_OF_IT, Inside
from tracemine.findings.record import Finding, PerStep, Range, Scan
from tracemine.findings.step_savings import within_step

# A finding whose larger saving is at least this share of what is not recorded any longer is of this severity.
SEVERITIES = ((0.05, "high"), (0.01, "medium"), (0.0, "low"))
HEAVY_SHARE = 0.2  # of GPU time: what takes so long, and may all be saved, is shown however little is likely
SHOWN_SHARE = 0.01  # of the unprofiled step, or of GPU time: below both it is only counted


class RankScale(Struct, frozen=True, kw_only=True):
    """Totals that savings are shares of, nanoseconds."""

    steps: int  # 0: none are known
    unprofiled_ns: int  # an unprofiled step; where no steps are known, the span
    gpu_time_ns: int
    room: Room | None = None  # of a step; None: not known
    least_ns: int = 0  # saved over the trace, below which nothing is shown
    least_share: float = SHOWN_SHARE  # of the step or of GPU time; below both nothing is shown
    hidden: frozenset[str] = frozenset()  # rules of which a fix hides work behind other work, and closes no gap
    timed: bool = False  # how long a step takes unprofiled is known from timing

    @property
    def whole_ns(self) -> int:
        """All steps unprofiled, or the span."""
        return max(self.unprofiled_ns * max(self.steps, 1), 1)


def ranked(findings: Iterable[Finding], scale: RankScale, inside: dict[str, Inside]) -> list[Finding]:
    """Rank findings by what a step gains of each; set severity, savings a step, and whether they are shown.

    inside: by fingerprint, the part of a finding that lies in steps. All together they leave a step no shorter than the
    GPU's work in it.
    """
    found = [_scaled(finding, scale, inside.get(finding.fingerprint, ALL_OF_IT)) for finding in findings]
    if scale.room is not None and scale.steps:
        found = within_step(found, scale.room, scale.hidden, timed=scale.timed)
    return rated(found, scale)


def rated(findings: Iterable[Finding], scale: RankScale) -> list[Finding]:
    """Return findings with a saving a step in order, with their severity and whether they are shown."""
    found = no_less_together(list(findings), scale.unprofiled_ns)
    return ordered((_judged_by(finding, scale) for finding in found), scale.gpu_time_ns)


def of_step(finding: Finding, scale: RankScale, inside: Inside) -> Range:
    """Return what a finding saves a step where its fix is the only one that is made: no more than there is."""
    found = [_scaled(finding, scale, inside)]
    if scale.room is not None and scale.steps:
        found = within_step(found, scale.room, scale.hidden, timed=scale.timed)
    return found[0].step_saving_ns if found[0].per_step is None else found[0].per_step.step_saving_ns


# Of so many findings that come first, those are among them that save at least this share of GPU time: while the host
# sets the pace a step gains little by them, and most once it does not.
_FIRST, _LARGE = 3, 0.1


def ordered(findings: Iterable[Finding], gpu_time_ns: int) -> list[Finding]:
    """Order by worth, most first; large savings of GPU time are among the first three.

    They never take the first's place, and where that is idle time, which the headline names already, they have three
    places behind it. gpu_time_ns: of the trace.
    """
    found = sorted(findings, key=_order)
    places = _FIRST if found and not found[0].on_gpu else _FIRST - 1
    shown = [one for one in found[1:] if one.reported]
    large = [one for one in shown if _is_large(one, gpu_time_ns) or _is_heavy(one, gpu_time_ns)]
    large = sorted(large, key=lambda one: -one.gpu_saving_ns.mid)[:places]
    chosen = {one.fingerprint for one in large}
    rest = [one for one in found[1:] if one.fingerprint not in chosen]
    free = places - len(large)
    return [*found[:1], *sorted([*large, *rest[:free]], key=_order), *rest[free:]]


def _is_large(finding: Finding, gpu_time_ns: int) -> bool:
    return bool(_worth(finding).gpu_saving_ns.mid) and finding.gpu_saving_ns.mid >= _LARGE * max(gpu_time_ns, 1)


def _is_heavy(finding: Finding, gpu_time_ns: int) -> bool:
    """Return whether a finding costs a large share of GPU time of which all or nothing may be saved."""
    saving = finding.gpu_saving_ns
    return not saving.low and saving.high == finding.measured_ns >= HEAVY_SHARE * max(gpu_time_ns, 1)


def _order(finding: Finding) -> tuple[bool, bool, int, int, int, str]:
    """Order by worth, most first; what no step has comes behind what one has, and last what is not shown.

    First counts what a fix saves alone: it is made before the others. Then its part of what all save, and GPU time.
    """
    of, nowhere = _worth(finding), finding.per_step is not None and finding.per_step.measured_ns == 0
    alone = of.step_saving_ns if of.step_saving_alone_ns is None else of.step_saving_alone_ns
    return (
        not finding.reported,
        nowhere,
        -alone.mid,
        -of.step_saving_ns.mid,
        -of.gpu_saving_ns.mid,
        finding.fingerprint,
    )


def _worth(finding: Finding) -> Finding | PerStep:
    """Return what holds the savings that count: of a step, where steps are known and have some of it."""
    return finding if finding.per_step is None or finding.per_step.measured_ns == 0 else finding.per_step


def ranked_again(scan: Scan, findings: Iterable[Finding]) -> list[Finding]:
    """Rank the findings of a stored scan, with what verdicts made of them: as `ranked`, as far as the scan says."""
    step = scan.summary.per_step
    whole = scan.summary.unprofiled_ns if step is None else step.unprofiled_ns
    if whole is None:  # of a version that did not say
        lowered = (replace(finding, severity="low") if finding.refuted else finding for finding in findings)
        return ordered(lowered, scan.summary.gpu_time_ns)
    steps = 0 if step is None else scan.trace.steps
    scale = RankScale(steps=steps, unprofiled_ns=whole.mid, gpu_time_ns=scan.summary.gpu_time_ns)
    before = {finding.fingerprint: finding for finding in scan.findings}
    found = []
    for finding in findings:
        stored = before[finding.fingerprint]
        if finding != stored:
            finding = _alone_again(_scaled(finding, scale, _inside(stored, steps)), stored)
            finding = _judged_by(finding, scale)
        found.append(replace(finding, reported=_judged(finding) or stored.reported))
    return ordered(no_less_together(found, scale.unprofiled_ns), scale.gpu_time_ns)


def _alone_again(finding: Finding, stored: Finding) -> Finding:
    """Return a finding of which verdicts changed what it saves, with what it saves alone in proportion to GPU time."""
    before, after = stored.gpu_saving_ns.mid, finding.gpu_saving_ns.mid
    part = Fraction(0) if finding.refuted else Fraction(min(after, before), before) if before else Fraction(1)
    step = finding.per_step
    if step is not None and stored.per_step is not None:
        step = replace(step, step_saving_alone_ns=_part(stored.per_step.step_saving_alone_ns, part))
    return replace(finding, step_saving_alone_ns=_part(stored.step_saving_alone_ns, part), per_step=step)


def _part(of: Range | None, part: Fraction) -> Range | None:
    return Range(*(int(ns * part) for ns in (of.low, of.mid, of.high))) if of is not None and part else None


def _inside(finding: Finding, steps: int) -> Inside:
    """Return the part of a stored finding that lies in steps, by what it is over the trace and a step."""
    if finding.per_step is None:
        return ALL_OF_IT
    pairs = (
        (finding.per_step.gpu_saving_ns.high, finding.gpu_saving_ns.high),
        (finding.per_step.step_saving_ns.high, finding.step_saving_ns.high),
    )
    each, whole = max(pairs, key=lambda pair: pair[1])
    saved = _share(each * max(steps, 1), whole)
    return Inside(_share(finding.per_step.measured_ns * max(steps, 1), finding.measured_ns), (saved, saved, saved))


def _share(part: int, whole: int) -> Fraction:
    return min(Fraction(max(part, 0), whole), Fraction(1)) if whole > 0 else Fraction(1)


def _scaled(finding: Finding, scale: RankScale, inside: Inside) -> Finding:
    """Return a finding with what lies in steps of it, a step: it saves no more of either than it measures."""
    if not scale.steps:
        return replace(finding, per_step=None)
    measured_ns = int(finding.measured_ns * inside.measured / scale.steps)
    gpu = _per_step(finding.gpu_saving_ns, (inside.measured,) * 3, scale.steps)
    gain = _per_step(finding.step_saving_ns, inside.saved, scale.steps)
    gain = gain if finding.on_gpu else gain.at_most(measured_ns)  # with launches idle time goes as well
    per_step = PerStep(
        measured_ns=measured_ns,
        gpu_saving_ns=gpu.at_most(measured_ns),
        step_saving_ns=gain,
        share_of_unprofiled=round(gain.mid / max(scale.unprofiled_ns, 1), 4),
    )
    return replace(finding, per_step=per_step)


def _judged_by(finding: Finding, scale: RankScale) -> Finding:
    """Return a finding with its severity, and whether it is shown: by what a step saves, where steps are known."""
    of, whole_ns = finding.per_step or finding, max(scale.unprofiled_ns, 1) if finding.per_step else scale.whole_ns
    share = max(of.step_saving_ns.mid, of.gpu_saving_ns.mid) / whole_ns
    return replace(finding, severity="low" if finding.refuted else severity_of(share), reported=_shown(finding, scale))


def severity_of(share: float) -> str:
    """Return how severe a finding is whose saving is this share of the step, or of GPU time.

    >>> severity_of(0.05), severity_of(0.02), severity_of(0.0)
    ('high', 'medium', 'low')
    """
    return next(name for least, name in SEVERITIES if share >= least)


def _shown(finding: Finding, scale: RankScale) -> bool:
    if _judged(finding):
        return True
    step, gpu = finding.step_saving_ns.mid, finding.gpu_saving_ns.mid
    least = scale.least_share
    if least and _is_heavy(finding, scale.gpu_time_ns):
        return True
    worth = step >= least * scale.whole_ns or gpu >= least * max(scale.gpu_time_ns, 1)
    return worth and max(step, gpu) >= scale.least_ns


def _judged(finding: Finding) -> bool:
    """Return whether it has a verdict: then it is shown, whatever it saves."""
    return finding.verdict is not None or any(variant.verdict is not None for variant in finding.variants)


def _per_step(saving: Range, inside: tuple[Fraction, Fraction, Fraction], steps: int) -> Range:
    """Return the mean over steps of the part that lies in them, integer nanoseconds."""
    ends = zip((saving.low, saving.mid, saving.high), inside, strict=True)
    low, mid, high = (int(ns * share / steps) for ns, share in ends)
    return Range(min(low, mid), mid, max(mid, high))


def no_less_together(findings: Sequence[Finding], unprofiled_ns: int) -> list[Finding]:
    """Return the findings with no less together than the best of them alone, to which then goes what is missing.

    A fix can cost the host more than it saves the GPU: together they save less by it, and it need not be made.
    """
    kept = list(findings)
    if (most := _missing(kept, [(own.step_saving_alone_ns, own.step_saving_ns) for own in kept])) is not None:
        kept[most[0]] = _with_more(kept[most[0]], most[1])
    steps = [finding.per_step for finding in kept]
    savings = [(step.step_saving_alone_ns, step.step_saving_ns) for step in steps if step is not None]
    if (most := _missing(kept, savings)) is not None:
        kept[most[0]] = _with_more_a_step(kept[most[0]], most[1], unprofiled_ns)
    return kept


def _missing(findings: Sequence[Finding], savings: Sequence[tuple[Range | None, Range]]) -> tuple[int, int] | None:
    """Return the place of the finding that saves most alone, and how much more that is than all together, if any."""
    if not findings or len(savings) < len(findings):
        return None
    alone = [0 if own is None else own.mid for own, _ in savings]
    best = max(range(len(alone)), key=alone.__getitem__)
    missing = alone[best] - sum(together.mid for _, together in savings)
    return (best, missing) if missing > 0 else None


def _with_more(finding: Finding, more_ns: int) -> Finding:
    """Return a finding that saves more over the trace, its first variants first; gaps no more than they last."""
    variants, left_ns = [], more_ns
    for variant in finding.variants:
        part_ns = left_ns if finding.on_gpu else min(left_ns, variant.measured_ns - variant.step_saving_ns.mid)
        variants.append(replace(variant, step_saving_ns=_more(variant.step_saving_ns, part_ns)))
        left_ns -= part_ns
    return replace(finding, step_saving_ns=_more(finding.step_saving_ns, more_ns), variants=tuple(variants))


def _with_more_a_step(finding: Finding, more_ns: int, unprofiled_ns: int) -> Finding:
    if finding.per_step is None:
        return finding
    step = _more(finding.per_step.step_saving_ns, more_ns)
    share = round(step.mid / max(unprofiled_ns, 1), 4)
    return replace(finding, per_step=replace(finding.per_step, step_saving_ns=step, share_of_unprofiled=share))


def _more(of: Range, more_ns: int) -> Range:
    return Range(of.low, of.mid + more_ns, max(of.high, of.mid + more_ns))
