"""What instructions of a compiled module take once the compiler makes them otherwise: by operations and by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import BoolArray, IntArray, category, number

_Ends = tuple[float, float, float]


class Spread(Struct, frozen=True):
    """Low, middle and high: of what is modelled, and of what it takes now, which comes on top."""

    modelled: _Ends
    stays: _Ends = (0.0, 0.0, 0.0)


_SPREADS: Final[dict[str, Spread]] = {
    "attention": Spread((0.5, 0.65, 1.2)),
    "dense scatter": Spread((0.8, 1.1, 1.6), (0.0, 0.05, 0.4)),
    "loop work": Spread((0.6, 1.2, 2.5)),
    "float32 product": Spread((0.7, 0.85, 1.6)),
    "odd product": Spread((0.7, 0.85, 1.6)),
    "partial sums": Spread((0.8, 1.2, 1.8), (0.0, 0.2, 1.0)),
    "layout copy": Spread((1.0, 1.0, 1.0), (0.0, 0.1, 0.6)),
    "op by op": Spread((0.8, 1.2, 3.0)),
}


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one execution's instructions as the compiler would make them without the cause."""
    rows, members = context.rows["activities"], matrix[0]
    finding = text_at(category(rows, "xla_finding"), int(members[0])) or ""
    flops, nbytes = number(rows, "xla_flops")[members], number(rows, "xla_bytes")[members]
    rate = category(rows, "xla_rate")
    names = [text_at(rate, row) for row in members]
    if context.curves is None and (nbytes.any() or flops.any()):
        return Abstained("device_unknown")
    calls = [(name, int(work), int(moved)) for name, work, moved in zip(names, flops, nbytes, strict=True) if name]
    if finding == "loop work":  # all iterations at once
        calls = [
            (name, sum(work for own, work, _ in calls if own == name), sum(m for own, _, m in calls if own == name))
            for name in dict.fromkeys(name for name, _, _ in calls)
        ]
    low, mid, high = 0.0, 0.0, 0.0
    for name, work, moved in calls:
        operation, _, arithmetic = name.partition(" ")
        time = None if context.rates is None else context.rates.ns(operation, arithmetic, work, moved)
        if time is None:
            return Abstained("device_unknown")
        low, mid, high = low + time.low, mid + time.mid, high + time.high
    for rated, moved in zip(names, nbytes.tolist(), strict=True):
        if moved and not rated and context.curves is not None:
            time_ns = context.curves.memory_ns(0.6 * moved, 0.4 * moved, 0.0)
            low, mid, high = low + time_ns, mid + time_ns, high + time_ns
    spread = _SPREADS[finding]
    now = float(context.facts["activities"].dur_ns[matrix].sum(axis=1).mean())
    after = outwards(
        *(
            min(times * modelled + share * now, now)
            for times, share, modelled in zip(spread.modelled, spread.stays, (low, mid, high), strict=True)
        )
    )
    note = f"modelled by operations and bytes, {spread.modelled[0]:g} to {spread.modelled[2]:g} times of that (assumed)"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(note,)))


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return how many layers, products or modules a case is of."""
    if rule.saving != "rebuild":
        return {}
    return {"xla_count": str(int(number(context.rows["activities"], "xla_count")[classes[0].matrix[0, 0]]))}


FACTS = AdviceFacts(
    docs={"xla_count": FactDoc("how many layers, products or modules are part of one case", text=True)}, find=_facts
)
