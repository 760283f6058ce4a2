"""Which activities are part of what XLA could have compiled otherwise, and what is left of them then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from tracemine.causes.xla_attention_unfused.detect import FINDINGS, Case, LeftWork, cases
from tracemine.causes.xla_attention_unfused.reading import InstructionRuns, ModuleInstruction, runs_of
from tracemine.rows.arrow import coded
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import BoolArray, Column, ColumnDoc, Columns, IntArray, Numbers, Rows, Sources, category
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
