"""The tools that read: each takes a reader and what is asked, and gives an answer."""

from __future__ import annotations

from typing import Literal

from tracemine.agents.answers import (
    AskDiff,
    AskExplain,
    AskFindings,
    AskScan,
    AskWhyNot,
    ChangeRow,
    DiffAnswer,
    DiffersRow,
    ExplainAnswer,
    FindingRow,
    FindingsAnswer,
    LeftOutRow,
    RecordedParts,
    RefusedRow,
    RuleText,
    ScanAnswer,
    StepTook,
    UnprofiledAnswer,
    VariantRow,
    VerdictRow,
    WhyNotAnswer,
)
from tracemine.agents.pages import page
from tracemine.agents.quoted import SENTENCE, lines, maybe, quoted, some, word
from tracemine.agents.reading import Reader
from tracemine.api.explain import Explanation, explain
from tracemine.comparison import diff as compared
from tracemine.comparison.record import FindingChange, StepChange
from tracemine.documents.words import all_of, left_out_text, of_finding, operator_name, source_text
from tracemine.findings.record import Finding, Refused, Scan, Verified
from tracemine.matching import Rule
from tracemine.verify.pipeline import fusable

_BEST, _NAMES, _SENTENCES, _VARIANTS = 3, 12, 8, 8  # entries of an answer that has no pages for them


def scan(reader: Reader, ask: AskScan) -> ScanAnswer:
    """Return a trace in short: what bounds its step, what could be saved, and the findings that save most."""
    read = reader.read(ask.path, ask.gpu)
    found = read.scan
    trace, summary, step = found.trace, found.summary, found.summary.per_step
    unprofiled = summary.unprofiled_ns if step is None else step.unprofiled_ns
    recorded = found.recorded
    return ScanAnswer(
        trace=quoted(reader.shown(read)),
        format=word(trace.format),
        gpu=maybe(trace.gpu),
        estimated_for=maybe(trace.estimated_for),
        steps=trace.steps,
        activities=trace.activities,
        per=_per(found),
        span_ns=summary.span_ns if step is None else step.span_ns,
        gpu_busy_ns=summary.gpu_busy_ns if step is None else step.gpu_busy_ns,
        unprofiled_ns=None
        if unprofiled is None
        else UnprofiledAnswer(
            low=unprofiled.low, mid=unprofiled.mid, high=unprofiled.high, source=word(unprofiled.source)
        ),
        bound_by=None if summary.bound is None else word(summary.bound.by.replace(" ", "_")),
        step_saving_ns=all_of(found, "step_saving_ns"),
        gpu_saving_ns=all_of(found, "gpu_saving_ns"),
        findings=len(found.reported),
        too_small_to_show=len(found.findings) - len(found.reported),
        best=tuple(_row(finding) for finding in found.reported[:_BEST]),
        recorded=None
        if recorded is None
        else RecordedParts(
            shapes=recorded.shapes, stacks=recorded.stacks, execution_trace=recorded.tensors, cut_off=recorded.cut_off
        ),
        warnings=some(found.warnings, _SENTENCES, SENTENCE),
    )


def findings(reader: Reader, ask: AskFindings) -> FindingsAnswer:
    """Return a page of findings, most worth first."""
    read = reader.read(ask.path, ask.gpu)
    report = read.report if ask.min_saving is None else read.report.worth(ask.min_saving)
    rows = [_row(finding) for finding in report if ask.rule in (None, finding.rule)]
    shown, cursor = page(rows, ask.limit, ask.cursor, ("findings", read.key, ask.rule, ask.min_saving))
    return FindingsAnswer(
        trace=quoted(reader.shown(read)),
        per=_per(read.scan),
        total=len(rows),
        findings=tuple(shown),
        next_cursor=cursor,
    )


def explained(reader: Reader, ask: AskExplain) -> ExplainAnswer:
    """Return all that is known of a finding."""
    read = reader.read(ask.path, ask.gpu)
    found: Explanation = explain(read.report, ask.fingerprint, rules=reader.rules)
    finding = found.finding
    return ExplainAnswer(
        trace=quoted(reader.shown(read)),
        per=_per(read.scan),
        finding=_row(finding),
        rule=None if found.rule is None else _rule(found.rule),
        evidence_says=found.evidence,
        fix=lines(finding.fix),
        one_kernel=bool(fusable([finding])),
        operators=some(map(operator_name, finding.ops), _NAMES),
        kernels=some(finding.kernels, _NAMES),
        kernels_in_all=len(finding.kernels),
        shapes=maybe(finding.shapes),
        dtype=maybe(finding.dtype),
        sources=some((source_text(source, source.file) for source in finding.source), _NAMES),
        fused_ns=finding.fused_ns,
        traffic_bytes=finding.traffic_bytes,
        assumptions=some(finding.assumptions, _SENTENCES, SENTENCE),
        variants=tuple(
            VariantRow(
                fingerprint=word(variant.identity.finding),
                occurrences=variant.occurrences,
                shapes=maybe(variant.shapes),
                measured_ns=variant.measured_ns,
                gpu_saving_ns=variant.gpu_saving_ns,
            )
            for variant in finding.variants[:_VARIANTS]
        ),
        variants_in_all=len(finding.variants),
        verdict=_verdict(finding.verdict),
    )


def why_not(reader: Reader, ask: AskWhyNot) -> WhyNotAnswer:
    """Return a page of what shares data and is not one kernel, most bytes first; and what rules left out."""
    read = reader.read(ask.path)
    refused = read.scan.refused
    rows = [_refused(pair) for pair in refused or () if ask.operator is None or _concerns(pair, ask.operator)]
    shown, cursor = page(rows, ask.limit, ask.cursor, ("why_not", read.key, ask.operator))
    dropped = sorted(read.scan.dropped.items(), key=lambda item: (-item[1], item[0]))
    return WhyNotAnswer(
        trace=quoted(reader.shown(read)),
        total=len(rows),
        refused=None if refused is None else tuple(shown),
        left_out=tuple(
            LeftOutRow(reason=word(reason), says=quoted(left_out_text(reason)), matches=count)
            for reason, count in dropped
        ),
        next_cursor=cursor,
    )


def diff(reader: Reader, ask: AskDiff) -> DiffAnswer:
    """Return what became of each finding, what went wrong first."""
    before, after = reader.read(ask.before, ask.gpu), reader.read(ask.after, ask.gpu)
    found = compared(before.scan, after.scan)
    rows = [_change(change) for change in found.changes if ask.status in (None, change.status)]
    shown, cursor = page(rows, ask.limit, ask.cursor, ("diff", before.key, after.key, ask.status))
    return DiffAnswer(
        comparable=not found.incomparable,
        per=word(found.per),
        basis=word(found.basis),
        step=_took(found.step),
        gpu_work=_took(found.gpu_work),
        counts={word(status): count for status, count in found.counts.items()},
        predicted_step_saving_ns=None if found.predicted is None else found.predicted.step_saving_ns,
        differs=tuple(
            DiffersRow(what=word(each.what), before=quoted(each.before), after=quoted(each.after))
            for each in found.differs[:_NAMES]
        ),
        total=len(rows),
        changes=tuple(shown),
        next_cursor=cursor,
        notes=some(found.notes, _SENTENCES, SENTENCE),
    )


def _per(found: Scan) -> Literal["step", "trace"]:
    """Return what savings are of: of a step, where steps are known of every finding."""
    known = found.summary.per_step is not None and all(finding.per_step is not None for finding in found.findings)
    return "step" if known else "trace"


def _row(finding: Finding) -> FindingRow:
    source = finding.source[0] if finding.source else None
    return FindingRow(
        fingerprint=word(finding.fingerprint),
        rule=word(finding.rule),
        title=quoted(finding.title),
        severity=word(finding.severity),
        evidence=word(finding.evidence),
        occurrences=finding.occurrences,
        measured_ns=finding.measured_ns if finding.per_step is None else finding.per_step.measured_ns,
        step_saving_ns=of_finding(finding, "step_saving_ns"),
        gpu_saving_ns=of_finding(finding, "gpu_saving_ns"),
        module=maybe(finding.module),
        source=None if source is None else quoted(source_text(source, source.file)),
    )


def _rule(rule: Rule) -> RuleText:
    one_line = " ".join
    return RuleText(
        id=rule.id,
        title=rule.title,
        what=one_line(rule.what.split()),
        why=one_line(rule.why.split()),
        limits=rule.limits,
        false_positives=rule.false_positives,
        references=rule.references,
    )


def _verdict(verdict: Verified | None) -> VerdictRow | None:
    if verdict is None:
        return None
    return VerdictRow(level=word(verdict.level), basis=word(verdict.basis), says=quoted(verdict.says, SENTENCE))


def _refused(pair: Refused) -> RefusedRow:
    return RefusedRow(
        first=quoted(pair.first),
        second=quoted(pair.second),
        reason=quoted(pair.reason),
        occurrences=pair.occurrences,
        bytes=pair.bytes,
    )


def _concerns(pair: Refused, operator: str) -> bool:
    return operator in pair.first or operator in pair.second


def _took(change: StepChange) -> StepTook:
    return StepTook(
        status=word(change.status),
        before_ns=change.before_ns,
        after_ns=change.after_ns,
        change_ns=change.change_ns,
        noise_ns=change.noise_ns,
    )


def _change(change: FindingChange) -> ChangeRow:
    before, after = (tuple(word(part.fingerprint) for part in side[:_NAMES]) for side in (change.before, change.after))
    return ChangeRow(
        status=word(change.status),
        rule=word(change.rule),
        title=quoted(change.title),
        reason=maybe(change.reason, SENTENCE),
        before=before,
        after=after,
        before_ns=change.before_ns,
        after_ns=change.after_ns,
        noise_ns=change.noise_ns,
    )
