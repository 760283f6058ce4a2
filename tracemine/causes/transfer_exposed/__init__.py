"""Copies between host and device that nothing overlaps."""

from __future__ import annotations

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.columns import sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import rows_of
from tracemine.rows.host import host_calls
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, Flags, IntArray, Rows, Sources, category, number
from tracemine.units import bytes_text, percent_text


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    late: BoolArray = np.zeros(activities.count, np.bool_)
    exposed = number(activities, "exposed_ns", null=0) > 0
    copies = np.flatnonzero(exposed & category(activities, "copy_kind").among("HtoD", "DtoH"))
    if len(copies):
        table, (calls, _) = sources.timeline.activities, host_calls(sources.timeline)
        begin, dur, device, launch = (rows_of(table[each]) for each in ("start_ns", "dur_ns", "device", "launch_row"))
        end = begin[copies] + dur[copies]
        launched = np.append(calls.begin, 0)[_following(device, begin, end, copies, launch)]
        blocked = calls.begin[calls.blocks].argsort(kind="stable")
        since, until = (each[calls.blocks][blocked] for each in (calls.begin, calls.end))
        until = np.append(0, np.maximum.accumulate(until))[np.searchsorted(since, end)]
        late[copies] = (launched >= end) & (until < end)
    return {"nothing_waits": Flags(late)}


def _following(device: IntArray, begin: IntArray, end: IntArray, copies: IntArray, launch: IntArray) -> IntArray:
    """Return the row of `api` that launched what begins first on a copy's device at its end or later; −1: none."""
    found = np.full(len(copies), -1)
    for ordinal in sorted_unique(device[copies]).tolist():
        own = np.flatnonzero(device == ordinal)
        own = own[np.argsort(begin[own], kind="stable")]
        mine = device[copies] == ordinal
        at = np.searchsorted(begin[own], end[mine])
        found[mine] = np.append(launch[own], -1)[at]
    return found


COLUMNS = Columns(
    docs=(
        ColumnDoc("nothing_waits", "flags", "a copy between host and device at whose end nothing else had been launched, while the host did not wait for the device: the host was late, not the copy"),
    ),
    derive=_columns,
)  # fmt: skip


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate copies between host and device that overlap other work, as far as that lasts."""
    rows, members = context.rows["activities"], matrix.reshape(-1)
    nbytes, exposed = number(rows, "bytes_moved", null=-1), number(rows, "exposed_ns")
    alone_ns = max(int(exposed.sum()), 1)
    room = min((context.accounts.gpu_busy_ns - alone_ns) / alone_ns, 1.0)
    memory = {text_at(category(rows, name), members[0]) for name in ("source_memory", "target_memory")}
    dur = context.facts["activities"].dur_ns
    found = overlapped(
        int(nbytes[members].mean()),
        float(dur[members].mean()),
        float(exposed[members].mean()),
        room,
        next(iter(memory - {None, "device", "array"}), None),
    )
    return on_gpu(context, matrix, found)


def overlapped(nbytes: int, dur_ns: float, exposed_ns: float, room: float, memory: str | None) -> Estimate:
    """Estimate a copy between host and device that overlaps other work, or not at all.

    exposed_ns: how long of its time nothing else ran. room: which share of all that is exposed other work lasts for.

    >>> overlapped(25_000_000, 900_000, 800_000, 0.25, "pinned").after_ns
    Range(low=100000, mid=700000, high=900000)
    >>> overlapped(25_000_000, 900_000, 900_000, 0.25, "pinned").assumptions[0].partition(";")[0]
    '25.0 MB at 27.8 GB/s from or to pinned memory, 0.0% of it overlapped by other work'
    """
    reached = f"{bytes_text(nbytes)} at {bytes_text(nbytes * 1e9 / max(dur_ns, 1))}/s"
    kind = "" if memory is None else f" from or to {memory} memory"
    beside = percent_text(dur_ns - exposed_ns, dur_ns)
    return Estimate(
        after_ns=outwards(dur_ns - exposed_ns, dur_ns - exposed_ns * room, dur_ns),
        assumptions=(
            f"{reached}{kind}, {beside} of it overlapped by other work; low end of the saving: what runs next waits "
            f"for it; middle: it hides behind all else that runs, which lasts for {percent_text(room, 1)} of such "
            "copies (assumed); high end: it stays on the device",
        ),
    )


CAUSE = Cause(rule="transfer_exposed", columns=COLUMNS, savings={"hide": estimate})
