"""Weights kept at half width in place of being cast in each step: what that saves."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.lists import Call, Lists
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Estimate, Pass, Range, Traffic
from tracemine.perfmodel.lists import listed_ns
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.table import IntArray


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate what is left of casts of weights."""
    facts, members = context.facts["activities"], matrix[0]
    calls = context.lists.calls(facts.op_row[members], [""] * len(members))
    if len(calls) < len(members):
        return Abstained("bytes_unknown")
    copied, moved_bytes = cast_pass(context.lists, calls)
    measured_ns = float(facts.dur_ns[matrix].mean(axis=0).sum())
    found = cast_once(copied, moved_bytes, measured_ns, context.curves, training=context.training)
    return on_gpu(context, matrix, found)


def cast_pass(lists: Lists, calls: Sequence[Call]) -> tuple[Pass, int]:
    """Return copies of weights from float32 to half width as one pass over lists, and the bytes that are moved now.

    Autocast entered several times a step copies a weight as often: recorded tensors put it in the pass once.
    """
    sizes = [call.sizes[0][0] if call.sizes else 0 for call in calls]
    sources = [_source(lists, call) for call in calls]
    own = list(dict(zip(sources, sizes, strict=True)).values()) if all(sources) else sizes
    return Pass(reads=4 * sum(own), writes=2 * sum(own), sizes=tuple(own), lists=2), 6 * sum(sizes)


def _source(lists: Lists, call: Call) -> tuple[int, int] | None:
    """Return which memory a call of `copy_` copies; None where that was not recorded."""
    return next((t.memory for t in lists.tensors(call.row) if not t.is_output and t.position == 1), None)


def cast_once(
    copied: Pass, moved_bytes: int, measured_ns: float, curves: Curves | None, *, training: bool
) -> Estimate | Abstained:
    """Estimate weights kept at half width in place of being copied in every step, which moves so many bytes.

    In training they change with every step: the optimizer writes them too (low end), or lists are copied (middle).

    >>> from tracemine.devices import find_device
    >>> curves = Curves.of(find_device("NVIDIA H200"))
    >>> copied = Pass(reads=4 << 20, writes=2 << 20, sizes=(1 << 20,), lists=2)
    >>> cast_once(copied, 6 << 20, 30_000, curves, training=False).after_ns.high
    0
    """
    if curves is None:
        return Abstained("device_unknown")
    traffic = Traffic(before=moved_bytes, after=0)
    if not training:
        return Estimate(after_ns=Range(0, 0, 0), traffic_bytes=traffic, assumptions=("nothing is left of it",))
    written = curves.memory_ns(0, copied.writes, 0.0) - curves.memory_ns(0, 1, 0.0)
    mid = min(max(listed_ns(curves, copied), written), measured_ns)
    return Estimate(
        after_ns=outwards(min(written, mid), mid, measured_ns),
        traffic_bytes=Traffic(before=traffic.before, after=copied.writes),
        assumptions=(
            "low end: the optimizer writes the copies in its own pass; middle: lists of weights are copied behind it; "
            "high end: as long as now",
        ),
    )
