"""One variant of a finding from the classes of matches that share its identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.facts import Facts
from tracemine.findings.labels import common_module, sources, text_at
from tracemine.findings.record import NOTHING, Alike, Finding, Identity, Intensity, Source, Traffic
from tracemine.matching.rule import Rule
from tracemine.rows.table import number

_T = TypeVar("_T")
_EVIDENCE = ("adjacent", "consistent", "proven")


def totals(parts: Sequence[ClassEstimate] | Sequence[Finding]) -> dict[str, Any]:
    """Return the fields of a finding that its parts add up to."""
    fused_ns = _known(part.fused_ns for part in parts)
    intermediate_bytes = _known(part.intermediate_bytes for part in parts)
    return {
        "evidence": min((part.evidence for part in parts), key=_rank),
        "measured_ns": sum(part.measured_ns for part in parts),
        "fused_ns": None if fused_ns is None else sum(fused_ns, NOTHING),
        "traffic_bytes": _traffic([part.traffic_bytes for part in parts]),
        "flops": _sum_of(part.flops for part in parts),
        "intermediate_bytes": None if intermediate_bytes is None else max(intermediate_bytes),
        "gpu_saving_ns": sum((part.gpu_saving_ns for part in parts), NOTHING),
        "step_saving_ns": sum((part.step_saving_ns for part in parts), NOTHING),
        "assumptions": tuple(dict.fromkeys(text for part in parts for text in part.assumptions)),
    }


def intensity(flops: int | None, traffic: Traffic | None, ridge: float | None) -> Intensity | None:
    """Return FLOP per byte, as it is and with one kernel, and the device's ridge point."""
    if flops is None or traffic is None or not traffic.before or not traffic.after:
        return None
    before, after = (round(flops / nbytes, 4) for nbytes in (traffic.before, traffic.after))
    return Intensity(before=before, after=after, ridge=None if ridge is None else round(ridge, 2))


def common(values: Iterable[_T | None]) -> _T | None:
    """Return what all values are; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _known(values: Iterable[_T | None]) -> list[_T] | None:
    """Return the values where all are known.

    >>> _known([1, 2]), _known([1, None])
    ([1, 2], None)
    """
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else None


def _sum_of(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None also beyond 64 bits, which only a made-up shape reaches."""
    known = _known(counts)
    return sum(known) if known is not None and sum(known) < 1 << 63 else None


def _traffic(traffics: Sequence[Traffic | None]) -> Traffic | None:
    before, after = (
        _sum_of(None if one is None else getattr(one, name) for one in traffics) for name in ("before", "after")
    )
    return None if before is None or after is None else Traffic(before=before, after=after)


def _rank(evidence: str) -> int:
    return _EVIDENCE.index(evidence) if evidence in _EVIDENCE else 0  # a stored file may say anything


_MOST_OPS = 8
_NAME_LIMIT = 512  # characters of a kernel's name in a finding; templates go on for pages


def variant_finding(context: ScanContext, rule: Rule, identity: Identity, classes: Sequence[ClassEstimate]) -> Finding:
    """Return the variant as a finding; a shape or dtype that is not the same in all classes is null."""
    label = _most_measured(classes).label
    sums = totals(classes)
    dtype, first = common(one.label.dtype for one in classes), classes[first_class(classes)]
    alike = Alike(occurrences=len(first.matrix), measured_ns=first.measured_ns, gpu_saving_ns=first.gpu_saving_ns)
    ridge = None if context.device is None else context.device.ridge(dtype)
    return Finding(
        fingerprint=identity.finding,
        identity=identity,
        rule=rule.id,
        cause=rule.id,
        title=rule.title,
        severity="low",  # until it is ranked
        occurrences=sum(len(one.matrix) for one in classes),
        activities=_occurrences(context, rule, classes),
        ops=label.ops if "ops" in rule.group_by else _most_time(context.facts[rule.rows], classes),
        kernels=() if rule.rows == "gaps" else _kernels(context, min(one.matrix[0].tolist() for one in classes)),
        shapes=common(one.label.shapes for one in classes),
        dtype=dtype,
        # Of paths that end in one class that where the most is; of those that the rule takes as one, what they share.
        module=label.module if "module" in rule.group_by else common_module([one.label.module for one in classes]),
        source=_source(context, rule, classes),
        arithmetic_intensity=intensity(sums["flops"], sums["traffic_bytes"], ridge),
        why=rule.why,
        fix=rule.fix,
        alike=None if sums["fused_ns"] is None else alike,
        **sums,
    )


def first_class(classes: Sequence[ClassEstimate]) -> int:
    """Return which class has the first occurrence."""
    return min(range(len(classes)), key=lambda i: int(classes[i].matrix[:, 0].min()))


def _most_measured(classes: Sequence[ClassEstimate]) -> ClassEstimate:
    return max(classes, key=lambda one: (one.measured_ns, one.label.ops))


def _occurrences(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate]) -> tuple[tuple[int, ...], ...]:
    """Return activities of each occurrence in time order; of a gap, the activity that it kept waiting."""
    matrices = [one.matrix for one in classes]
    if rule.rows == "gaps":
        following = number(context.rows["gaps"], "next_row")
        matrices = [following[matrix] for matrix in matrices]
    return tuple(sorted(row for matrix in matrices for row in zip(*matrix.T.tolist(), strict=True)))


def _kernels(context: ScanContext, members: Sequence[int]) -> tuple[str, ...]:
    return tuple((text_at(context.kernel_names, row) or "")[:_NAME_LIMIT] for row in members)


def _most_time(facts: Facts, classes: Sequence[ClassEstimate]) -> tuple[str, ...]:
    """Return the operators that took most of a finding's time, eight at most."""
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    spent = np.bincount(facts.op.codes[rows] + 1, weights=facts.dur_ns[rows], minlength=len(facts.op.values) + 1)[1:]
    largest = np.argsort(-spent, kind="stable")[:_MOST_OPS]
    return tuple(facts.op.values[code] for code in largest.tolist() if spent[code] > 0)


def _source(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate]) -> tuple[Source, ...]:
    """Return where a finding is: of gaps with different lines, the line at which the most was idle."""
    if rule.rows != "gaps" or "source" in rule.group_by:
        return _most_measured(classes).label.source
    facts = context.facts["gaps"]
    rows = np.concatenate([one.matrix.reshape(-1) for one in classes])
    rows = rows[facts.stack_row[rows] >= 0]
    if not len(rows):
        return ()
    idle = np.bincount(facts.source.codes[rows] + 1, weights=facts.dur_ns[rows])
    return sources(context.timeline, int(facts.stack_row[rows[facts.source.codes[rows] + 1 == idle.argmax()][0]]))
