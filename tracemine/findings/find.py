"""Matches to findings: claimed without overlap, grouped by what they are, estimated, ranked.

Rules claim in the order of their priority, and each is matched against what those before it left. A match keeps its
rows only if its finding is reported: what one rule finds not worth reporting is free for the next. Python runs once a
distinct chain, never once a match.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from tracemine.devices import Device
from tracemine.findings.accounting import measure, summarise
from tracemine.findings.context import Book
from tracemine.findings.estimates import ESTIMATES, Estimated
from tracemine.findings.facts import Facts, category, number
from tracemine.findings.groups import apart, combined, groups_of_sequences
from tracemine.findings.labels import common_module, text_at
from tracemine.findings.notes import gpu_name, warnings_of
from tracemine.findings.record import Alike, Finding, Intensity, Scan, Source, TraceSummary
from tracemine.findings.sources import sources
from tracemine.findings.step_savings import Reported, felt, severity, with_steps
from tracemine.findings.verdicts import Judge, judged, judged_ns
from tracemine.flow import Evidence
from tracemine.fusion import Groups
from tracemine.matching import find as match
from tracemine.matching.rule import Matches, Rule
from tracemine.perfmodel import NOTHING, Abstained, Curves, Traffic
from tracemine.rows.table import IntArray, Rows
from tracemine.timeline import Timeline

# Without a threshold from the caller: a thousandth of the span, and 1 µs at least.
_DEFAULT_SHARE, _DEFAULT_LEAST_NS = 1_000, 1_000
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
    """Everything worth saying about a trace, the most worth first: by step time and GPU time saved (mid) together.

    So on a trace whose device is mostly idle the gaps lead, on one whose device is busy the fusions, and of two fusions
    the one that the step feels.

    `groups`: the fusion groups that the rows were made with. What a rule says of part of a group it says of all of it.
    `device` is the trace's GPU (see `device_of`), and `curves` what fused times are read off, by default what the
    package has for it; without both, GPU time has no estimates. A finding whose savings (mid)
    are both below `min_saving_ns` is counted in `dropped` and not reported; the default is a thousandth of the span.
    `judge` gives the verdict on a finding. What has one is listed, whatever it then saves, and keeps what it claimed.
    `path` is only repeated in the scan.
    """
    book = Book(timeline, rows, device, measure(timeline), groups, curves)
    threshold = (
        max(_DEFAULT_LEAST_NS, book.accounts.span_ns // _DEFAULT_SHARE) if min_saving_ns is None else min_saving_ns
    )
    reported: list[Reported] = []
    little: list[Reported] = []
    for found in sorted(matches, key=lambda m: (m.rule.priority, m.rule.id)):
        for one in _of_rule(book, found):
            (reported if _claimed(book, one, threshold) else little).append(one)
    reported += felt(book, reported, little, threshold)
    if judge is not None:
        reported = [_judged(one, judge) for one in reported]
    findings = with_steps(book, reported, threshold)
    findings.sort(key=lambda f: (-f.step_saving_ns.mid - f.gpu_saving_ns.mid, f.fingerprint))
    unowned = timeline.activities["op_row"].null_count
    return Scan(
        trace=TraceSummary(
            path=timeline.meta.source if path is None else path,
            format=timeline.meta.format,
            gpu=gpu_name(timeline),
            steps=timeline.steps.num_rows,
            activities=timeline.activities.num_rows,
            unattributed=unowned,
        ),
        summary=summarise(book.accounts, findings),
        findings=tuple(findings),
        dropped=dict(sorted(book.dropped.items())),
        warnings=warnings_of(timeline, rows["gaps"], book.accounts, book.curves, book.steps.slowdown),
    )


def fingerprint(parts: dict[str, object]) -> str:
    """Sixteen hex digits that depend on the given parts alone, whatever their order.

    >>> fingerprint({"rule": "x", "ops": ["aten::mul"]}) == fingerprint({"ops": ["aten::mul"], "rule": "x"})
    True
    """
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


def _of_rule(book: Book, found: Matches) -> Iterator[Reported]:
    rule = found.rule
    members, offsets = apart(*_whole_groups(book, rule, *_left(book, found)))
    groups: dict[str, list[Estimated]] = {}
    for matrix in _classes(book, rule, members, offsets):
        estimated = ESTIMATES[rule.saving](book, rule, matrix)
        if isinstance(estimated, Abstained):
            book.drop(estimated.reason, len(matrix))
        elif not estimated.gpu_saving_ns.mid and not estimated.step_saving_ns.mid:
            book.drop("nothing_to_win", len(matrix))
        else:
            groups.setdefault(fingerprint(estimated.label.signature(rule)), []).append(estimated)
    for mark, classes in groups.items():
        finding = _finding(book, rule, mark, classes)
        savings = [one.gpu_saving_ns for one in classes]
        yield Reported(finding, rule, [one.matrix for one in classes], savings, _first(classes))


def _claimed(book: Book, one: Reported, threshold_ns: int) -> bool:
    """Whether a finding saves enough to claim what it is made of. What fusing gains the step is not known yet."""
    if max(one.finding.gpu_saving_ns.mid, one.finding.step_saving_ns.mid) < threshold_ns:
        return False
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
    return Reported(finding, one.rule, one.matrices, savings, one.first)


def _first(classes: Sequence[Estimated]) -> int:
    """Which class has the first occurrence."""
    return min(range(len(classes)), key=lambda i: int(classes[i].matrix[:, 0].min()))


def _left(book: Book, found: Matches) -> tuple[IntArray, IntArray]:
    """Rows and offsets of a rule's matches among what nobody has claimed: where somebody has, it is matched anew."""
    claimed = book.claimed[found.rule.rows]
    if not claimed[found.rows].any():
        return found.rows, found.offsets
    again = match(found.rule, book.rows[found.rule.rows], without=claimed)
    kept = np.zeros(len(claimed), dtype=bool)
    kept[again.rows] = True
    # A run that was cut is still there; what left nothing behind was another's altogether.
    left = np.bincount(np.repeat(np.arange(len(found)), np.diff(found.offsets)), kept[found.rows], len(found))
    book.drop("claimed_by_another_rule", int((left == 0).sum()))
    return again.rows, again.offsets


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


def _classes(book: Book, rule: Rule, members: IntArray, offsets: IntArray) -> Iterable[IntArray]:
    """Matches that are alike, a matrix of row numbers for each class, in order of first appearance."""
    if len(offsets) < 2:
        return
    facts, rows = book.facts[rule.rows], book.rows[rule.rows]
    of_op = (facts.op, facts.shapes, facts.dtypes, facts.strides, facts.dtype, facts.module)
    columns: list[npt.NDArray[np.integer]] = [column.codes for column in of_op]
    columns += [facts.source.codes] if {"source", "line"} & set(rule.group_by) else []
    columns += [category(rows, "cause").codes] if rule.rows == "gaps" else []
    columns += [number(rows, "bytes_moved")] if rule.saving == "pin_memory" else []
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


def _finding(book: Book, rule: Rule, mark: str, classes: Sequence[Estimated]) -> Finding:
    """One finding of the classes with one fingerprint; a shape or dtype that is not the same in all of them is null."""
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
        fingerprint=mark,
        rule=rule.id,
        title=rule.title,
        evidence=min((one.evidence for one in classes), key=("adjacent", "consistent", "proven").index),
        severity=severity(book, gpu, step),
        occurrences=sum(len(one.matrix) for one in classes),
        activities=occurrences,
        ops=label.ops if "ops" in rule.group_by else _most_time(book.facts[rule.rows], classes),
        kernels=() if rule.rows == "gaps" else _kernels(book, min(first)),
        shapes=_same(one.label.shapes for one in classes),
        dtype=_same(one.label.dtype for one in classes),
        module=common_module([one.label.module for one in classes]),
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
