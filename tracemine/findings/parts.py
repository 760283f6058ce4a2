"""What a step is made of: its time by kind of work, each moment of a device once, and the idle rest.

Where several streams are at work, a moment counts for the first of PARTS that runs then. So communication counts as
far as nothing else hides it, and the parts and the idle time add up to the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tracemine.findings.context import Book
from tracemine.findings.facts import category
from tracemine.findings.record import NOTHING, Finding, Part, Parts, Range
from tracemine.perfmodel import Unprofiled
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray
from tracemine.units import shares

IDLE, OTHER, COMMUNICATION = "idle", "other", "communication"

# Kinds of work, and the operator classes of each; what is in none of them is `other`. The order is that in which they
# take a moment at which several run.
PARTS: Mapping[str, frozenset[str]] = {
    "products": frozenset({"gemm", "conv", "rnn"}),
    "attention": frozenset({"attention"}),
    "memory_bound": frozenset(
        {
            *("pointwise", "reduction", "norm", "softmax", "gather", "scatter", "embedding", "random", "pool"),
            *("resample", "loss", "quantize", "foreach", "scan"),
        }
    ),
    "optimizer": frozenset({"optimizer"}),
    OTHER: frozenset(),
    "copies": frozenset({"copy", "fill"}),
    COMMUNICATION: frozenset({"collective"}),
}
# What a rule's findings are made of, whatever their classes are.
OF_RULE = {"optimizer_unfused": "optimizer"}
_NAMES = tuple(PARTS)


class Shared(NamedTuple):
    """Nanoseconds by part in the order of PARTS, summed over devices."""

    busy_ns: list[int]  # each moment once
    covered_ns: int  # of communication beside other work


def parts_of(book: Book, findings: Sequence[Finding]) -> Parts | None:
    """The parts of the usual step with nobody recording, mean of steps and devices; None where nothing ran.

    Where no steps are known, of the whole span.
    """
    accounts, step = book.accounts, book.accounts.per_step
    part = part_of_activities(book, findings)
    chosen = np.ones(len(part), np.bool_) if step is None else accounts.in_step
    if not accounts.gpu_busy_ns or not chosen.any():
        return None
    shared = shared_among(*_places(book), np.where(chosen, part, -1))
    times = max(accounts.devices, 1) * (1 if step is None else max(step.count, 1))
    busy_ns = sum(shared.busy_ns) // times
    whole_ns = max(book.unprofiled.mid_ns, busy_ns)
    spent = np.bincount(part[chosen], weights=accounts.dur_ns[chosen], minlength=len(_NAMES))
    found = [
        Part(name=name, ns=ns, gpu_time_ns=int(gpu_ns) // times)
        for name, ns, gpu_ns in zip(_NAMES, shares(shared.busy_ns, busy_ns), spent.tolist(), strict=True)
        if gpu_ns
    ]
    return Parts(
        ns=whole_ns,
        parts=(*found, Part(name=IDLE, ns=whole_ns - busy_ns, gpu_time_ns=0)),
        covered_communication_ns=shared.covered_ns // times,
        after_ns=_after(book.unprofiled, findings, of_step=step is not None),
    )


def _after(unprofiled: Unprofiled, findings: Sequence[Finding], *, of_step: bool) -> Range:
    """How long it takes once all findings are fixed. No two of them save the same, so their savings add up."""
    saving = NOTHING
    for one in findings:
        saving += (one.per_step.step_saving_ns if one.per_step else NOTHING) if of_step else one.step_saving_ns
    low, mid, high = (max(unprofiled.mid_ns - each, 0) for each in (saving.high, saving.mid, saving.low))
    return Range(low, mid, high)


def part_of_activities(book: Book, findings: Sequence[Finding]) -> IntArray:
    """For each activity its part, as a position in PARTS."""
    rows = book.rows["activities"]
    part = parts_by_class(category(rows, "op_class"))
    part[book.facts["activities"].optimizer.codes >= 0] = _NAMES.index("optimizer")
    for finding in findings:
        if (name := OF_RULE.get(finding.rule)) is not None and finding.on_gpu:
            part[[row for occurrence in finding.activities for row in occurrence]] = _NAMES.index(name)
    return part


def parts_by_class(op_class: Categories) -> IntArray:
    """The part of each activity by its class alone.

    >>> [_NAMES[at] for at in parts_by_class(Categories(np.array([1, 0, -1]), ("gemm", "norm")))]
    ['memory_bound', 'products', 'other']
    """
    of = [next((at for at, name in enumerate(_NAMES) if kind in PARTS[name]), -1) for kind in op_class.values]
    other = _NAMES.index(OTHER)
    return np.array([other if at < 0 else at for at in (*of, other)], np.int64)[op_class.codes]


def shared_among(device: IntArray, start: IntArray, end: IntArray, part: IntArray) -> Shared:
    """Each moment of a device at which something of a part runs, given to the first part that runs then.

    Activities in order of start; those of part −1 do not count.

    >>> one = np.zeros(2, np.int64)
    >>> shared_among(one, np.array([0, 5]), np.array([10, 20]), np.array([6, 0])).busy_ns
    [15, 0, 0, 0, 0, 0, 5]
    """
    busy, before = [], 0
    for at in range(len(_NAMES)):
        until = covered_ns(device, start, end, (part >= 0) & (part <= at))
        busy.append(until - before)
        before = until
    last = _NAMES.index(COMMUNICATION)
    return Shared(busy, covered_ns(device, start, end, part == last) - busy[last])


def covered_ns(device: IntArray, start: IntArray, end: IntArray, among: BoolArray) -> int:
    """For how long devices ran some of these activities, in order of start; a device at a time."""
    covered = 0
    for ordinal in np.unique(device[among]):
        rows = among & (device == ordinal)
        begins, ends = start[rows], end[rows]
        before = np.concatenate((begins[:1], np.maximum.accumulate(ends)[:-1]))
        covered += int(np.maximum(ends - np.maximum(begins, before), 0).sum())
    return covered


def _places(book: Book) -> tuple[IntArray, IntArray, IntArray]:
    """Of each activity its device, start and end."""
    device, start = (rows_of(book.timeline.activities[name]) for name in ("device", "start_ns"))
    return device, start, start + book.accounts.dur_ns
