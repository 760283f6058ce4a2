"""Matches to findings: claimed without overlap, grouped by what they are, estimated, ranked.

Rules claim in the order of their priority, and each is matched against what those before it left. A match keeps its
rows only if its finding is reported: what one rule finds not worth reporting is free for the next. Python runs once a
distinct chain, never once a match.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec.structs import replace

from tracemine.devices import Device
from tracemine.findings.accounting import Room, measure, most_saved_by, summarise, with_slow_steps
from tracemine.findings.advice_facts import facts_of
from tracemine.findings.alone import MEASURED, corrected, with_alone
from tracemine.findings.benchmark_loops import loop_texts
from tracemine.findings.bound import bound_of
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.classes import classes_of
from tracemine.findings.communication import communication_of, communication_text
from tracemine.findings.context import Cause, ScanContext
from tracemine.findings.contract import kept
from tracemine.findings.estimates import ESTIMATES
from tracemine.findings.grouping import grouped
from tracemine.findings.identity import place_of, variant_of
from tracemine.findings.inside import inside_steps
from tracemine.findings.library_shares import shares_text
from tracemine.findings.like_lost import like_lost, losing, lowered, lowered_ns
from tracemine.findings.loops import with_loops
from tracemine.findings.notes import device_times, gpu_name, unclassified_text, warnings_of, with_graph_mode, with_trial
from tracemine.findings.parts import parts_of
from tracemine.findings.payback import payback
from tracemine.findings.peak_memory import peak_memory
from tracemine.findings.ranking import HEAVY_SHARE, SHOWN_SHARE, RankScale, ranked
from tracemine.findings.record import Finding, Identity, Scan, TraceSummary
from tracemine.findings.recorded import recorded, spent
from tracemine.findings.serving import serving_of
from tracemine.findings.step_savings import Reported, claim, split_by_gain, with_steps
from tracemine.findings.summary import Summary
from tracemine.findings.transfers import exposed_text
from tracemine.findings.variant import first_class, variant_finding
from tracemine.findings.verdicts import Judge, judged, judged_ns
from tracemine.flow import Evidence
from tracemine.fusion import Groups, Refusal
from tracemine.matching import find as match
from tracemine.matching.advice import advised, fitting, merged
from tracemine.matching.rule import Matches, Rule
from tracemine.perfmodel import NOTHING, Abstained, Curves
from tracemine.rows.captures import captured_graphs
from tracemine.rows.engines import engine_named, in_its_words
from tracemine.rows.table import BoolArray, IntArray, Rows, flags, number
from tracemine.timeline import Timeline

# Without a threshold from the caller: a thousandth of the span, and 1 µs at least.
_DEFAULT_SHARE, _DEFAULT_LEAST_NS = 1_000, 1_000
_LAUNCH_NS = 2_000  # the least that a launch takes of the host


def find(
    timeline: Timeline,
    rows: dict[str, Rows],
    matches: Iterable[Matches],
    device: Device | None,
    *,
    groups: Groups | None = None,
    curves: Curves | None = None,
    judge: Judge | None = None,
    min_saving_ns: int | None = None,
    path: str | None = None,
    causes: Sequence[Cause] = (),
) -> Scan:
    """Find everything there is to say about a trace, the most worth first: by what the step gains of a fix alone.

    So where the device is mostly idle gaps lead, where it is busy fusions, and of two the one that the step feels.

    `groups`: the fusion groups that the rows were made with. What a rule says of part of a group it says of all of it.
    `device` is the trace's GPU (see `device_of`), and `curves` what fused times are read off, by default what the
    package has for it; without both, GPU time has no estimates. A finding whose savings (mid) are both below
    `min_saving_ns` claims nothing before all others have, is counted in `dropped` and not `reported`. By default a
    thousandth of the span lets it claim, and a hundredth of the step or of GPU time be reported.
    `judge` gives the verdict on a variant. What has one is listed, whatever it then saves, and keeps what it claimed.
    `path` is only repeated in the scan. `causes` bring estimates, facts and parts of the step that rules ask for.
    """
    savings = {kind: estimator for cause in causes for kind, estimator in cause.savings.items()} | ESTIMATES
    context = ScanContext(timeline, rows, device, measure(timeline), groups, curves, causes, savings)
    gaps_ns = context.unprofiled_gaps_ns[1]  # before anything is fixed
    threshold_ns = min_saving_ns
    if threshold_ns is None:
        threshold_ns = max(_DEFAULT_LEAST_NS, context.accounts.judged_ns // _DEFAULT_SHARE)
    if groups is not None:
        context.drop("path_not_known", groups.refusals.count(Refusal.BARRIER))
    graphs = captured_graphs(timeline)
    told = () if timeline.meta.ingest.unusable or graphs else matches
    by_priority = sorted(told, key=lambda m: (m.rule.priority, m.rule.id))
    heavy_ns = HEAVY_SHARE * context.accounts.gpu_time_ns if min_saving_ns is None else np.inf
    variants, known = _variants(context, by_priority, judge, threshold_ns, heavy_ns)
    findings = grouped(variants, {mark: one.place for mark, one in known.items()})
    findings = _advised(context, findings, {match.rule.id: match.rule for match in by_priority}, known)
    overlapping = frozenset(each.rule.id for each in by_priority if each.rule.saving == "overlap")
    findings = _ranked(
        context, findings, threshold_ns, SHOWN_SHARE if min_saving_ns is None else 0.0, overlapping, known
    )
    findings = with_loops(context, with_graph_mode(context, findings))
    scan = Scan(
        trace=_trace_summary(context, path),
        summary=_summary(context, findings, gaps_ns, graphs),
        findings=tuple(findings),
        dropped=dict(sorted(context.dropped.items())),
        warnings=_warnings(context, groups, graphs),
        recorded=recorded(timeline, context.accounts),
        spent=spent(context),
    )
    return kept(scan)


def _warnings(context: ScanContext, groups: Groups | None, graphs: int) -> tuple[str, ...]:
    """Return what is said of the recording itself, before any finding."""
    timeline, rows = context.timeline, context.rows
    exposed = (shares_text(context), exposed_text(context), communication_text(context))
    return (
        *warnings_of(
            timeline,
            rows["gaps"],
            context.accounts,
            context.curves,
            context.steps.slowdown,
            captured=graphs,
            within_ns=context.in_steps_ns,
        ),
        *filter(None, [unclassified_text(rows["activities"], context.accounts), *exposed]),
        *loop_texts(timeline, rows["activities"], context.facts["activities"], groups, context.loops, context.device),
    )


def _trace_summary(context: ScanContext, path: str | None) -> TraceSummary:
    timeline = context.timeline
    return TraceSummary(
        path=timeline.meta.source if path is None else path,
        format=timeline.meta.format,
        gpu=gpu_name(timeline),
        steps=context.accounts.steps,
        activities=timeline.activities.num_rows,
        unattributed=timeline.activities["op_row"].null_count,
        estimated_for=None if context.device is None else context.device.title,
        estimate_guessed_from=None if context.device is None else context.device.guessed_from,
    )


def _summary(context: ScanContext, findings: Sequence[Finding], gaps_ns: IntArray, graphs: int) -> Summary:
    """Return the summary; without parts and verdict where times cannot be used, or too little ran."""
    usable = not context.timeline.meta.ingest.unusable
    parts = parts_of(context, findings) if usable else None
    bound = bound_of(context, parts, gaps_ns) if usable else None
    return replace(
        summarise(context.accounts, findings, context.unprofiled),
        bound=bound,
        parts=None if bound is None else parts,
        peak_memory=peak_memory(context, findings),
        devices=device_times(context) if usable else (),
        payback=payback(findings),
        serving=serving_of(context, graphs),
        communication=communication_of(context) if usable else (),
    )


def _variants(
    context: ScanContext, by_priority: Sequence[Matches], judge: Judge | None, threshold_ns: int, heavy_ns: float
) -> tuple[list[Finding], dict[str, Reported]]:
    """Return the variants of all findings, with what the step gains of each; and by fingerprint before that.

    heavy_ns: of communication that nothing hides, from which on it is said whatever one rank shows that it saves.
    """
    reported: list[Reported] = []
    little: list[Reported] = []
    launch_ns = _LAUNCH_NS if context.unprofiled_gaps_ns[1].sum() > context.accounts.gpu_time_ns else 0
    for found in by_priority:
        for variants in _by_finding(_of_rule(context, found)):
            exposed_ns = sum(v.finding.measured_ns for v in variants) if found.rule.saving == "overlap" else 0
            if exposed_ns >= max(heavy_ns, 1) or _saves_enough(variants, threshold_ns, launch_ns):
                claim(context, variants)
                reported += variants
            else:
                little += variants
    more, unfelt = split_by_gain(context, reported, little, threshold_ns)
    reported += more
    if judge is not None:
        reported = _lowered([_judged(variant, judge) for variant in reported])
    known = {one.finding.fingerprint: one for one in (*little, *reported)}
    return with_steps(context, reported, unfelt, threshold_ns), known


def _ranked(
    context: ScanContext,
    findings: Sequence[Finding],
    threshold_ns: int,
    least_share: float,
    overlapping: frozenset[str],
    variants: Mapping[str, Reported],
) -> list[Finding]:
    """Rank findings, and say what each saves alone.

    overlapping: the rules whose findings cost what of their activities' time nothing else runs.
    """
    accounts = context.accounts
    # High ends of variants do not add up: all of them together save no more than there is.
    findings = [
        replace(finding, step_saving_ns=said.at_most(most_saved_by(finding, accounts)))
        for finding in findings
        for said in [corrected(finding.step_saving_ns, MEASURED.get(finding.rule))]
    ]
    scale = RankScale(
        steps=accounts.steps,
        unprofiled_ns=context.unprofiled.mid_ns,
        gpu_time_ns=accounts.gpu_time_ns,
        room=Room(
            with_slow_steps(context.unprofiled.range_ns, context.unprofiled.p90_ns, context.busy_ns),
            context.busy_ns,
            accounts.devices,
        ),
        least_ns=threshold_ns,
        least_share=least_share,
        hidden=overlapping,
        timed=context.steps.slowdown is not None,
    )
    gaps_ns = context.steps.gaps_ns()
    inside, alone = (
        inside_steps(
            chosen,
            accounts.step_of,
            accounts.dur_ns,
            accounts.exclusive_ns,
            context.rows["gaps"],
            context.in_steps_ns,
            gaps_ns[1],
            unprofiled_ns,
            {rule: number(context.rows["activities"], "exposed_ns") for rule in sorted(overlapping)},
        )
        for chosen, unprofiled_ns in (
            (findings, context.unprofiled_gaps_ns),
            ([finding for finding in findings if not finding.on_gpu], gaps_ns),
        )
    )
    return with_alone(context, ranked(findings, scale, inside), variants, scale, inside | alone)


def _of_rule(context: ScanContext, found: Matches) -> Iterator[Reported]:
    """Yield the variants of a rule's findings, of what no rule before it has claimed."""
    left = _long_unprofiled(context, _left(context, found))
    named = np.zeros(context.rows[found.rule.rows].count, np.bool_)  # rows that the rule's pattern names
    named[left.rows] = True
    variants: dict[str, list[tuple[Identity, ClassEstimate]]] = {}
    for estimated in _estimated(context, left, named):
        identity = variant_of(found.rule, estimated.label)
        variants.setdefault(identity.finding, []).append((identity, estimated))
    for mark, members in variants.items():
        classes = [estimated for _, estimated in members]
        first = members[first_class(classes)][0]
        aliases = dict.fromkeys(alias for each in (first, *(each for each, _ in members)) for alias in each.aliases)
        yield _variant(context, found.rule, Identity(mark, tuple(aliases)), classes, named)


def _estimated(context: ScanContext, found: Matches, named: BoolArray) -> Iterator[ClassEstimate]:
    """Yield the estimate of each class of matches that saves anything; count the others as dropped."""
    for matrix, evidence in chain(classes_of(context, found), context.more_classes(found.rule, named)):
        estimated = context.estimate(found.rule, matrix)
        if isinstance(estimated, Abstained):
            context.drop(estimated.reason, len(matrix))
        elif not estimated.step_saving_ns.mid and not _may_save(found.rule, estimated):
            context.drop("nothing_to_win", len(matrix))
        else:
            sure = min(Evidence[estimated.evidence.upper()], evidence)
            yield replace(estimated, evidence=sure.name.lower())


def _may_save(rule: Rule, estimated: ClassEstimate) -> bool:
    """Return whether GPU time is saved: likely, or, of communication, at most; or the host's, of a loop."""
    at_most = rule.saving == "overlap" and estimated.gpu_saving_ns.high
    return bool(estimated.gpu_saving_ns.mid or at_most or rule.call == "loop")


def _variant(
    context: ScanContext, rule: Rule, identity: Identity, classes: list[ClassEstimate], named: BoolArray
) -> Reported:
    """Return a variant with the title and the call of the advice that fits it.

    What is compiled inside of a loop over independent inputs is called once an iteration, and no launch is known to go:
    one call for all of the loop does more, which is the gaps' advice.
    """
    facts = facts_of(context, rule, classes, named)
    chosen = fitting(rule.advice, context.environment.facts | facts)
    titled = rule if chosen is None or chosen.title is None else replace(rule, title=chosen.title)
    call = rule.call if chosen is None or chosen.call is None else chosen.call
    matrices = [one.matrix for one in classes]
    if call == "compiled" and 2 * sum(int(context.alike[each].sum()) for each in matrices) > sum(
        m.size for m in matrices
    ):
        call = "iteration"
    return Reported(
        finding=variant_finding(context, titled, identity, classes),
        rule=rule,
        matrices=matrices,
        savings=[one.gpu_saving_ns for one in classes],
        first=first_class(classes),
        place=place_of(rule, classes[0].label),
        facts=facts,
        call=call,
        call_ns=sum((one.call_ns * len(one.matrix) for one in classes), NOTHING) // sum(map(len, matrices)),
    )


def _advised(
    context: ScanContext, findings: Iterable[Finding], rules: dict[str, Rule], known: Mapping[str, Reported]
) -> list[Finding]:
    """Return the findings, each with the advice that fits the trace and its place."""
    advice = []
    for finding in findings:
        own = merged(known[variant.identity.finding].facts for variant in finding.variants)
        rule, of_trace = rules[finding.rule], context.environment
        fix = advised(rule.advice, rule.fix, of_trace.facts | own, of_trace.blockers_text)
        fix = fix.replace("torch.bfloat16", f"torch.{of_trace.half}")
        if of_trace.producer == "xla":
            fix = with_trial(fix, context.timeline.meta.versions.get("jax"))
        advice.append(replace(finding, fix=in_its_words(fix, engine_named(of_trace.engine))))
    return advice


def _by_finding(variants: Iterable[Reported]) -> list[list[Reported]]:
    """Return the variants of each finding, in order of first appearance."""
    found: dict[str, list[Reported]] = {}
    for one in variants:
        found.setdefault(one.place.mark, []).append(one)
    return list(found.values())


def _saves_enough(variants: Sequence[Reported], threshold_ns: int, launch_ns: int) -> bool:
    """Return whether a finding saves enough to claim its rows. What fusing gains the step is not known yet.

    launch_ns: of the host, for each launch that one library call takes the place of; 0 where the device sets the pace.
    """
    gpu_ns = sum(variant.finding.gpu_saving_ns.mid for variant in variants)
    step_ns = sum(variant.finding.step_saving_ns.mid for variant in variants)
    fewer = [m[:, 1:].size for v in variants if v.call in ("operator", "loop", "step") for m in v.matrices]
    return max(gpu_ns, step_ns, launch_ns * sum(fewer)) >= threshold_ns


def _judged(one: Reported, judge: Judge) -> Reported:
    """Apply a verdict to a finding: to the matches like the first, or, where it is refuted, to all."""
    alike, verified = one.finding.alike, judge(one.finding)
    if alike is None or verified is None:
        return one
    finding = judged(one.finding, verified)
    savings = [NOTHING if finding.refuted else saving for saving in one.savings]
    savings[one.first] = judged_ns(verified, alike.measured_ns, savings[one.first])
    return replace(one, finding=finding, savings=savings)


def _lowered(reported: Sequence[Reported]) -> list[Reported]:
    """Lower what those claim that are like one which lost."""
    lost, found = losing([variant.finding for variant in reported]), []
    for one in reported:
        like = like_lost(one.finding, lost)
        if like is not None:
            savings = [lowered_ns(saving) for saving in one.savings]
            one = replace(one, finding=lowered(one.finding, like), savings=savings)
        found.append(one)
    return found


def _long_unprofiled(context: ScanContext, found: Matches) -> Matches:
    """Return the matches that last as long as their rule asks once nothing records them."""
    least_ns = found.rule.unprofiled_gte_ns
    if not least_ns or not len(found):
        return found
    gaps = context.rows["gaps"]
    # Of a gap between two steps the longer stretch in one of them counts.
    part = number(gaps, "longest_in_step_ns", null=1) / np.maximum(number(gaps, "dur_ns"), 1)
    usual = context.unprofiled_gaps_ns[1] * np.where(flags(gaps, "between_steps"), part, 1.0)
    long = np.add.reduceat(usual[found.rows], found.offsets[:-1]) >= least_ns
    context.drop("shorter_unprofiled", int((~long).sum()))
    return found.only(long)


def _left(context: ScanContext, found: Matches) -> Matches:
    """Return a rule's matches among the rows that are not claimed; where some are claimed, it is matched anew."""
    claimed = context.claimed[found.rule.rows]
    if not claimed[found.rows].any():
        return found
    again = match(found.rule, context.rows[found.rule.rows], without=claimed)
    kept = np.zeros(len(claimed), dtype=bool)
    kept[again.rows] = True
    # A run that was cut is still there; what left nothing behind was another's altogether.
    left = np.bincount(np.repeat(np.arange(len(found)), np.diff(found.offsets)), kept[found.rows], len(found))
    context.drop("claimed_by_another_rule", int((left == 0).sum()))
    return again
