"""One kernel for the bags of many tables: what that saves."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.calls.text import Extents
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.lists import LONGEST, Call
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate, Traffic
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray

_BAG_RATE = 1.1  # of moving the bytes of many bags in one kernel, at best
_BAGS_APART = 0.8  # how far, by the logarithm, from that to the bags apart: on an H100 0.76 and 0.92 of two programs


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate bags of many tables looked up at once."""
    facts, members = context.facts["activities"], matrix[0]
    calls = context.lists.calls(facts.op_row[members], [""] * len(members))
    if len(calls) < len(members):
        return Abstained("bytes_unknown")
    moved = [bag_bytes(call, context.lists.shapes(call.row)) for call in calls if call.name != "arange"]
    if any(each is None for each in moved):
        return Abstained("bytes_unknown")
    reads, writes = (sum(each[at] for each in moved if each is not None) for at in (0, 1))
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    return on_gpu(context, matrix, one_table(reads, writes, measured_ns, context.curves))


def bag_bytes(call: Call, shapes: Sequence[Extents]) -> tuple[int, int] | None:
    """Return bytes that a call of `_embedding_bag` reads and writes: a row for each index, and a row for each bag.

    >>> bag_bytes(Call(0, "_embedding_bag", ((640,), (32,), (8,)), 4), ((10, 64), (32,), (8,)))
    (8512, 2048)
    """
    table = shapes[0] if shapes else ()
    if call.sizes is None or len(call.sizes) < 3 or len(table) != 2:
        return None
    width = table[1]
    if not isinstance(width, int) or not 0 <= width < LONGEST:
        return None
    indices, bags, row = call.sizes[1][0], call.sizes[2][0], (call.item_bytes or 4) * width
    return indices * (row + 8) + 8 * bags, bags * row


def one_table(reads: int, writes: int, measured_ns: float, curves: Curves | None) -> Estimate | Abstained:
    """Estimate bags of many tables looked up by one kernel: at best as fast as the bytes, at worst as long as now."""
    if curves is None:
        return Abstained("device_unknown")
    low = min(_BAG_RATE * curves.memory_ns(reads, writes, 0.0), measured_ns)
    return Estimate(
        after_ns=outwards(low, low ** (1 - _BAGS_APART) * measured_ns**_BAGS_APART, measured_ns),
        traffic_bytes=Traffic(before=reads + writes, after=reads + writes),
        assumptions=(
            "one kernel for all bags moves as many bytes: at the device's rate (low), as long as now (high), middle: "
            "nearer to now, as measured",
        ),
    )
