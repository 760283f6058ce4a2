"""Communication that nothing hides: how much it is, and what one rank says of it."""

from __future__ import annotations

import math

import numpy as np

from tracemine.calls import calls_of
from tracemine.findings.context import ScanContext
from tracemine.ops import itemsize
from tracemine.rows.table import BoolArray, FloatArray, IntArray, category, number, numbers_of
from tracemine.rows.transfers import COLLECTIVE, LEAST_COMMUNICATION
from tracemine.units import time_text

_MOST_KINDS = 3
_ELEMENT_BYTES = 2  # of lists, whose elements' type is not recorded: an assumption, which is said
ASSUMED = f" ({_ELEMENT_BYTES} bytes an element, assumed: its type is not recorded)"
_REDUCES, _GATHERS = ("allreduce", "all_reduce"), ("allgather", "all_gather")
_LINKED = 8  # ranks that one host's links join; behind them is a network, whose rate is not known


def sent_bytes(collective: str, nbytes: int, group_size: int) -> int:
    """Return how many bytes a rank sends of an input, by the arithmetic of nccl-tests.

    >>> [sent_bytes(name, 400, 4) for name in ("allreduce", "_allgather_base", "_reduce_scatter_base")]
    [600, 1200, 300]
    """
    gathers, reduces = (any(part in collective.lower() for part in names) for names in (_GATHERS, _REDUCES))
    times = group_size if gathers else 2 if reduces else 1
    return nbytes * times * (group_size - 1) // max(group_size, 1)


def linked_ns(context: ScanContext, members: IntArray) -> FloatArray:
    """Return how long the bytes of collectives take at the links' raw rate; 0 where either is not known."""
    rows, rate = context.rows["activities"], None if context.device is None else context.device.peer_link_bytes_per_s
    if rate is None:
        return np.zeros(len(members))
    names, calls = category(rows, "collective"), calls_of(context.timeline)
    group = number(rows, "group_size", null=0)[members]
    found = np.zeros(len(members))
    for at, (code, op_row) in enumerate(
        zip(names.codes[members], context.facts["activities"].op_row[members], strict=True)
    ):
        call = calls.at(op_row)
        shape, kind = (None, None) if call is None else call.first_tensor
        if code >= 0 and shape is not None and 1 < group[at] <= _LINKED:
            name, elements = names.values[code], math.prod(shape)
            nbytes = elements * ((None if kind is None else itemsize(kind)) or _ELEMENT_BYTES)
            found[at] = sent_bytes(name, nbytes, int(group[at])) * 1e9 / rate
    return found


def is_typed(context: ScanContext, members: IntArray) -> bool:
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


def communication_text(context: ScanContext) -> str:
    """Return how long which collectives ran alone, and what of that is transfer at least; "" where it is little."""
    rows, every = context.rows["activities"], of_communication(context)
    if number(rows, "exposed_percent")[every].max(initial=0) < LEAST_COMMUNICATION:
        return ""
    chosen = np.flatnonzero(every & (number(rows, "exposed_ns") > 0))
    exposed, linked = number(rows, "exposed_ns")[chosen], linked_ns(context, chosen)
    of_step = " a step" if context.accounts.steps else ""
    whole = time_text(a_step(context, int(exposed.sum())))
    least = f"; their bytes take {time_text(a_step(context, int(linked.sum())))} at the links' raw rate"
    least += "" if is_typed(context, chosen) else ASSUMED
    return (
        f"Communication that nothing overlaps: {whole}{of_step}{_kinds(context, chosen, exposed)}"
        f"{least if (linked > 0).all() else ''}. What of it is transfer, and what is waiting for other ranks or their "
        f"hosts, one rank cannot tell{_of_ranks(context)}: record all ranks, and scan their folder."
    )


def _of_ranks(context: ScanContext) -> str:
    """Return which rank of how many this is, as recorded; "" where that is not known."""
    meta = context.timeline.meta
    return f" (rank {meta.rank} of {meta.world_size})" if meta.rank is not None and (meta.world_size or 0) > 1 else ""


def _kinds(context: ScanContext, chosen: IntArray, exposed: IntArray) -> str:
    """Return the kinds of collectives that are exposed most, with their number and time."""
    kind = category(context.rows["activities"], "collective")
    spent = np.bincount(kind.codes[chosen] + 1, weights=exposed, minlength=len(kind.values) + 1)[1:]
    calls = np.bincount(kind.codes[chosen] + 1, minlength=len(kind.values) + 1)[1:]
    most = [code for code in np.argsort(-spent, kind="stable")[:_MOST_KINDS].tolist() if spent[code]]
    said = [
        f"{kind.values[code]} {a_step(context, int(calls[code])):.3g} × {time_text(spent[code] / calls[code])}"
        for code in most
    ]
    return f" ({', '.join(said)})" if said else ""


def a_step(context: ScanContext, whole: int) -> float:
    """Return the part of a whole that is one step's."""
    return whole / max(context.accounts.steps, 1)
