"""Matches to findings: claimed without overlap, grouped by what they are, estimated, ranked.

Rules claim in the order of their priority, and each is matched against what those before it left. A match keeps its
rows only if its finding is reported: what one rule finds not worth reporting is free for the next. Python runs once a
distinct chain, never once a match.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracemine.devices import Device
from tracemine.findings.accounting import measure, summarise
from tracemine.findings.bound import bound_of
from tracemine.findings.context import Book
from tracemine.findings.environment import library_of, waited_in
from tracemine.findings.estimates import ESTIMATES, Estimated
from tracemine.findings.facts import Facts
from tracemine.findings.grouping import grouped
from tracemine.findings.groups import apart, combined, groups_of_sequences
from tracemine.findings.identity import Place, place_of, variant_of
from tracemine.findings.labels import common_module, text_at
from tracemine.findings.notes import gpu_name, warnings_of
from tracemine.findings.parts import parts_of
from tracemine.findings.payback import payback
from tracemine.findings.peak_memory import peak_memory
from tracemine.findings.ranking import SHOWN_SHARE, Scale, inside_steps, ranked
from tracemine.findings.record import Alike, Finding, Identity, Intensity, Scan, Source, TraceSummary
from tracemine.findings.recorded import recorded, spent
from tracemine.findings.sources import sources
from tracemine.findings.step_savings import Reported, felt, with_steps
from tracemine.findings.verdicts import Judge, judged, judged_ns
from tracemine.flow import Evidence
from tracemine.fusion import Groups, Refusal
from tracemine.matching import find as match
from tracemine.matching.advice import Fact, advised, fitting, merged
from tracemine.matching.rule import Matches, Rule
from tracemine.perfmodel import NOTHING, Abstained, Curves, Traffic, rms_norm_loses
from tracemine.rows.table import BoolArray, IntArray, Rows, category, number
from tracemine.timeline import Timeline

# Without a threshold from the caller: a thousandth of the span, and 1 µs at least.
_DEFAULT_SHARE, _DEFAULT_LEAST_NS = 1_000, 1_000
_SPREAD_OUT, _OUT_OF_LINE = 100, 10
_MOST_OPS = 8
_NAME_LIMIT = 512  # characters of a kernel's name in a finding; templates go on for pages


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
) -> Scan:
    """Everything there is to say about a trace, the most worth first: by what the step gains, then by GPU time.

    So on a trace whose device is mostly idle the gaps lead, on one whose device is busy the fusions, and of two fusions
    the one that the step feels.

    `groups`: the fusion groups that the rows were made with. What a rule says of part of a group it says of all of it.
    `device` is the trace's GPU (see `device_of`), and `curves` what fused times are read off, by default what the
    package has for it; without both, GPU time has no estimates. A finding whose savings (mid)
    are both below `min_saving_ns` claims nothing before all others have, is counted in `dropped` and not `reported`;
    the default is a thousandth of the span to claim, and a hundredth of the step or of GPU time to be reported.
    `judge` gives the verdict on a variant. What has one is listed, whatever it then saves, and keeps what it claimed.
    `path` is only repeated in the scan.
    """
    book = Book(timeline, rows, device, measure(timeline), groups, curves)
    gaps_ns = book.alone_ns[1]  # before anything is fixed
    threshold = (
        max(_DEFAULT_LEAST_NS, book.accounts.span_ns // _DEFAULT_SHARE) if min_saving_ns is None else min_saving_ns
    )
    if groups is not None:
        book.drop("path_not_known", groups.refusals.count(Refusal.BARRIER))
    places: dict[str, Place] = {}
    facts: dict[str, dict[str, Fact]] = {}
    reported: list[Reported] = []
    little: list[Reported] = []
    by_priority = sorted(matches, key=lambda m: (m.rule.priority, m.rule.id))
    for found in by_priority:
        for together in _by_finding(_of_rule(book, found, places, facts), places):
            (reported if _claimed(book, together, threshold) else little).extend(together)
    more, unfelt = felt(book, reported, little, threshold, lambda one: places[one.finding.fingerprint].mark)
    reported += more
    if judge is not None:
        reported = [_judged(one, judge) for one in reported]
    variants = with_steps(book, reported, unfelt, threshold)
    steps = 0 if book.accounts.per_step is None else book.accounts.per_step.count
    findings = _advised(book, grouped(variants, places), {each.rule.id: each.rule for each in by_priority}, facts)
    scale = Scale(
        steps=steps,
        unprofiled_ns=book.unprofiled.mid_ns,
        gpu_time_ns=book.accounts.gpu_time_ns,
        least_ns=threshold,
        least_share=SHOWN_SHARE if min_saving_ns is None else 0.0,
    )
    inside = {one.fingerprint: inside_steps(one, book.accounts.in_step, book.accounts.dur_ns) for one in findings}
    findings = ranked(findings, scale, inside)
    parts = parts_of(book, findings)
    unowned = timeline.activities["op_row"].null_count
    return Scan(
        trace=TraceSummary(
            path=timeline.meta.source if path is None else path,
            format=timeline.meta.format,
            gpu=gpu_name(timeline),
            steps=steps,
            activities=timeline.activities.num_rows,
            unattributed=unowned,
            estimated_for=None if device is None else device.title,
        ),
        summary=replace(
            summarise(book.accounts, findings, book.unprofiled),
            bound=bound_of(book, parts, gaps_ns),
            parts=parts,
            peak_memory=peak_memory(book, findings),
            payback=payback(findings),
        ),
        findings=tuple(findings),
        dropped=dict(sorted(book.dropped.items())),
        warnings=warnings_of(timeline, rows["gaps"], book.accounts, book.curves, book.steps.slowdown),
        recorded=recorded(timeline, book.accounts),
        spent=spent(book),
    )


def _of_rule(
    book: Book, found: Matches, places: dict[str, Place], facts: dict[str, dict[str, Fact]]
) -> Iterator[Reported]:
    """The variants of a rule's findings; where they are is added to `places`, what advice asks of them to `facts`."""
    rule = found.rule
    left = _left(book, found)
    members, offsets = apart(*_whole_groups(book, rule, left.rows, left.offsets))
    named_rows = np.zeros(book.rows[rule.rows].count, np.bool_)
    named_rows[left.rows] = True
    weakest = _weakest(left, len(named_rows))
    variants: dict[str, list[tuple[Identity, Estimated]]] = {}
    for matrix in _classes(book, rule, members, offsets, weakest):
        together = _together(book, rule, matrix)
        book.drop("spread_out", len(matrix) - len(together))
        matrix = together
        if not len(matrix):
            continue
        estimated = ESTIMATES[rule.saving](book, rule, matrix)
        if isinstance(estimated, Abstained):
            book.drop(estimated.reason, len(matrix))
        elif not estimated.gpu_saving_ns.mid and not estimated.step_saving_ns.mid:
            book.drop("nothing_to_win", len(matrix))
        else:
            sure = min(Evidence[estimated.evidence.upper()], Evidence(int(weakest[matrix].min())))
            estimated = dataclasses.replace(estimated, evidence=sure.name.lower())
            identity = variant_of(rule, estimated.label)
            variants.setdefault(identity.finding, []).append((identity, estimated))
    for mark, named in variants.items():
        classes = [estimated for _, estimated in named]
        places[mark] = place_of(rule, classes[0].label)
        first = named[_first(classes)][0]
        aliases = dict.fromkeys(alias for each in (first, *(each for each, _ in named)) for alias in each.aliases)
        facts[mark] = _facts(book, rule, classes, named_rows)
        savings = [one.gpu_saving_ns for one in classes]
        chosen = fitting(rule.advice, book.environment.facts | facts[mark])
        titled = rule if chosen is None or chosen.title is None else dataclasses.replace(rule, title=chosen.title)
        finding = _finding(book, titled, Identity(mark, tuple(aliases)), classes)
        call = rule.call if chosen is None or chosen.call is None else chosen.call
        yield Reported(finding, rule, [one.matrix for one in classes], savings, _first(classes), call)


def _facts(book: Book, rule: Rule, classes: Sequence[Estimated], named: BoolArray) -> dict[str, Fact]:
    """What advice may ask of a variant. `named`: rows that the rule's pattern names."""
    labels = [one.label for one in classes]
    found = merged(
        {
            "optimizer": label.optimizer,
            "module": label.module is not None,
            "library": library_of(source.file for source in label.source[:1]),
            "backward": label.backward,
            "operation": label.ops[0].removeprefix("aten::") if len(set(label.ops)) == 1 else None,
        }
        for label in labels
    )
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    if rule.rows != "gaps":
        found["training"] = book.training
        found["loop"] = text_at(category(book.rows["activities"], "sweep_kind"), int(rows[0]))
        found["invariant"] = text_at(category(book.rows["activities"], "invariant_kind"), int(rows[0]))
        found["fused_step"] = any(book.environment.has_fused_step(label.optimizer) for label in labels)
        return found | {"widened": not named[rows].all(), "slow_norm": _slow_norm(book, classes)}
    waited = waited_in(book.timeline, book.rows["gaps"], rows.tolist())
    optimizer = book.facts["gaps"].optimizer
    spent = np.bincount(optimizer.codes[rows] + 1, weights=book.facts["gaps"].dur_ns[rows])
    most = int(spent.argmax()) - 1  # by idle time
    return found | {"optimizer": optimizer.values[most] if most >= 0 else None} | ({waited: True} if waited else {})


def _slow_norm(book: Book, classes: Sequence[Estimated]) -> bool:
    """Whether, for rows of any of these, one kernel is clearly faster than PyTorch's own for a norm."""
    curves, groups = book.curves, book.groups
    if curves is None or groups is None:
        return False
    of_first = groups.activity_group[np.array([one.matrix[0, 0] for one in classes])]
    kernels = groups.kernel[of_first[of_first >= 0]]
    return any(rms_norm_loses(curves, groups.kernels[kernel]) for kernel in kernels[kernels >= 0].tolist())


def _advised(
    book: Book, findings: Iterable[Finding], rules: dict[str, Rule], facts: dict[str, dict[str, Fact]]
) -> list[Finding]:
    """The findings, each with the advice that fits the trace and its place."""
    found = []
    for finding in findings:
        own = merged(facts[variant.identity.finding] for variant in finding.variants)
        rule, of_trace = rules[finding.rule], book.environment
        fix = advised(rule.advice, rule.fix, of_trace.facts | own, of_trace.blockers_text)
        found.append(replace(finding, fix=fix))
    return found


def _by_finding(variants: Iterable[Reported], places: dict[str, Place]) -> list[list[Reported]]:
    """The variants of each finding, in order of first appearance."""
    found: dict[str, list[Reported]] = {}
    for one in variants:
        found.setdefault(places[one.finding.fingerprint].mark, []).append(one)
    return list(found.values())


def _claimed(book: Book, variants: Sequence[Reported], threshold_ns: int) -> bool:
    """Whether a finding saves enough to claim what it is made of. What fusing gains the step is not known yet."""
    gpu_ns, step_ns = (
        sum(each.mid for each in savings)
        for savings in (
            [one.finding.gpu_saving_ns for one in variants],
            [one.finding.step_saving_ns for one in variants],
        )
    )
    if max(gpu_ns, step_ns) < threshold_ns:
        return False
    for one in variants:
        for matrix in one.matrices:
            book.claimed[one.rule.rows][matrix] = True
    return True


def _judged(one: Reported, judge: Judge) -> Reported:
    """What a verdict makes of a finding: of the matches like the first, or, where it is refuted, of all."""
    alike, verified = one.finding.alike, judge(one.finding)
    if alike is None or verified is None:
        return one
    finding = judged(one.finding, verified)
    savings = [NOTHING if finding.refuted else saving for saving in one.savings]
    savings[one.first] = judged_ns(verified, alike.measured_ns, savings[one.first])
    return Reported(finding, one.rule, one.matrices, savings, one.first, one.call)


def _first(classes: Sequence[Estimated]) -> int:
    """Which class has the first occurrence."""
    return min(range(len(classes)), key=lambda i: int(classes[i].matrix[:, 0].min()))


def _left(book: Book, found: Matches) -> Matches:
    """A rule's matches among what nobody has claimed: where somebody has, it is matched anew."""
    claimed = book.claimed[found.rule.rows]
    if not claimed[found.rows].any():
        return found
    again = match(found.rule, book.rows[found.rule.rows], without=claimed)
    kept = np.zeros(len(claimed), dtype=bool)
    kept[again.rows] = True
    # A run that was cut is still there; what left nothing behind was another's altogether.
    left = np.bincount(np.repeat(np.arange(len(found)), np.diff(found.offsets)), kept[found.rows], len(found))
    book.drop("claimed_by_another_rule", int((left == 0).sum()))
    return again


def _weakest(found: Matches, count: int) -> npt.NDArray[np.int8]:
    """Of each row the evidence of the match that has it; where that has none, or none has it, the strongest."""
    weakest = np.full(count, Evidence.PROVEN, np.int8)
    if found.evidence is not None:
        weakest[found.rows] = np.repeat(
            np.where(found.evidence < 0, Evidence.PROVEN, found.evidence), np.diff(found.offsets)
        )
    return weakest


def _whole_groups(book: Book, rule: Rule, members: IntArray, offsets: IntArray) -> tuple[IntArray, IntArray]:
    """A match in a fusion group stands for the group, once; matches elsewhere stay as they are."""
    groups = book.groups
    if groups is None or rule.saving != "fuse" or len(offsets) < 2:
        return members, offsets
    group = groups.activity_group[members[offsets[:-1]]]
    first = np.zeros(len(group), dtype=bool)
    first[np.unique(group, return_index=True)[1]] = True
    # A user's rule may have claimed part of a group as neighbours: what is left of it is no kernel of its own.
    taken = np.zeros(len(groups), dtype=bool)
    taken[groups.activity_group[book.claimed[rule.rows] & (groups.activity_group >= 0)]] = True
    kept = np.flatnonzero(np.where(group >= 0, first & ~np.append(taken, False)[group], True))
    if not len(kept):
        return members[:0], offsets[:1]
    parts = [
        groups.activity[groups.activity_begin[g] : groups.activity_begin[g + 1]]
        if (g := int(group[at])) >= 0
        else members[offsets[at] : offsets[at + 1]]
        for at in kept.tolist()
    ]
    return np.concatenate(parts), np.concatenate(([0], np.cumsum([len(part) for part in parts])))


def _classes(
    book: Book, rule: Rule, members: IntArray, offsets: IntArray, weakest: npt.NDArray[np.int8]
) -> Iterable[IntArray]:
    """Matches that are alike, a matrix of row numbers for each class, in order of first appearance."""
    if len(offsets) < 2:
        return
    facts, rows = book.facts[rule.rows], book.rows[rule.rows]
    of_op = (facts.op, facts.shapes, facts.dtypes, facts.strides, facts.dtype, facts.module, facts.optimizer)
    columns: list[npt.NDArray[np.integer]] = [column.codes for column in of_op]
    columns += [facts.source.codes] if {"source", "line"} & set(rule.group_by) else []
    columns += [category(rows, "cause").codes] if rule.rows == "gaps" else []
    columns += [weakest] if rule.match else []
    columns += [number(rows, "bytes_moved")] if rule.saving == "pin_memory" else []
    columns += [category(rows, "invariant_evidence").codes] if rule.of_invariants else []
    if rule.saving == "fuse" and book.groups is not None:
        kind = (book.groups.kernel + 1) * len(Evidence) + book.groups.evidence
        figures = (
            *(kind, book.groups.bytes_before, book.groups.bytes_after),
            *(book.groups.intermediate_bytes, book.groups.product_bytes),
            *(book.groups.more_reads, book.groups.more_writes),
        )
        columns += [np.append(each, -1)[book.groups.activity_group] for each in figures]
    op_row = facts.op_row[members]
    follows = np.concatenate(([False], (op_row[1:] == op_row[:-1]) & (op_row[1:] >= 0)))
    follows[offsets[:-1]] = False  # the first of a match continues nothing
    code = combined(*(column[members].astype(np.int64) for column in columns), follows.astype(np.int64))
    group = groups_of_sequences(code, offsets)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for block in sorted(np.split(order, starts[1:]), key=lambda block: int(block[0])):
        length = int(offsets[block[0] + 1] - offsets[block[0]])
        yield members[offsets[block][:, None] + np.arange(length)]


def _together(book: Book, rule: Rule, matrix: IntArray) -> IntArray:
    """The occurrences but for those that lie far apart: over a hundred times their own time, alone or ten times what
    another one takes. A module was loaded in between, or a model warmed up: that is nothing to win by one kernel.
    """
    if rule.saving != "fuse":
        return matrix
    rows = book.rows[rule.rows]
    start, dur = (number(rows, name)[matrix] for name in ("start_ns", "dur_ns"))
    span = (start + dur).max(axis=1) - start.min(axis=1)
    out_of_line = span > _OUT_OF_LINE * span.min() if len(span) > 1 else np.ones(1, np.bool_)
    kept: IntArray = matrix[~((span > _SPREAD_OUT * dur.sum(axis=1)) & out_of_line)]
    return kept


def _finding(book: Book, rule: Rule, identity: Identity, classes: Sequence[Estimated]) -> Finding:
    """The variant of the classes with one identity; a shape or dtype that is not the same in all of them is null."""
    largest = max(classes, key=lambda one: (one.measured_ns, one.label.ops))
    label = largest.label
    gpu = sum((one.gpu_saving_ns for one in classes), NOTHING)
    step = sum((one.step_saving_ns for one in classes), NOTHING)
    after = [one.after_ns for one in classes if one.after_ns is not None]
    traffics = [one.traffic_bytes for one in classes if one.traffic_bytes is not None]
    intermediates = [one.intermediate_bytes for one in classes if one.intermediate_bytes is not None]
    flops = [one.flops for one in classes]
    occurrences = _occurrences(book, rule, classes)
    first = [row for one in classes for row in one.matrix[:1].tolist()]
    return Finding(
        fingerprint=identity.finding,
        identity=identity,
        rule=rule.id,
        cause=rule.id,
        title=rule.title,
        evidence=min((one.evidence for one in classes), key=("adjacent", "consistent", "proven").index),
        severity="low",  # until it is ranked
        occurrences=sum(len(one.matrix) for one in classes),
        activities=occurrences,
        ops=label.ops if "ops" in rule.group_by else _most_time(book.facts[rule.rows], classes),
        kernels=() if rule.rows == "gaps" else _kernels(book, min(first)),
        shapes=_same(one.label.shapes for one in classes),
        dtype=_same(one.label.dtype for one in classes),
        # Of paths that end in one class that where the most is; of those that the rule takes as one, what they share.
        module=label.module if "module" in rule.group_by else common_module([one.label.module for one in classes]),
        source=_source(book, rule, classes),
        measured_ns=sum(one.measured_ns for one in classes),
        fused_ns=sum(after, NOTHING) if len(after) == len(classes) else None,
        traffic_bytes=_total(traffics) if len(traffics) == len(classes) else None,
        flops=_sum_of(flops),
        arithmetic_intensity=_intensity(
            _sum_of(flops),
            _total(traffics) if len(traffics) == len(classes) else None,
            None if book.device is None else book.device.ridge(_same(one.label.dtype for one in classes)),
        ),
        intermediate_bytes=max(intermediates) if len(intermediates) == len(classes) else None,
        gpu_saving_ns=gpu,
        step_saving_ns=step,
        why=rule.why,
        fix=rule.fix,
        assumptions=tuple(dict.fromkeys(text for one in classes for text in one.assumptions)),
        alike=None if len(after) < len(classes) else _alike(classes[_first(classes)]),
    )


def _alike(one: Estimated) -> Alike:
    return Alike(occurrences=len(one.matrix), measured_ns=one.measured_ns, gpu_saving_ns=one.gpu_saving_ns)


def _sum_of(counts: Sequence[int | None]) -> int | None:
    """Their sum; None where one is not known, or beyond 64 bits."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) and sum(known) < 1 << 63 else None


def _intensity(flops: int | None, traffic: Traffic | None, ridge: float | None) -> Intensity | None:
    """FLOP per byte, as it is and with one kernel, beside the device's ridge point."""
    if flops is None or traffic is None or not traffic.before or not traffic.after:
        return None
    before, after = (round(flops / nbytes, 4) for nbytes in (traffic.before, traffic.after))
    return Intensity(before=before, after=after, ridge=None if ridge is None else round(ridge, 2))


def _total(traffics: Sequence[Traffic]) -> Traffic | None:
    """Their sum; None beyond 64 bits, which only a made-up shape reaches."""
    before, after = sum(t.before for t in traffics), sum(t.after for t in traffics)
    return Traffic(before=before, after=after) if before < 1 << 63 else None


def _occurrences(book: Book, rule: Rule, classes: Sequence[Estimated]) -> tuple[tuple[int, ...], ...]:
    """Activities of each occurrence in time order; of a gap, the activity that it kept waiting."""
    matrices = [one.matrix for one in classes]
    if rule.rows == "gaps":
        following = number(book.rows["gaps"], "next_row")
        matrices = [following[matrix] for matrix in matrices]
    return tuple(sorted(row for matrix in matrices for row in zip(*matrix.T.tolist(), strict=True)))


def _kernels(book: Book, members: Sequence[int]) -> tuple[str, ...]:
    return tuple((text_at(book.kernel_names, row) or "")[:_NAME_LIMIT] for row in members)


def _most_time(facts: Facts, classes: Sequence[Estimated]) -> tuple[str, ...]:
    """Where matches of different operators are one finding: those that took most of its time, at most eight."""
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    spent = np.bincount(facts.op.codes[rows] + 1, weights=facts.dur_ns[rows], minlength=len(facts.op.values) + 1)[1:]
    largest = np.argsort(-spent, kind="stable")[:_MOST_OPS]
    return tuple(facts.op.values[code] for code in largest.tolist() if spent[code] > 0)


def _source(book: Book, rule: Rule, classes: Sequence[Estimated]) -> tuple[Source, ...]:
    """Where a finding is: of gaps with different lines, the line at which the most was idle."""
    if rule.rows != "gaps":
        return max(classes, key=lambda one: (one.measured_ns, one.label.ops)).label.source
    facts = book.facts["gaps"]
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    rows = rows[facts.stack_row[rows] >= 0]
    if not len(rows):
        return ()
    idle = np.bincount(facts.source.codes[rows] + 1, weights=facts.dur_ns[rows])
    return sources(book.timeline, int(facts.stack_row[rows[facts.source.codes[rows] + 1 == idle.argmax()][0]]))


def _same(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None
