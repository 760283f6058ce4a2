"""Transfers between host and device: how much they move, how fast, from which memory, and how long they run alone."""

from __future__ import annotations

import numpy as np

from tracemine.findings.context import ScanContext
from tracemine.findings.parts import covered_ns
from tracemine.findings.record import Transfers
from tracemine.rows.activities import BETWEEN, LEAST_PERCENT
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, category, number
from tracemine.timeline import Timeline
from tracemine.units import bytes_text, percent_text

_NO_HOST = frozenset({"device", "array"})
_SECOND_NS = 1_000_000_000


def transfers_of(context: ScanContext) -> Transfers | None:
    """Return what moved between host and device, in steps where any are known; None where nothing did."""
    timeline, accounts = context.timeline, context.accounts
    counts = accounts.in_step if accounts.steps else np.ones(len(accounts.dur_ns), np.bool_)
    copies = categories(timeline.activities["copy_kind"]).among(*BETWEEN) & counts
    if not copies.any():
        return None
    nbytes = np.maximum(rows_of(timeline.activities["bytes"]), 0)
    alone_ns = _alone_ns(context, counts, copies)
    times = max(accounts.devices, 1) * max(accounts.steps, 1)
    moved, spent_ns = int(nbytes[copies].sum()), int(accounts.dur_ns[copies].sum())
    return Transfers(
        alone_share=round(min(alone_ns / times / max(context.unprofiled.mid_ns, 1), 1.0), 4),
        bytes=moved // max(accounts.steps, 1),
        bytes_per_s=moved * _SECOND_NS // max(spent_ns, 1),
        memory=_memory(timeline, copies),
    )


def _alone_ns(context: ScanContext, counts: BoolArray, copies: BoolArray) -> int:
    """Return for how long copies run alone: as recorded, or less where the host is as fast as it is unprofiled. Kernels
    that a recorder makes come late leave a copy alone that otherwise overlaps them.
    """
    device, start = (rows_of(context.timeline.activities[name]) for name in ("device", "start_ns"))
    times = [(start, start + context.accounts.dur_ns)]
    if context.steps.slowdown is not None:
        times.append(context.steps.usual_times)
    found = []
    for began, ended in times:
        order = np.argsort(began, kind="stable")
        every = device[order], began[order], ended[order]
        found.append(covered_ns(*every, counts[order]) - covered_ns(*every, (counts & ~copies)[order]))
    return min(found)


def exposed_text(context: ScanContext) -> str:
    """Return what copies move, how fast, and what overlaps them; "" where they take little alone."""
    rows, transfers = context.rows["activities"], transfers_of(context)
    copies = category(rows, "copy_kind").among(*BETWEEN)
    if transfers is None or number(rows, "exposed_percent")[copies].max(initial=0) < LEAST_PERCENT:
        return ""
    spent_ns = int(context.accounts.dur_ns[copies].sum())
    alone_ns = min(
        int(number(rows, "exposed_ns")[copies].sum()), _alone_ns(context, np.ones(rows.count, np.bool_), copies)
    )
    if 100 * alone_ns < LEAST_PERCENT * context.accounts.gpu_busy_ns:
        return ""
    memory = "" if transfers.memory is None else f", {transfers.memory} memory"
    each = "a step" if context.accounts.steps else "in all"
    beside = percent_text(spent_ns - alone_ns, spent_ns)
    moved = f"{bytes_text(transfers.bytes)} {each} at {bytes_text(transfers.bytes_per_s)}/s{memory}"
    return f"Copies between host and device: {moved}; {beside} overlapped."


def _memory(timeline: Timeline, copies: BoolArray) -> str | None:
    """Return the kind of the host's memory of most bytes; None where that was not recorded."""
    nbytes, most = np.maximum(rows_of(timeline.activities["bytes"]), 0), dict[str, int]()
    for name in ("source_memory", "target_memory"):
        kind = categories(timeline.activities[name])
        for code, value in enumerate(kind.values):
            if value not in _NO_HOST:
                most[value] = most.get(value, 0) + int(nbytes[copies & (kind.codes == code)].sum())
    named = max(most, key=most.__getitem__, default=None)
    return named if named is not None and most[named] else None
