"""What instructions of a compiled module take once the compiler makes them otherwise: by operations and by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.findings.parts import covered_ns
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import rows_of
from tracemine.rows.table import BoolArray, IntArray, category, number

_Ends = tuple[float, float, float]


class Spread(Struct, frozen=True):
    """Low, middle and high: of what is modelled, and of what it takes now, which comes on top."""

    modelled: _Ends
    stays: _Ends = (0.0, 0.0, 0.0)


_SPREADS: Final[dict[str, Spread]] = {
    "attention": Spread((0.28, 0.45, 1.2)),  # cuDNN's, of four pairs on an H200: 0.29 to 0.51
    "dense scatter": Spread((0.8, 1.1, 1.6), (0.0, 0.2, 0.4)),
    "loop work": Spread((0.6, 1.2, 2.5)),
    "float32 product": Spread((0.7, 0.85, 1.6)),
    "odd product": Spread((0.7, 0.85, 1.6)),
    "partial sums": Spread((0.8, 1.2, 1.8), (0.0, 0.2, 1.0)),
    "layout copy": Spread((1.0, 1.0, 1.0), (0.0, 0.1, 0.6)),
    "fusion boundary": Spread((0.8, 1.2, 1.8), (0.0, 0.2, 1.0)),
    "epilogue outside": Spread((1.0, 1.0, 1.0), (0.1, 0.5, 1.0)),
    "wide product": Spread((0.8, 1.2, 2.0)),
    "dequantised weight": Spread((1.0, 1.0, 1.0), (0.0, 0.05, 0.3)),
    "transposed weight": Spread((1.0, 1.0, 1.0), (0.0, 0.02, 0.2)),
    "round trip": Spread((1.0, 1.0, 1.0), (0.0, 0.05, 0.3)),
    "op by op": Spread((0.8, 1.2, 3.0)),
}


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one execution's instructions as the compiler would make them without the cause."""
    rows, members = context.rows["activities"], matrix[0]
    finding = text_at(category(rows, "xla_finding"), int(members[0])) or ""
    flops, nbytes = number(rows, "xla_flops")[members], number(rows, "xla_bytes")[members]
    rate = category(rows, "xla_rate")
    names = [text_at(rate, row) for row in members]
    calls = [(name, int(work), int(moved)) for name, work, moved in zip(names, flops, nbytes, strict=True)]
    modelled = _modelled(context, _at_once(calls) if finding == "loop work" else calls)
    if modelled is None:
        return Abstained("device_unknown")
    spread = _SPREADS[finding]
    now = float(context.facts["activities"].dur_ns[matrix].sum(axis=1).mean())
    hidden = now - _alone_ns(context, matrix) / len(matrix)
    ends = zip(spread.modelled, spread.stays, modelled, (0.0, hidden, hidden), strict=True)
    after = outwards(*(min(times * work_ns + share * now + kept, now) for times, share, work_ns, kept in ends))
    low, _, high = spread.modelled
    note = "modelled by operations and bytes" + (f", {low:g} to {high:g} times of that (assumed)" if low < high else "")
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(note,)))


def _alone_ns(context: ScanContext, matrix: IntArray) -> int:
    """Return for how long nothing else ran: what runs next to other branches of a graph saves nothing by going."""
    device, start = (rows_of(context.timeline.activities[name]) for name in ("device", "start_ns"))
    end, others = start + context.facts["activities"].dur_ns, np.ones(len(start), np.bool_)
    busy_ns = covered_ns(device, start, end, others)
    others[matrix] = False
    return busy_ns - covered_ns(device, start, end, others)


_Call = tuple[str | None, int, int]  # whose rate it has, operations, bytes


def _at_once(calls: Sequence[_Call]) -> list[_Call]:
    """Return the calls of all iterations as one of each kind; what else moved goes."""
    names = dict.fromkeys(name for name, _, _ in calls if name)
    own = {name: [call for call in calls if call[0] == name] for name in names}
    return [(name, sum(work for _, work, _ in some), sum(moved for *_, moved in some)) for name, some in own.items()]


def _modelled(context: ScanContext, calls: Sequence[_Call]) -> _Ends | None:
    """Return what calls take, low, middle and high; None where the device's rates are not known."""
    low, mid, high = 0.0, 0.0, 0.0
    for name, work, moved in calls:
        if not name and not moved:
            continue
        if context.curves is None or (name and context.rates is None):
            return None
        if name and context.rates is not None:
            operation, _, arithmetic = name.partition(" ")
            time = context.rates.ns(operation, arithmetic, work, moved)
            if time is None:
                return None
            ends = (float(time.low), float(time.mid), float(time.high))
        else:
            ends = (context.curves.memory_ns(0.6 * moved, 0.4 * moved, 0.0),) * 3
        low, mid, high = low + ends[0], mid + ends[1], high + ends[2]
    return low, mid, high


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return how many layers, products or modules a case is of."""
    if rule.saving != "rebuild":
        return {}
    return {"xla_count": str(int(number(context.rows["activities"], "xla_count")[classes[0].matrix[0, 0]]))}


FACTS = AdviceFacts(
    docs={"xla_count": FactDoc("how many layers, products or modules are part of one case", text=True)}, find=_facts
)
