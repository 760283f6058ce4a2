"""Parts of a step: its time by kind of work, each moment of a device once, and the idle rest.

Where several streams are at work, a moment counts for the first of PARTS that runs then. So communication counts as
far as nothing else hides it, and the parts and the idle time add up to the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from tracemine.columns import sorted_unique, uncovered
from tracemine.findings.ceiling import least_times
from tracemine.findings.context import Cause, ScanContext
from tracemine.findings.record import NOTHING, Finding, Part, Parts, Range, activity_rows
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray, Rows, category
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
_NAMES = tuple(PARTS)
_MOST_OF_IT = 0.5  # of GPU time: a least that is known of less says nothing


def parts_of(context: ScanContext, findings: Sequence[Finding]) -> Parts | None:
    """Return the parts of the usual unprofiled step, mean of steps and devices; None where nothing ran.

    Where no steps are known, of the whole span.
    """
    accounts, step = context.accounts, context.accounts.per_step
    part = part_of_activities(context.rows["activities"], findings, context.causes)
    chosen = np.ones(len(part), np.bool_) if step is None else accounts.in_step
    if not accounts.dur_ns[chosen].any():
        return None
    all_ns, overlapped_ns = shared_among(*_places(context), np.where(chosen, part, -1))
    times = max(accounts.devices, 1) * (1 if step is None else max(step.count, 1))
    busy_ns = sum(all_ns) // times
    whole_ns = max(context.unprofiled.mid_ns, busy_ns)
    spent = _by_part(part, accounts.dur_ns, chosen)
    least = least_times(context, findings)
    known = bottom = [0] * len(_NAMES)
    if least is not None:
        least_ns, is_known = least
        known, bottom = _by_part(part, accounts.dur_ns, chosen & is_known), _by_part(part, least_ns, chosen)
    found = [
        Part(
            name=name,
            ns=ns,
            gpu_time_ns=spent[at] // times,
            least_gpu_time_ns=bottom[at] // times if known[at] else None,
        )
        for at, (name, ns) in enumerate(zip(_NAMES, shares(all_ns, busy_ns), strict=True))
        if spent[at]
    ]
    known_share = sum(known) / max(sum(spent), 1)
    made = Parts(
        ns=whole_ns,
        parts=(*found, Part(name=IDLE, ns=whole_ns - busy_ns, gpu_time_ns=0)),
        covered_communication_ns=overlapped_ns // times,
        after_ns=NOTHING,
        gpu_time_after_ns=None if least is None else NOTHING,
        least_gpu_time_ns=sum(bottom) // times if known_share >= _MOST_OF_IT else None,
        least_known_share=round(known_share, 4),
    )
    return fixed(made, context.unprofiled.mid_ns, findings, devices=accounts.devices)


def fixed(parts: Parts, unprofiled_ns: int, findings: Sequence[Finding], *, devices: int) -> Parts:
    """Return the parts with the time left once all findings are fixed. No two save the same, so savings add up."""
    saved = [finding.per_step or finding for finding in findings]
    step = sum((one.step_saving_ns for one in saved), NOTHING)
    gpu = sum((one.gpu_saving_ns for one in saved), NOTHING) // max(devices, 1)
    spent = sum(part.gpu_time_ns for part in parts.parts)
    after = None if parts.gpu_time_after_ns is None else _less(spent, gpu)
    return replace(parts, after_ns=_less(unprofiled_ns, step), gpu_time_after_ns=after)


def _less(whole_ns: int, saving: Range) -> Range:
    """Return the rest of a time.

    >>> _less(10, Range(1, 5, 12))
    Range(low=0, mid=5, high=9)
    """
    return Range(*(max(whole_ns - each, 0) for each in (saving.high, saving.mid, saving.low)))


def _by_part(part: IntArray, ns: IntArray, chosen: BoolArray) -> list[int]:
    total = np.zeros(len(_NAMES), np.int64)
    np.add.at(total, part[chosen], ns[chosen])
    sums: list[int] = total.tolist()
    return sums


def part_of_activities(rows: Rows, findings: Sequence[Finding], causes: Sequence[Cause]) -> IntArray:
    """Return the part of each activity, as a position in PARTS. rows: the row set `activities`.

    causes: those whose findings are of one part, whatever their operators' classes say.
    """
    of_rule = {cause.rule: cause.part for cause in causes}
    part = parts_by_class(category(rows, "op_class"))
    part[category(rows, "optimizer").codes >= 0] = _NAMES.index("optimizer")
    for finding in findings:
        if (name := of_rule.get(finding.rule)) is not None and finding.on_gpu:
            part[activity_rows([finding])] = _NAMES.index(name)
    return part


def parts_by_class(op_class: Categories) -> IntArray:
    """Return the part of each activity by its class alone.

    >>> [_NAMES[at] for at in parts_by_class(Categories(np.array([1, 0, -1]), ("gemm", "norm")))]
    ['memory_bound', 'products', 'other']
    """
    of = [next((at for at, name in enumerate(_NAMES) if kind in PARTS[name]), -1) for kind in op_class.values]
    other = _NAMES.index(OTHER)
    return np.array([other if at < 0 else at for at in (*of, other)], np.int64)[op_class.codes]


def shared_among(device: IntArray, start: IntArray, end: IntArray, part: IntArray) -> tuple[list[int], int]:
    """Give each moment of a device at which something of a part runs to the first part that runs then.

    Return nanoseconds by part in the order of PARTS, summed over devices, and those of communication that overlaps
    other work.

    Activities in order of start; those of part −1 do not count.

    >>> one = np.zeros(2, np.int64)
    >>> shared_among(one, np.array([0, 5]), np.array([10, 20]), np.array([6, 0]))
    ([15, 0, 0, 0, 0, 0, 5], 5)
    """
    busy, before = [], 0
    for at in range(len(_NAMES)):
        until = covered_ns(device, start, end, (part >= 0) & (part <= at))
        busy.append(until - before)
        before = until
    last = _NAMES.index(COMMUNICATION)
    return busy, covered_ns(device, start, end, part == last) - busy[last]


def covered_ns(device: IntArray, start: IntArray, end: IntArray, among: BoolArray) -> int:
    """Return for how long devices ran some of these activities, in order of start; a device at a time."""
    covered = 0
    for ordinal in sorted_unique(device[among]):
        rows = among & (device == ordinal)
        covered += int(uncovered(start[rows], end[rows]).sum())
    return covered


def _places(context: ScanContext) -> tuple[IntArray, IntArray, IntArray]:
    """Return the device, start and end of each activity."""
    device, start = (rows_of(context.timeline.activities[name]) for name in ("device", "start_ns"))
    return device, start, start + context.accounts.dur_ns
