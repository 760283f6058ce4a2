"""What XLA could have compiled otherwise: attention in separate kernels, and all rules of compiled modules.

reading.py   the instructions of a module: what each computes, takes and gives
detect.py    patterns among them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from msgspec import Struct

from tracemine.causes.cause import Cause
from tracemine.causes.xla_attention_unfused.detect import FINDINGS, Case, LeftWork, cases
from tracemine.causes.xla_attention_unfused.reading import InstructionRuns, ModuleInstruction, runs_of
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.findings.parts import covered_ns
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Estimate
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import coded, rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import (
    BoolArray,
    Column,
    ColumnDoc,
    Columns,
    IntArray,
    Numbers,
    Rows,
    Sources,
    category,
    number,
)
from tracemine.rows.table import number as number_of

_FEWEST_MODULES: Final = 4  # in a row
_SMALL: Final = 2  # kernels of one
_SCALAR_BYTES: Final = 64
_ALONE: Final = frozenset({"elementwise", "reduction", "movement"})  # what one module for all would fuse
_RATES: Final = (
    "attention half",
    "attention_backward half",
    "product half",
    "product tf32",
    "product fp32",
    "product int8",
    "product fp8",
)


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    count = activities.count
    finding, case, rate, number = np.full((4, count), -1)
    flops, nbytes = np.zeros((2, count), np.int64)
    graph, flow = activities.graph, sources.flow
    if graph is not None and flow is not None and sources.timeline.instructions.num_rows:
        runs = runs_of(flow)
        node = np.full(sources.timeline.ops.num_rows, -1)
        node[flow.nodes.op_row] = np.arange(len(flow.nodes))
        for at, (found, rows) in enumerate(_occurrences(runs, node)):
            for row, left in rows:
                mine = _activities(graph, int(node[runs.op_row[row]]))
                if finding[mine[0]] >= 0:  # what is found in a module goes before the modules around it
                    continue
                finding[mine], case[mine], number[mine] = FINDINGS.index(found.finding), at, found.count
                flops[mine[:1]], nbytes[mine[:1]] = left.flops, left.nbytes
                rate[mine[:1]] = _RATES.index(left.rate) if left.rate else -1
        own = np.flatnonzero(finding == FINDINGS.index("op by op"))
        scalars = _scalars(activities) & (finding < 0)
        for stretch in np.split(own, np.flatnonzero(np.diff(case[own])) + 1) if len(own) else ():
            within = np.arange(stretch[0], stretch[-1] + 1)
            more = within[scalars[within]]
            finding[more], case[more], number[more] = finding[stretch[0]], case[stretch[0]], number[stretch[0]]
    known = finding >= 0
    return {
        "xla_finding": coded(FINDINGS, finding),
        "xla_case": Numbers(np.maximum(case, 0), known),
        "xla_count": Numbers(np.maximum(number, 0), known),
        "xla_flops": Numbers(flops, known),
        "xla_bytes": Numbers(nbytes, known),
        "xla_rate": coded(_RATES, rate),
    }


def _scalars(activities: Rows) -> BoolArray:
    """Return which activities copy a number or a few to the device, as each operation on one does that is not jitted."""
    few = number_of(activities, "bytes_moved", null=_SCALAR_BYTES + 1) <= _SCALAR_BYTES
    return few & category(activities, "copy_kind").among("HtoD")


def _activities(graph: NodeGraph, node: int) -> IntArray:
    return graph.activity[graph.activity_begin[node] : graph.activity_begin[node + 1]]


def _occurrences(runs: InstructionRuns, node: IntArray) -> Iterator[tuple[Case, list[tuple[int, LeftWork]]]]:
    """Yield each case in each execution of its module: the rows of `instructions`, and what is left of each."""
    order = np.argsort(runs.execution, kind="stable")
    order = order[node[runs.op_row[order]] >= 0]
    for program, given in runs.modules.items():
        mine = order[runs.program[order] == program]
        for found in cases(given):
            chosen = mine[np.isin(runs.number[mine], [*found.parts])].tolist()
            for _, rows in groupby(chosen, key=lambda row: int(runs.execution[row])):
                yield found, [(row, found.parts[int(runs.number[row])]) for row in rows]
    yield from _op_by_op(runs, node)


def _op_by_op(runs: InstructionRuns, node: IntArray) -> Iterator[tuple[Case, list[tuple[int, LeftWork]]]]:
    """Yield stretches of modules of one kernel or two."""
    size = np.bincount(runs.execution, minlength=1)
    order = np.lexsort((runs.op_row, runs.execution))
    small = (size[runs.execution] <= _SMALL) & (node[runs.op_row] >= 0)
    for is_small, stretch in groupby(order.tolist(), key=lambda row: bool(small[row])):
        rows = [*stretch]
        modules_of = len({int(runs.execution[row]) for row in rows})
        if not is_small or modules_of < _FEWEST_MODULES:
            continue
        each = [runs.modules[int(runs.program[row])][runs.number[row]] for row in rows]
        kept = [at for at, one in enumerate(each) if one.kind in _ALONE]
        lefts = _passes([each[at] for at in kept])
        yield Case("op by op", {}, modules_of), [(rows[at], left) for at, left in zip(kept, lefts, strict=True)]


def _passes(given: Sequence[ModuleInstruction]) -> Iterator[LeftWork]:
    """Yield what is left of each: a pass over the largest array for the whole, and one for each reduction whose result
    is needed before another can begin.
    """
    largest = max((array.nbytes for each in given for array in (*each.takes, *each.gives)), default=0)
    reduced = False
    for at, each in enumerate(given):
        wide = 2 * max((array.nbytes for array in each.gives), default=0) >= largest
        yield LeftWork(nbytes=2 * largest if at == 0 or (wide and reduced) else 0)
        reduced = each.kind == "reduction" or (reduced and not wide)


_NONE: Final = "part of nothing of that kind, or not of a compiled module"
COLUMNS = Columns(
    docs=(
        ColumnDoc("xla_finding", "categories", "what it is part of that XLA could have compiled otherwise, one of " + ", ".join(f"`{name}`" for name in FINDINGS), _NONE),
        ColumnDoc("xla_case", "numbers", "which of these it is part of: equal in one execution of a module; of `op by op`, in one stretch of modules", _NONE),
        ColumnDoc("xla_count", "numbers", "how many layers, products or modules that is", _NONE),
        ColumnDoc("xla_flops", "numbers", "floating-point operations that its instruction has left then; said of its first activity", _NONE),
        ColumnDoc("xla_bytes", "numbers", "bytes that its instruction has left to move then; said of its first activity", _NONE),
        ColumnDoc("xla_rate", "categories", "the call whose rate these operations have, one of " + ", ".join(f"`{name}`" for name in _RATES), _NONE),
    ),
    derive=_columns,
)  # fmt: skip

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

CAUSE = Cause(rule="xla_attention_unfused", columns=COLUMNS, savings={"rebuild": estimate}, facts=FACTS)
