"""Peak memory, and how much lower it is without the tensors that findings remove.

A tensor that need not exist is found among the allocations that were recorded: one of its size within the operator
that makes it. It is there from then until its address is freed. So tensors that are never there at one time do not
add up, and one that is gone long before the peak lowers nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from tracemine.findings.context import ScanContext
from tracemine.findings.record import Finding, PeakMemory, activity_rows
from tracemine.fusion import Groups
from tracemine.rows.ancestors import nearest
from tracemine.rows.arrow import categories, numbers, rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

# PyTorch's allocator rounds to multiples of the first; of a block that is larger than the second it gives all, where it
# would have to keep a rest no larger than that (c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize, kSmallSize).
_ROUNDED_BYTES, _SMALL_BYTES = 512, 1 << 20


class Events(Struct, frozen=True):
    """Allocations and frees of one device, in order of time."""

    start_ns: IntArray
    bytes: IntArray  # negative: freed
    address: IntArray
    allocated_bytes: IntArray  # from then on
    op_row: IntArray


def peak_memory(context: ScanContext, findings: Sequence[Finding]) -> PeakMemory | None:
    """Return the largest peak of a step; None where allocations were not recorded, or dataflow is not known."""
    groups, events = context.groups, events_of(context.timeline)
    if groups is None or events is None or not len(groups.node_group):
        return None
    there, missing = gone_bytes(context.timeline, events, groups, _claimed(groups, findings))
    inside = _in_steps(context.timeline, events.start_ns)
    if not inside.any():
        return None
    return PeakMemory(
        before_bytes=int(events.allocated_bytes[inside].max()),
        after_bytes=int((events.allocated_bytes - there)[inside].max()),
        not_found=missing,
    )


def events_of(timeline: Timeline) -> Events | None:
    """Return what the allocator of the GPU with most events reported; None where it was not recorded."""
    table = timeline.memory
    if not table.num_rows or any(table[name].null_count for name in ("device", "address", "allocated_bytes")):
        return None
    device = categories(table["device"])
    on_gpu = np.array([*(not name.startswith("cpu") for name in device.values), False], np.bool_)[device.codes]
    if not on_gpu.any():
        return None
    most = int(np.bincount(device.codes[on_gpu]).argmax())
    rows = device.codes == most
    start, nbytes, address, allocated = (
        numbers(table[name]).values.astype(np.int64)[rows]
        for name in ("start_ns", "bytes", "address", "allocated_bytes")
    )
    return Events(start, nbytes, address, allocated, rows_of(table["op_row"])[rows])


def gone_bytes(timeline: Timeline, events: Events, groups: Groups, claimed: BoolArray) -> tuple[IntArray, int]:
    """Return the bytes, after each event, of tensors that need not be; and how many of these were not found.

    claimed: the groups that findings make one kernel of.
    """
    chosen = np.flatnonzero(claimed[groups.gone_group]) if len(groups.gone_group) else groups.gone_group
    size = -(-groups.gone_bytes[chosen] // _ROUNDED_BYTES) * _ROUNDED_BYTES
    made_by = np.zeros(timeline.ops.num_rows, np.bool_)
    made_by[groups.gone_op_row[chosen]] = True
    around = nearest(rows_of(timeline.ops["parent_row"]), made_by)
    owner = np.where(events.op_row >= 0, around[events.op_row], -1) if len(around) else events.op_row
    freed = _freed(events)
    inside = (freed >= 0) & (owner[freed] == owner)  # an operator's own scratch
    at = _matched(groups.gone_op_row[chosen], size, np.where(events.bytes > 0, owner, -1), events.bytes, inside)
    found = at[at >= 0]
    change = np.zeros(len(events.bytes), np.int64)
    change[found] += events.bytes[found]
    ended = found[freed[found] >= 0]
    change[freed[ended]] -= events.bytes[ended]
    return np.cumsum(change), int((at < 0).sum())


def _matched(op_row: IntArray, size: IntArray, owner: IntArray, nbytes: IntArray, scratch: BoolArray) -> IntArray:
    """Return, for each tensor, its operator's allocation that fits best, each once, in order; −1 where none fits."""
    wanted = np.isin(owner, op_row) & (owner >= 0)
    left: dict[int, list[tuple[bool, int, int]]] = {}
    for at in np.flatnonzero(wanted).tolist():
        left.setdefault(int(owner[at]), []).append((bool(scratch[at]), int(nbytes[at]), at))
    found = []
    for op, least in zip(op_row.tolist(), size.tolist(), strict=True):
        most = least + _SMALL_BYTES if least > _SMALL_BYTES else least
        fitting = [each for each in left.get(op, ()) if least <= each[1] <= most]
        if fitting:
            left[op].remove(min(fitting))
        found.append(min(fitting)[2] if fitting else -1)
    return np.array(found, np.int64)


def _freed(events: Events) -> IntArray:
    """Return, for each event, the next at its address where that frees it; −1 where none does."""
    order = np.argsort(events.address, kind="stable")
    following = np.full(len(order), -1, np.int64)
    same = events.address[order[1:]] == events.address[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    frees = (following >= 0) & (events.bytes[following] == -events.bytes)
    return np.where(frees, following, -1)


def _claimed(groups: Groups, findings: Sequence[Finding]) -> BoolArray:
    """Return the groups of which a finding that one kernel replaces has all activities."""
    fused = [
        finding
        for finding in findings
        if finding.on_gpu and finding.intermediate_bytes is not None and not finding.refuted
    ]
    found = np.zeros(len(groups), np.bool_)
    of = groups.activity_group[activity_rows(fused)]
    found[of[of >= 0]] = True
    return found


def _in_steps(timeline: Timeline, moment_ns: IntArray) -> BoolArray:
    """Return which moments lie in a marked step; all where there is none."""
    if not timeline.steps.num_rows:
        return np.ones(len(moment_ns), np.bool_)
    begin, dur = (numbers(timeline.steps[name]).values.astype(np.int64) for name in ("start_ns", "dur_ns"))
    at = np.searchsorted(begin, moment_ns, "right") - 1
    inside: BoolArray = (at >= 0) & (moment_ns < (begin + dur)[np.maximum(at, 0)])
    return inside
