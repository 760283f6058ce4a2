"""Communication that nothing hides: how much it is, and what one rank says of it."""

from __future__ import annotations

import math

import numpy as np

from tracemine.calls import calls_of
from tracemine.columns import codes
from tracemine.findings.context import ScanContext
from tracemine.ops import itemsize
from tracemine.perfmodel import HALF, Estimate, hidden, sent_bytes
from tracemine.rows.codes import combination_codes
from tracemine.rows.table import BoolArray, FloatArray, IntArray, category, number, numbers_of
from tracemine.rows.transfers import COLLECTIVE, LEAST_COMMUNICATION
from tracemine.units import time_text

_MOST_KINDS = 3
_ELEMENT_BYTES = 2  # of lists, whose elements' type is not recorded: an assumption, which is said
_ASSUMED = f" ({_ELEMENT_BYTES} bytes an element, assumed: its type is not recorded)"
_LINKED = 8  # ranks that one host's links join; behind them is a network, whose rate is not known


def overlapping(context: ScanContext, matrix: IntArray) -> Estimate:
    """Estimate identical collectives that overlap other work, as far as that lasts."""
    rows, members = context.rows["activities"], matrix.reshape(-1)
    exposed, every = number(rows, "exposed_ns"), of_communication(context)
    alone_ns, transfer_ns = int(exposed[every].sum()), transfers_ns(context, members)
    known = bool((_linked_ns(context, members) > 0).all())
    assumed = "" if _typed(context, members) else _ASSUMED
    return hidden(
        float(exposed[members].mean()),
        float(transfer_ns.mean()),
        _a_step(context, int((exposed[every] > 0).sum())),
        min((context.accounts.gpu_busy_ns - alone_ns) / max(alone_ns, 1), 1.0),
        computes=computes(context, members),
        how=f"as long as the bytes take at the links' raw rate{assumed}"
        if known
        else "half of the shortest call alike",
    )


def transfers_ns(context: ScanContext, members: IntArray) -> FloatArray:
    """Return what of the exposed time of collectives the link takes at least, as far as one rank tells.

    No transfer takes longer than the shortest equal call, and none less than its bytes at the links' raw rate; where
    that is not known, half of the shortest is taken.
    """
    facts, exposed = context.facts["activities"], number(context.rows["activities"], "exposed_ns")[members]
    alike = codes(*(column.codes[members].astype(np.int64) for column in (facts.op, facts.shapes, facts.dtypes)))
    shortest = np.full(int(alike.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, alike, context.accounts.dur_ns[members])
    most, linked = np.minimum(shortest[alike], exposed), _linked_ns(context, members)
    transfer_ns: FloatArray = np.where(linked > 0, np.minimum(linked, most), most * HALF)
    return transfer_ns


def _linked_ns(context: ScanContext, members: IntArray) -> FloatArray:
    """Return how long the bytes of collectives take at the links' raw rate; 0 where either is not known."""
    rows, rate = context.rows["activities"], None if context.device is None else context.device.peer_link_bytes_per_s
    if rate is None:
        return np.zeros(len(members))
    names, calls = category(rows, "collective"), calls_of(context.timeline)
    group = number(rows, "group_size", null=0)[members]
    linked_ns = np.zeros(len(members))
    for at, (code, op_row) in enumerate(
        zip(names.codes[members], context.facts["activities"].op_row[members], strict=True)
    ):
        call = calls.at(op_row)
        shape, kind = (None, None) if call is None else call.first_tensor
        if code >= 0 and shape is not None and 1 < group[at] <= _LINKED:
            name, elements = names.values[code], math.prod(shape)
            nbytes = elements * ((None if kind is None else itemsize(kind)) or _ELEMENT_BYTES)
            linked_ns[at] = sent_bytes(name, nbytes, int(group[at])) * 1e9 / rate
    return linked_ns


def _typed(context: ScanContext, members: IntArray) -> bool:
    """Return whether the type of what these collectives send is recorded."""
    kind = category(context.rows["activities"], "dtype")
    typed = np.array([text is not None and itemsize(text) is not None for text in kind.values], dtype=bool)
    return bool(np.append(typed, False)[kind.codes[members]].all())


def of_communication(context: ScanContext) -> BoolArray:
    """Return which activities communicate: collectives of several ranks."""
    rows = context.rows["activities"]
    known = numbers_of(rows, "exposed_ns").valid
    collective = category(rows, "op_class").among(COLLECTIVE)
    return collective if known is None else collective & known


def computes(context: ScanContext, members: IntArray) -> bool:
    """Return whether most of what these collectives are exposed for is on streams that other kernels run on, too."""
    rows = context.rows["activities"]
    place = combination_codes(numbers_of(rows, "device"), numbers_of(rows, "stream"))
    kernels = category(rows, "kind").among("kernel") & ~category(rows, "op_class").among(COLLECTIVE)
    shared, exposed = np.isin(place[members], place[kernels]), number(rows, "exposed_ns")[members]
    return 2 * int(exposed[shared].sum()) > int(exposed.sum())


def communication_text(context: ScanContext) -> str:
    """Return how long which collectives ran alone, and what of that is transfer at least; "" where it is little."""
    rows, every = context.rows["activities"], of_communication(context)
    if number(rows, "exposed_percent")[every].max(initial=0) < LEAST_COMMUNICATION:
        return ""
    chosen = np.flatnonzero(every & (number(rows, "exposed_ns") > 0))
    exposed, linked = number(rows, "exposed_ns")[chosen], _linked_ns(context, chosen)
    of_step = " a step" if context.accounts.steps else ""
    whole = time_text(_a_step(context, int(exposed.sum())))
    least = f"; their bytes take {time_text(_a_step(context, int(linked.sum())))} at the links' raw rate"
    least += "" if _typed(context, chosen) else _ASSUMED
    return (
        f"Communication that nothing overlaps: {whole}{of_step}{_kinds(context, chosen, exposed)}"
        f"{least if (linked > 0).all() else ''}. What of it is transfer, and what is waiting for other ranks or their "
        "hosts, one rank cannot tell: record all ranks."
    )


def _kinds(context: ScanContext, chosen: IntArray, exposed: IntArray) -> str:
    """Return the kinds of collectives that are exposed most, with their number and time."""
    kind = category(context.rows["activities"], "collective")
    spent = np.bincount(kind.codes[chosen] + 1, weights=exposed, minlength=len(kind.values) + 1)[1:]
    calls = np.bincount(kind.codes[chosen] + 1, minlength=len(kind.values) + 1)[1:]
    most = [code for code in np.argsort(-spent, kind="stable")[:_MOST_KINDS].tolist() if spent[code]]
    said = [
        f"{kind.values[code]} {_a_step(context, int(calls[code])):.3g} × {time_text(spent[code] / calls[code])}"
        for code in most
    ]
    return f" ({', '.join(said)})" if said else ""


def _a_step(context: ScanContext, whole: int) -> float:
    return whole / max(context.accounts.steps, 1)
