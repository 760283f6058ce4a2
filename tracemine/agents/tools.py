"""The tools that read: each takes a reader and what is asked, by name, and gives an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tracemine.agents.quoted import NAME, SENTENCE, lines, maybe, page, quoted, some, word
from tracemine.agents.reading import (
    GPU,
    Answer,
    Cursor,
    Details,
    FindingId,
    Limit,
    MinSaving,
    OneRule,
    Operator,
    Read,
    Reader,
    Status,
    TracePath,
    asked_id,
    known,
)
from tracemine.api.explain import Explanation, explain
from tracemine.comparison import diff as compared
from tracemine.comparison.record import FindingChange, StepChange
from tracemine.documents import words
from tracemine.documents.headline import bound_headline
from tracemine.documents.next_step import next_step
from tracemine.documents.own_code import own_first
from tracemine.documents.screen import first_screen
from tracemine.documents.step_words import unestimated
from tracemine.findings.record import Finding, Recorded, Refused, Scan, Verified
from tracemine.matching import Rule
from tracemine.perfmodel import Range, Traffic
from tracemine.timeline import producer_named
from tracemine.units import bytes_text, percent_text, range_text, time_text
from tracemine.verify.pipeline import fusable

_NAMES, _SENTENCES, _VARIANTS, _REASONS = 6, 3, 8, 6  # entries of an answer that has no pages for them
_NAME = 120  # characters


def traces(reader: Reader, *, limit: Limit = 10, cursor: Cursor = None) -> Answer:
    """Return a page of the traces that are served: paths as the other tools take them."""
    found = reader.served()
    shown, following = page(found, limit, cursor, ("traces", [path for path, _ in found]))
    return {
        "total": len(found),
        "next_cursor": following,
        "next": "scan one" if found else "none is served: ask the user to record one, `tracemine capture`",
        "untrusted": {"traces": tuple({"path": quoted(path), "bytes": size} for path, size in shown)},
    }


def scan(
    reader: Reader,
    *,
    path: TracePath,
    gpu: GPU = None,
    rule: OneRule = None,
    min_saving: MinSaving = None,
    limit: Limit = 3,
    cursor: Cursor = None,
) -> Answer:
    """Return a trace in short: what bounds its step, what could be saved, and the findings that save most.

    missing: what was not recorded; findings are fewer and less sure without. one_edit: what does several at once.
    """
    read = reader.read(path, gpu)
    found = read.scan
    report = read.report if min_saving is None else read.report.worth(min_saving)
    chosen = [finding for finding in report if rule in (None, finding.rule)]
    shown, following = page(chosen, limit, cursor, ("scan", read.key, rule, min_saving))
    bound = found.summary.bound
    return {
        "per": _per(found),
        "steps": found.trace.steps,
        "activities": found.trace.activities,
        "bound_by": None if bound is None else word(bound.by.replace(" ", "_")),
        "takes": quoted(words.unprofiled_text(found.summary)),
        "gpu_work": quoted(words.busy_text(found.summary)),
        "all_save": _saving(words.all_of(found, "step_saving_ns"), found),
        "total": len(chosen),
        "too_small_to_show": len(found.findings) - len(report),
        "missing": _missing(found.recorded, found.trace.format),
        "next_cursor": following,
        "next": _after_scan(found, chosen),
        "untrusted": {
            "trace": quoted(reader.shown(read)),
            "gpu": _gpu(found),
            "headline": quoted(bound_headline(found)),
            "one_edit": maybe(first_screen(found, read.frames).at_once or None, SENTENCE),
            "findings": tuple(_row(finding, read) for finding in shown),
            "warnings": some(found.warnings, _SENTENCES, SENTENCE // 2),
        },
    }


def explained(reader: Reader, *, path: TracePath, id: FindingId, details: Details = False, gpu: GPU = None) -> Answer:
    """Return what is known of a finding; with `details` all of it.

    limits, false_positives: when its rule is wrong. emit: a kernel or call can be made for it. variant_of: the finding
    that the asked one is a part of, whose figures these are.
    """
    read = reader.read(path, gpu)
    named = read.named(id)
    found: Explanation = explain(read.report, named, rules=reader.rules)
    finding, rule = found.finding, found.rule
    asked = asked_id(finding, named)
    emits, told = bool(fusable([finding])), None if details else _SENTENCES
    return {
        "id": asked,
        "per": _per(read.scan),
        "rule": word(finding.rule),
        "saves": _saving(words.saved_alone(finding), read.scan),
        "saves_gpu": _gpu_saving(finding, read.scan),
        "costs": words.cost_text(finding, read.scan),
        "times": _times(finding.occurrences, read.scan),
        "evidence": found.evidence,
        "emit": emits,
        "limits": () if rule is None else rule.limits[:told],
        "false_positives": () if rule is None else rule.false_positives[:told],
        "next": "emit and verify it, or apply `fix`; then record again and diff"
        if emits
        else "apply `fix`, record again in the same way, and diff both",
        "untrusted": _texts(finding, read, reader, details),
        **known(
            variant_of=None if asked == finding.fingerprint else word(finding.fingerprint),
            moves=_moves(finding.traffic_bytes),
            about=_rule(rule) if details and rule is not None else None,
        ),
    }


def _texts(finding: Finding, read: Read, reader: Reader, more: bool) -> Answer:
    """Return what an agent needs before it changes code; `more`: with kernels, variants and all that is assumed."""
    variants = [
        {
            "id": word(variant.identity.finding),
            "times": _times(variant.occurrences, read.scan),
            "shapes": maybe(variant.shapes, _NAME),
        }
        for variant in finding.variants[:_VARIANTS]
    ]
    return {
        "trace": quoted(reader.shown(read)),
        "cause": quoted(finding.title),
        "where": _where(finding, read, _NAMES if more else 2),
        "fix": lines(finding.fix),
        **known(
            verdict=_verdict(finding.verdict),
            shapes=maybe(finding.shapes),
            dtype=maybe(finding.dtype),
            operators=some(map(words.operator_name, finding.ops), 2 * _NAMES if more else 0),
            kernels=some(finding.kernels, 2 * _NAMES if more else 0, _NAME),
            assumptions=some(finding.assumptions, 2 * _SENTENCES if more else 1, SENTENCE),
            variants=tuple(variants) if more else (),
        ),
    }


def _where(finding: Finding, read: Read, most: int, longest: int = NAME) -> tuple[str, ...]:
    """Return the lines, the user's own first."""
    return some((words.source_text(one, one.file) for one in own_first(finding, read.frames)), most, longest)


def _moves(traffic: Traffic | None) -> str | None:
    if traffic is None:
        return None
    return f"{bytes_text(traffic.before)} now, {bytes_text(traffic.after)} as one kernel, each time"


def why_not(
    reader: Reader, *, path: TracePath, operator: Operator = None, limit: Limit = 5, cursor: Cursor = None
) -> Answer:
    """Return a page of what shares data and is not one kernel, most bytes first; and what rules left out.

    By reason; pair by pair where an operator is asked for. refused: null where findings were stored without it.
    """
    read = reader.read(path)
    refused = read.scan.refused
    pairs = [pair for pair in refused or () if operator is None or operator in f"{pair.first} {pair.second}"]
    rows = _by_reason(pairs) if operator is None else [_refused([pair]) for pair in pairs]
    shown, following = page(rows, limit, cursor, ("why_not", read.key, operator))
    dropped = sorted(read.scan.dropped.items(), key=lambda item: (-item[1], item[0]))[:_REASONS]
    return {
        "total": len(rows),
        "next_cursor": following,
        "next": "fuse none of these by hand" + ("" if operator else "; name an operator to see its pairs")
        if rows
        else "no such pair: scan says what saves",
        "untrusted": {
            "trace": quoted(reader.shown(read)),
            "refused": None if refused is None else tuple(shown),
            "left_out": tuple(
                {"reason": quoted(words.left_out_text(reason)), "matches": count} for reason, count in dropped
            ),
        },
    }


def diff(
    reader: Reader,
    *,
    before: TracePath,
    after: TracePath,
    status: Status | None = None,
    gpu: GPU = None,
    limit: Limit = 5,
    cursor: Cursor = None,
) -> Answer:
    """Return what became of each finding, what went wrong first.

    comparable: false where nothing of the two recordings compares. differs: what besides the program is not the same.
    """
    old, new = reader.read(before, gpu), reader.read(after, gpu)
    found = compared(old.scan, new.scan)
    rows = [_change(change) for change in found.changes if status in (None, change.status)]
    shown, following = page(rows, limit, cursor, ("diff", old.key, new.key, status))
    worse = any(change.status in ("new", "worse") for change in found.changes)
    return {
        "comparable": not found.incomparable,
        "per": word(found.per),
        "step": _took(found.step),
        "gpu_work": _took(found.gpu_work),
        "counts": {word(status): count for status, count in found.counts.items()},
        "total": len(rows),
        "next_cursor": following,
        "next": "record both in the same way: see `differs`"
        if found.incomparable
        else "explain what is new or worse"
        if worse
        else "report the measured change with its noise",
        "untrusted": {
            "changes": tuple(shown),
            "differs": some((f"{each.what}: {each.before} → {each.after}" for each in found.differs), _NAMES),
            "notes": some(found.notes, _SENTENCES, SENTENCE // 2),
        },
    }


def _per(found: Scan) -> Literal["step", "trace"]:
    """Return what savings are of: of a step, where steps are known of every finding."""
    known = found.summary.per_step is not None and all(finding.per_step is not None for finding in found.findings)
    return "step" if known else "trace"


def _row(finding: Finding, read: Read) -> Answer:
    return {
        "id": word(finding.fingerprint),
        "rule": word(finding.rule),
        "cause": quoted(finding.title, _NAME),
        "saves": _saving(words.saved_alone(finding), read.scan),
        "times": _times(finding.occurrences, read.scan),
        "evidence": word(finding.evidence),
        "where": next(iter(_where(finding, read, 1, _NAME)), None),
        "do": quoted(next_step(finding.fix, SENTENCE), SENTENCE),
    }


def _times(occurrences: int, found: Scan) -> float:
    """Return how often something occurs: a step where savings are a step's, else over the trace."""
    steps = found.summary.per_step
    if steps is None or _per(found) == "trace":
        return occurrences
    return round(occurrences / max(steps.count + len(steps.apart), 1), 2)


def _saving(saving: Range, found: Scan) -> str:
    """Return a saving with its ends, and the share of the unprofiled step, or trace, that it is."""
    steps = found.summary.per_step
    unprofiled = found.summary.unprofiled_ns if steps is None else steps.unprofiled_ns
    share = "" if unprofiled is None else f", {percent_text(saving.mid, unprofiled.mid)} of the {_per(found)}"
    return f"{time_text(saving.mid)} ({range_text(saving.low, saving.high)}){share}"


def _gpu_saving(finding: Finding, found: Scan) -> str:
    saving = words.of_finding(finding, "gpu_saving_ns")
    text = f"{time_text(saving.mid)} ({range_text(saving.low, saving.high)}), {words.gpu_text(saving.mid, found)}"
    return text if saving.high else "none"


def _missing(recorded: Recorded | None, format: str) -> tuple[str, ...]:
    if recorded is None:
        return ()
    there = {"shapes": recorded.shapes, "stacks": recorded.stacks, "execution_trace": recorded.tensors}
    there["execution_trace"] |= producer_named(format) != "torch"  # others know their tensors without one
    return (*(name for name, is_there in there.items() if not is_there), *(["end_of_file"] if recorded.cut_off else []))


def _gpu(found: Scan) -> str | None:
    trace = found.trace
    if trace.gpu is None and trace.estimated_for is None:
        return None
    same = trace.estimated_for is None or trace.estimated_for.startswith(trace.gpu or "-")
    rates = "" if same else f", estimated for {trace.estimated_for}"
    guess = "" if trace.estimate_guessed_from is None else f", rates guessed from {trace.estimate_guessed_from}"
    return quoted(f"{trace.gpu or 'not recorded'}{rates}{guess}")


def _after_scan(found: Scan, chosen: Sequence[Finding]) -> str:
    """Return what is worth asking next."""
    if chosen:
        return f"explain {word(chosen[0].fingerprint)}"
    if unestimated(found):
        return "scan it with the GPU's name as gpu; top says where its time goes"
    if found.summary.per_step is None:
        return "record three steps or more, with shapes and stacks: doctor says how"
    return "no finding: top says where its time goes, why_not what was left out"


def _rule(rule: Rule) -> Answer:
    what, why = (" ".join(text.split()) for text in (rule.what, rule.why))
    return {"title": rule.title, "what": what, "why": why, "references": rule.references}


def _verdict(said: Verified | None) -> str | None:
    return None if said is None else quoted(f"{word(said.level)}, {word(said.basis)}: {said.says}", SENTENCE)


def _by_reason(pairs: Sequence[Refused]) -> list[Answer]:
    """Return one row a reason, in the order of what its largest pair shares."""
    rows: dict[str, list[Refused]] = {}
    for pair in pairs:
        rows.setdefault(pair.reason, []).append(pair)
    return [_refused(each) for each in rows.values()]


def _refused(pairs: Sequence[Refused]) -> Answer:
    first = pairs[0]
    return {
        "reason": quoted(first.reason),
        "pairs": sum(pair.occurrences for pair in pairs),
        "first": quoted(first.first, _NAME),
        "second": quoted(first.second, _NAME),
    }


def _took(change: StepChange) -> str:
    before, after = time_text(change.before_ns.mid), time_text(change.after_ns.mid)
    return f"{word(change.status)}: {before} → {after}, noise {time_text(change.noise_ns)}"


def _change(change: FindingChange) -> Answer:
    cost = f"{time_text(change.before_ns)} → {time_text(change.after_ns)}"
    return {
        "status": word(change.status),
        "rule": word(change.rule),
        "ids": tuple(word(part.fingerprint) for side in (change.before, change.after) for part in side[:1]),
        "cost": f"{cost}, noise {time_text(change.noise_ns)}" if change.noise_ns else cost,
        "cause": quoted(change.title),
        "reason": maybe(change.reason, SENTENCE // 2),
    }
