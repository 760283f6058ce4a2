"""The bound of a step, for a report's first line: idle time and its main cause, exposed communication, work."""

from __future__ import annotations

import numpy as np

from tracemine.findings.context import ScanContext
from tracemine.findings.held_in import held_longest
from tracemine.findings.parts import COMMUNICATION, covered_ns
from tracemine.findings.record import Bound, IdleCause, Parts, Share, Transfers
from tracemine.findings.summary import BOUND_BY, SUMS
from tracemine.findings.transfers import transfers_of
from tracemine.perfmodel import Unprofiled
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, Categories, IntArray, category, number

LEAST_SHARE = (
    0.2  # of the time: idle beyond it is what bounds a step, and so is exposed communication where idle is not
)
UNCLEAR = "unclear"
# Of the time recorded, at most, in which devices were at work without that saying anything; where few activities ran.
_LITTLE, _LITTLE_OF_FEW, _FEW = 0.001, 0.01, 10
_UNCLASSIFIED = "other"
_COLLECTIVE = "collective"


def bound_of(context: ScanContext, parts: Parts | None, gaps_ns: IntArray) -> Bound | None:
    """Return what bounds the unprofiled step; None where too little ran to say.

    gaps_ns: how long each gap is then.
    """
    accounts = context.accounts
    whole = accounts.gpu_busy_ns + accounts.gpu_idle_ns
    counts = accounts.in_step if accounts.steps else np.ones(len(accounts.dur_ns), np.bool_)
    recorded_busy_ns, recorded_idle_ns = int(accounts.exclusive_ns[counts].sum()), int(context.in_steps_ns.sum())
    if _next_to_nothing(context):
        return None
    transfers = transfers_of(context)
    gaps = context.rows["gaps"]
    in_steps = context.in_steps_ns / np.maximum(number(gaps, "dur_ns"), 1)
    causes, as_recorded = _causes(context, (gaps_ns * in_steps).astype(np.int64))
    most = causes[0] if causes else None
    kind = category(context.rows["activities"], "op_class")
    collective = kind.among(_COLLECTIVE)
    exposed_ns = accounts.gpu_busy_ns - _busy_ns(context, ~collective)
    idle = idle_share(context.unprofiled, context.busy_ns)
    waited_for = "unknown" if most is None else most.name
    by = SUMS if context.timeline.untimed else _bound_by(idle, waited_for, communication_share(parts), transfers)
    among = ~collective if by == "communication" else np.ones(len(collective), np.bool_)
    work, work_ns = _largest(kind, accounts.exclusive_ns, among)
    worked_ns = int(accounts.exclusive_ns[among].sum())
    return Bound(
        by=by,
        idle_share=round(recorded_idle_ns / max(recorded_busy_ns + recorded_idle_ns, 1), 4),
        cause=None if most is None else most.cause,
        cause_share=None if most is None else most.share,
        bare_communication_share=round(exposed_ns / whole, 4),
        work=None if work == _UNCLASSIFIED else work,
        work_share=round(work_ns / worked_ns, 4) if worked_ns else 0.0,
        unclassified_share=round(int(accounts.exclusive_ns[kind.among(_UNCLASSIFIED)].sum()) / accounts.gpu_busy_ns, 4),
        unprofiled_idle_share=Share(*(round(each, 4) for each in (idle.low, idle.mid, idle.high))),
        transfers=transfers,
        causes=causes,
        causes_recorded=as_recorded,
        held=None if causes else _held(context, recorded_idle_ns),
    )


def idle_share(unprofiled: Unprofiled, busy_ns: int) -> Share:
    """Return the share of an unprofiled step that the GPU idles, where it works for `busy_ns` of it.

    >>> from tracemine.perfmodel.unprofiled import estimated
    >>> idle_share(estimated(1_000, (0.4, 0.5, 1.0), "guessed", of_step=True), 400)
    Share(low=0.0, mid=0.2, high=0.6)
    """
    low, mid, high = (
        max(each - busy_ns, 0) / max(each, 1) for each in (unprofiled.low_ns, unprofiled.mid_ns, unprofiled.high_ns)
    )
    return Share(low, mid, high)


def communication_share(parts: Parts | None) -> float:
    """Return the share of an unprofiled step in which nothing but collectives runs."""
    return (
        0.0 if parts is None else sum(part.ns for part in parts.parts if part.name == COMMUNICATION) / max(parts.ns, 1)
    )


def _held(context: ScanContext, idle_ns: int) -> str | None:
    """Return the call in which the host waited through most of the idle time as recorded; None where there is none."""
    found = held_longest(context.timeline, context.rows["gaps"])
    return found[1].name if found is not None and 2 * found[0] > idle_ns > 0 else None


def _causes(context: ScanContext, gaps_ns: IntArray) -> tuple[tuple[IdleCause, ...], bool]:
    """Return what the idle time is for, and whether the shares are those of the recording; none where it is not known
    for half of it.

    gaps_ns: of each gap what of it lies in steps, unprofiled. Where gaps are less than half of the idle time, the rest
    lies at the edges of steps.
    """
    times = max(context.accounts.devices, 1) * max(context.accounts.steps, 1)
    unprofiled = context.unprofiled
    for gaps, step_ns in ((gaps_ns, unprofiled.mid_ns), (context.in_steps_ns, unprofiled.recorded_ns)):
        if gaps.sum() and 2 * int(gaps.sum()) >= (step_ns - context.busy_ns) * times:
            return _known(category(context.rows["gaps"], "cause"), gaps), gaps is not gaps_ns
    return (), False


def _known(cause: Categories, gaps_ns: IntArray) -> tuple[IdleCause, ...]:
    """Return the causes that say who is waited for, most first; none where they are less than half of all, and another
    one is the largest.

    >>> of = Categories(np.array([0, 1, 2, -1]), ("synchronisation", "after_wait", "unknown"))
    >>> [(one.name, one.cause, one.share) for one in _known(of, np.array([1, 5, 3, 1]))]
    [('synchronisation', 'after_wait', 0.6)]
    >>> _known(of, np.array([1, 2, 3, 1]))
    ()
    """
    total = np.bincount(cause.codes + 1, weights=gaps_ns, minlength=len(cause.values) + 1)
    largest = None if not total.argmax() else cause.values[int(total.argmax()) - 1]
    by_name: dict[str, list[tuple[float, str]]] = {}
    for value, ns in zip(cause.values, total[1:].tolist(), strict=True):
        if value in BOUND_BY and ns:
            by_name.setdefault(BOUND_BY[value], []).append((ns, value))
    whole = float(gaps_ns.sum())
    found = [(sum(ns for ns, _ in each), name, max(each)[1]) for name, each in by_name.items()]
    if 2 * sum(ns for ns, *_ in found) < whole and largest not in BOUND_BY:
        return ()
    return tuple(
        IdleCause(name=name, cause=value, share=round(ns / whole, 4)) for ns, name, value in sorted(found, reverse=True)
    )


def _bound_by(idle: Share, waited_for: str, communicating: float, transfers: Transfers | None) -> str:
    alone = {"communication": communicating, "transfer": 0.0 if transfers is None else transfers.alone_share}
    most = max(alone, key=alone.__getitem__)
    if idle.low > LEAST_SHARE and idle.mid >= alone[most]:
        return waited_for
    if alone[most] > LEAST_SHARE:
        return most
    return "gpu" if idle.high <= LEAST_SHARE else UNCLEAR


def _next_to_nothing(context: ScanContext) -> bool:
    """Return whether devices were at work for so little of the recording that nothing is known of a program.

    Where steps are known they are the recording.
    """
    timeline, accounts = context.timeline, context.accounts
    if accounts.steps:
        return context.busy_ns <= _LITTLE * context.unprofiled.recorded_ns
    begins, ends = [], []
    for table in (timeline.activities, timeline.api, timeline.ops):
        if table.num_rows:
            begin = rows_of(table["start_ns"]).astype(np.int64)
            begins.append(int(begin.min()))
            ends.append(int((begin + rows_of(table["dur_ns"])).max()))
    recorded_ns = (max(ends) - min(begins)) * max(accounts.devices, 1) if ends else 0
    few = len(accounts.dur_ns) < _FEW
    return accounts.gpu_busy_ns <= (_LITTLE_OF_FEW if few else _LITTLE) * recorded_ns


def _largest(categories: Categories, weights: IntArray, among: BoolArray | None = None) -> tuple[str | None, int]:
    """Return the category with the most weight, and how much that is; None where it is the null one, or there is none.

    >>> _largest(Categories(np.array([0, 1, 1], np.int32), ("a", "b")), np.array([3, 2, 2]))
    ('b', 4)
    """
    codes = categories.codes if among is None else categories.codes[among]
    weights = weights if among is None else weights[among]
    if not len(codes):
        return None, 0
    total = np.bincount(codes + 1, weights=weights)
    code = int(total.argmax())
    return (categories.values[code - 1] if code else None), int(total[code])


def _busy_ns(context: ScanContext, among: BoolArray) -> int:
    """Return for how long devices ran some of these activities, a device at a time."""
    start, dur, device = (rows_of(context.timeline.activities[each]) for each in ("start_ns", "dur_ns", "device"))
    return covered_ns(device, start, start + dur, among)
