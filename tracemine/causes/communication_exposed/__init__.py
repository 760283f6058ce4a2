"""Communication that nothing overlaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracemine.causes.cause import Cause
from tracemine.columns import codes
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.communication import ASSUMED, is_typed, linked_ns, of_communication
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.activities import COLLECTIVE
from tracemine.rows.codes import combination_codes
from tracemine.rows.table import BoolArray, FloatArray, IntArray, category, number, numbers_of
from tracemine.units import percent_text, time_text

# Half of what is transfer hides where it runs in order with the work: cut into two halves, one half is sent while the
# other is computed. Where nothing says how fast the link is, half of the shortest call is taken for waiting. A step's
# last call has nothing left to hide behind, and what runs alone because nothing else had been launched would hide by
# itself if the host were ahead: no other order of communication gains that.
_HALF = 0.5
_NOT_HIDDEN = ("last", "host")


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate identical collectives that overlap other work: what they cost is how long nothing else runs."""
    rows, members = context.rows["activities"], matrix.reshape(-1)
    exposed, every = number(rows, "exposed_ns"), of_communication(context)
    may_hide = ~category(rows, "exposed_because").among(*_NOT_HIDDEN)[members]
    alone_ns, transfer_ns = int(exposed[every].sum()), transfers_ns(context, members) * may_hide
    known = bool((linked_ns(context, members) > 0).all())
    assumed = "" if is_typed(context, members) else ASSUMED
    found = hidden(
        float(exposed[members].mean()),
        float(transfer_ns.mean()),
        min((context.accounts.gpu_busy_ns - alone_ns) / max(alone_ns, 1), 1.0),
        computes=computes(context, members),
        how=f"as long as the bytes take at the links' raw rate{assumed}"
        if known
        else "half of the shortest call alike",
    )
    return on_gpu(context, matrix, found, measured_ns=int(number(rows, "exposed_ns")[matrix].sum()))


def transfers_ns(context: ScanContext, members: IntArray) -> FloatArray:
    """Return what of the exposed time of collectives the link takes at least, as far as one rank tells.

    No transfer takes longer than the shortest equal call, and none less than its bytes at the links' raw rate; where
    that is not known, half of the shortest is taken.
    """
    exposed = number(context.rows["activities"], "exposed_ns")[members]
    most, linked = np.minimum(shortest_ns(context, members), exposed), linked_ns(context, members)
    transfer_ns: FloatArray = np.where(linked > 0, np.minimum(linked, most), most * _HALF)
    return transfer_ns


def shortest_ns(context: ScanContext, members: IntArray) -> IntArray:
    """Return how long the shortest equal one of each collective took."""
    facts, rows = context.facts["activities"], context.rows["activities"]
    columns = (facts.op, facts.shapes, facts.dtypes, category(rows, "collective_kind"))
    sent = number(rows, "message_bytes", null=-1)[members]
    alike = codes(sent, *(column.codes[members].astype(np.int64) for column in columns))
    shortest = np.full(int(alike.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, alike, context.accounts.dur_ns[members])
    return shortest[alike]


def shorter(context: ScanContext, matrix: IntArray, share: float, assumed: str) -> ClassEstimate | Abstained:
    """Estimate collectives of which a share of what the link takes goes: at best all of what nothing overlaps."""
    members = matrix.reshape(-1)
    exposed = number(context.rows["activities"], "exposed_ns")[members]
    goes = float(np.minimum(shortest_ns(context, members), exposed).mean()) * share
    found = Estimate(
        after_ns=outwards(0, float(exposed.mean()) - goes, float(exposed.mean())),
        assumptions=(
            f"{assumed}; low end: all of it is waiting for other ranks, which are then waited for elsewhere; middle: "
            "the shortest equal call is no waiting; high end: all that nothing overlaps goes",
        ),
    )
    return on_gpu(context, matrix, found, measured_ns=int(exposed.sum()))


def hidden(exposed_ns: float, transfer_ns: float, room: float, *, computes: bool, how: str) -> Estimate:
    """Estimate a collective that other work hides.

    exposed_ns: how long nothing overlapped one. transfer_ns: what of it the link takes at least where it may be hidden,
    and how that is known. room: which share of all that is exposed other work lasts for. computes: its stream runs
    other work as well.

    >>> hidden(900_000, 600_000, 1.0, computes=False, how="").after_ns
    Range(low=0, mid=300000, high=900000)
    >>> hidden(900_000, 600_000, 0.5, computes=True, how="").after_ns
    Range(low=0, mid=750000, high=900000)
    """
    which = (
        "cut in two, one half of it hides"
        if computes
        else "but for a step's last one, and where nothing else had been launched, it hides"
    )
    return Estimate(
        after_ns=outwards(0, exposed_ns - transfer_ns * room * (_HALF if computes else 1.0), exposed_ns),
        assumptions=(
            "one rank does not tell how long the link takes and how long other ranks are waited for: low end of the "
            f"saving: all of it is waiting, or what runs next needs it; middle: {how} ({time_text(transfer_ns)} a "
            f"call), {which} behind other work, which lasts for {percent_text(room, 1)} of all that nothing hides "
            "(assumed); high end: all of it hides",
        ),
    )


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return whether the collectives' stream has other work to do, and whether the host has launched any."""
    if rule.id != "communication_exposed":
        return {}
    members = np.concatenate([one.matrix.reshape(-1) for one in classes])
    rows = context.rows["activities"]
    exposed, late = number(rows, "exposed_ns")[members], category(rows, "exposed_because").among("host")[members]
    late_ns = int(exposed[late].sum())
    return {"computing_stream": computes(context, members), "nothing_launched": 2 * late_ns > int(exposed.sum())}


def computes(context: ScanContext, members: IntArray) -> bool:
    """Return whether most of what these collectives are exposed for is on streams that other kernels run on, too."""
    rows = context.rows["activities"]
    place = combination_codes(numbers_of(rows, "device"), numbers_of(rows, "stream"))
    kernels = category(rows, "kind").among("kernel") & ~category(rows, "op_class").among(COLLECTIVE)
    shared, exposed = np.isin(place[members], place[kernels]), number(rows, "exposed_ns")[members]
    return 2 * int(exposed[shared].sum()) > int(exposed.sum())


FACTS = AdviceFacts(
    docs={
        "computing_stream": FactDoc("communication runs in order with other kernels, on their stream"),
        "nothing_launched": FactDoc("while most of it runs alone the host had launched nothing that could run"),
    },
    find=_facts,
)

CAUSE = Cause(rule="communication_exposed", savings={"overlap": estimate}, facts=FACTS)
