"""Communication that nothing hides: how much it is, and what one rank says of it."""

from __future__ import annotations

import math

import numpy as np

from tracemine.calls import calls_of
from tracemine.columns import codes, sorted_unique
from tracemine.findings.context import ScanContext
from tracemine.findings.summary import Communication
from tracemine.ops import itemsize
from tracemine.ops.collectives import PAIRED, bus_factor
from tracemine.rows.activities import COLLECTIVE, LEAST_COMMUNICATION
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.spans import Spans
from tracemine.rows.table import BoolArray, FloatArray, IntArray, category, number, numbers_of
from tracemine.units import time_text

_MOST_KINDS = 3
_BECAUSE = {
    "same_stream": "in order with the kernels of its stream",
    "last": "the last of the step",
    "launched_first": "ahead of other streams' work in the order of launches",
    "waited_for": "waited for at once",
    "host": "nothing launched meanwhile",
}
_ELEMENT_BYTES = 2  # of lists, whose elements' type is not recorded: an assumption, which is said
ASSUMED = f" ({_ELEMENT_BYTES} bytes an element, assumed: its type is not recorded)"
_LINKED = 8  # ranks that one host's links join; behind them is a network, whose rate is not known


def linked_ns(context: ScanContext, members: IntArray) -> FloatArray:
    """Return how long the bytes of collectives take at the links' raw rate; 0 where either is not known."""
    rows, rate = context.rows["activities"], None if context.device is None else context.device.peer_link_bytes_per_s
    if rate is None:
        return np.zeros(len(members))
    kinds, calls = category(rows, "collective_kind"), calls_of(context.timeline)
    named = category(rows, "collective").codes
    group = np.where(kinds.among(*PAIRED), 2, number(rows, "group_size", null=0))[members]
    recorded = number(rows, "message_bytes", null=-1)[members]
    found = np.zeros(len(members))
    for at, (row, op_row) in enumerate(zip(members, context.facts["activities"].op_row[members], strict=True)):
        kind, call, nbytes = kinds.values[kinds.codes[row]], calls.at(op_row), recorded[at]
        shape, dtype = (None, None) if call is None or named[row] < 0 else call.first_tensor
        if nbytes < 0 and shape is not None:
            nbytes = math.prod(shape) * ((None if dtype is None else itemsize(dtype)) or _ELEMENT_BYTES)
            nbytes *= group[at] if kind == "all_gather" else 1  # of the full message
        if nbytes >= 0 and 1 < group[at] <= _LINKED:
            found[at] = nbytes * bus_factor(kind, int(group[at])) * 1e9 / rate
    return found


def is_typed(context: ScanContext, members: IntArray) -> bool:
    """Return whether the type of what these collectives send is recorded."""
    kind = category(context.rows["activities"], "dtype")
    typed = np.array([text is not None and itemsize(text) is not None for text in kind.values], dtype=bool)
    known = number(context.rows["activities"], "message_bytes", null=-1)[members] >= 0
    return bool((known | np.append(typed, False)[kind.codes[members]]).all())


def of_communication(context: ScanContext) -> BoolArray:
    """Return which activities communicate: collectives of several ranks."""
    rows = context.rows["activities"]
    known = numbers_of(rows, "exposed_ns").valid
    collective = category(rows, "op_class").among(COLLECTIVE)
    return collective if known is None else collective & known


def _in_steps(context: ScanContext) -> BoolArray:
    """Return which activities communicate in a step that counts; where no steps are known, which communicate."""
    every = of_communication(context)
    return every & context.accounts.in_step if context.accounts.steps else every


def communication_text(context: ScanContext) -> str:
    """Return how long which collectives ran alone, and what of that is transfer at least; "" where it is little."""
    rows, every = context.rows["activities"], of_communication(context)
    if number(rows, "exposed_percent")[every].max(initial=0) < LEAST_COMMUNICATION:
        return ""
    chosen = np.flatnonzero(_in_steps(context) & (number(rows, "exposed_ns") > 0))
    exposed, linked = number(rows, "exposed_ns")[chosen], linked_ns(context, chosen)
    of_step = " a step" if context.accounts.steps else ""
    whole, devices = time_text(a_step(context, int(exposed.sum()))), context.accounts.devices
    of_step += f", summed over {devices} GPUs" if devices > 1 else ""
    largest = int(number(rows, "group_size", null=0)[chosen].max(initial=0))
    if devices > 1 and largest <= devices and (context.timeline.meta.world_size or 1) == 1:
        told = "What of it is transfer, and what is waiting for another GPU or the host, is not known"
    else:
        of = _of_ranks(context)
        told = f"{of} cannot tell transfer from waiting for others: record all ranks, and scan their folder"
    least = f"; their bytes take {time_text(a_step(context, int(linked.sum())))} at the links' raw rate"
    least += "" if is_typed(context, chosen) else ASSUMED
    kinds = "; ".join(map(_said, communication_of(context)[:_MOST_KINDS]))
    kinds = f"{kinds[:1].upper()}{kinds[1:]}{least if (linked > 0).all() else ''}"
    return f"Communication that nothing overlaps: {whole}{of_step}. {told}. {kinds}."


def communication_of(context: ScanContext) -> tuple[Communication, ...]:
    """Return collectives by kind, group and line, those that run alone for longest first."""
    rows, table = context.rows["activities"], context.timeline.collectives
    members = np.flatnonzero(_in_steps(context))
    if not len(members):
        return ()
    kind, because = category(rows, "collective_kind"), category(rows, "exposed_because")
    source, size = category(rows, "source"), number(rows, "group_size", null=-1)
    described = np.full(rows.count, -1, np.int64)
    groups, at = categories(table["group_description"]), rows_of(table["activity_row"])
    described[at[at >= 0]] = groups.codes[at >= 0]
    key = codes(kind.codes[members].astype(np.int64), size[members], described[members], source.codes[members])
    found = []
    for number_of in range(int(key.max()) + 1):
        own = members[key == number_of]
        first, exposed = int(own[0]), number(rows, "exposed_ns")[own]
        nbytes, linked = number(rows, "message_bytes", null=-1)[own], linked_ns(context, own)
        why = np.bincount(because.codes[own] + 1, exposed, len(because.values) + 1)[1:]
        found.append(
            Communication(
                kind=kind.values[kind.codes[first]],
                group=groups.values[described[first]] if described[first] >= 0 else None,
                group_size=int(size[first]) if size[first] >= 0 else None,
                source=source.values[source.codes[first]] if source.codes[first] >= 0 else None,
                count=round(a_step(context, len(own)), 3),
                bytes=int(np.median(nbytes)) if (nbytes >= 0).all() else None,
                ns=int(a_step(context, int(context.accounts.dur_ns[own].sum()))),
                exposed_ns=int(a_step(context, int(exposed.sum()))),
                least_ns=int(a_step(context, int(linked.sum()))) if (linked > 0).all() else None,
                because={
                    name: int(a_step(context, int(ns)))
                    for name, ns in zip(because.values, why.tolist(), strict=True)
                    if ns
                },
                behind=_behind(context, own),
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.exposed_ns, one.kind)))


def _behind(context: ScanContext, members: IntArray) -> dict[str, int]:
    """Return what runs while collectives do, nanoseconds a step by class of operator: what they hide behind."""
    rows, dur_ns = context.rows["activities"], context.accounts.dur_ns
    classes, start, device = category(rows, "op_class"), number(rows, "start_ns"), number(rows, "device", null=-1)
    known = {}
    for name in classes.values:
        hidden = 0
        of = classes.among(name) if name != COLLECTIVE else np.zeros(rows.count, np.bool_)
        for ordinal in sorted_unique(device[members]):
            work, own = np.flatnonzero(of & (device == ordinal)), members[device[members] == ordinal]
            spans = Spans.of(start[own], start[own] + dur_ns[own])
            hidden += int(spans.within(start[work], start[work] + dur_ns[work]).sum())
        if hidden:
            known[name] = int(a_step(context, hidden))
    return dict(sorted(known.items(), key=lambda pair: -pair[1])[:_MOST_KINDS])


def _said(one: Communication) -> str:
    """Return collectives of one kind as the note has them.

    >>> _said(Communication(kind="all_gather", group=None, group_size=8, source=None, count=4, bytes=None, ns=2_400_000,
    ...     exposed_ns=1_600_000, least_ns=None, because={"last": 400_000, "waited_for": 1_200_000}, behind={}))
    'all-gather of 8 ranks 4 × 400 µs, waited for at once'
    """
    of = "" if one.group_size is None else f" of {one.group_size} ranks"
    reason, ns = max(one.because.items(), key=lambda pair: pair[1], default=("", 0))
    why = f", {_BECAUSE[reason]}" if 2 * ns > one.exposed_ns else ""
    return f"{one.kind.replace('_', '-')}{of} {one.count:.3g} × {time_text(one.exposed_ns / one.count)}{why}"


def _of_ranks(context: ScanContext) -> str:
    """Return which rank of how many this is, as recorded."""
    meta = context.timeline.meta
    known = meta.rank is not None and (meta.world_size or 0) > 1
    return f"Rank {meta.rank} of {meta.world_size}" if known else "One rank"


def a_step(context: ScanContext, whole: int) -> float:
    """Return the part of a whole that is one step's."""
    return whole / max(context.accounts.steps, 1)
