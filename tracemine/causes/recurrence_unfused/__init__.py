"""A recurrence that a loop computes operator by operator, and one call of a library could.

cells.py     what an iteration computes: a cell that a library has, or a scan
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.causes.cause import Cause
from tracemine.causes.recurrence_unfused.cells import CELLS, KINDS, PRODUCTS, Turn, kind_of, one_weight
from tracemine.columns import sorted_unique
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.context import AdviceFacts, ScanContext
from tracemine.findings.estimates import on_gpu
from tracemine.findings.labels import text_at
from tracemine.flow import Evidence
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import KERNEL_NS, Abstained, Curves, Estimate, Range
from tracemine.perfmodel.ranges import outwards
from tracemine.rows.arrow import coded
from tracemine.rows.graph import NodeGraph
from tracemine.rows.loops import ProductLoop, loops_with_state
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

PARTS: Final = ("product", "projection", "rest")
_ONE_WEIGHT: Final = frozenset({"mm", "addmm", "_addmm_activation"})  # a batched product has a weight an entry


def _columns(sources: Sources, activities: Rows) -> dict[str, Column]:
    number, kind, part, projection = np.full((4, activities.count), -1)
    turns, graph = np.zeros((2, activities.count), np.int64), activities.graph
    loops = [] if graph is None else list(loops_with_state(sources.timeline, activities))
    if graph is not None and loops:
        operation = category(activities, "operation")
        each = [Turn.of(graph, loop, operation) for loop in loops]
        summed = category(activities, "loop_dependence").among("accumulates")  # no product has to wait there
        for turn in each:
            for slot in np.flatnonzero(turn.loop.own).tolist():
                if turn.operations[slot] not in _ONE_WEIGHT or not one_weight(graph, turn.loop, slot):
                    continue
                rows = _activities(graph, np.arange(turn.loop.begin + slot, turn.loop.end, turn.loop.period))
                if summed[rows].any():
                    continue
                projection[rows] = turn.loop.begin + slot
                turns[1, rows] = (turn.loop.end - turn.loop.begin) // turn.loop.period
        for loop, name, parts in _recurrences(graph, each):
            node = np.arange(loop.begin, loop.end)
            node = node if name in CELLS else node[projection[graph.first_activity[node]] < 0]  # no scan's work
            every = _activities(graph, node)
            turns[0, every] = (loop.end - loop.begin) // loop.period
            number[every], kind[every] = loop.begin, KINDS.index(name)
            count = np.diff(graph.activity_begin)[node]
            part[every] = np.repeat(parts[(node - loop.begin) % loop.period], count)
    return {
        "recurrence": Numbers(np.maximum(number, 0), number >= 0),
        "recurrence_turns": Numbers(turns[0], number >= 0),
        "recurrence_kind": coded(KINDS, kind),
        "recurrence_part": coded(PARTS, part),
        "projection_of": Numbers(np.maximum(projection, 0), projection >= 0),
        "projection_turns": Numbers(turns[1], projection >= 0),
    }


def _activities(graph: NodeGraph, nodes: IntArray) -> IntArray:
    begin, end = graph.activity_begin[nodes], graph.activity_begin[nodes + 1]
    return np.concatenate([graph.activity[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])


def _recurrences(graph: NodeGraph, turns: Sequence[Turn]) -> Iterator[tuple[ProductLoop, str, IntArray]]:
    """Yield the loops that are one, of which kind, and the part of each operator of an iteration."""
    kinds = [kind_of(graph, turn) for turn in turns]
    cells = [(turn.loop, kind) for turn, kind in zip(turns, kinds, strict=True) if kind in CELLS]
    for turn, kind in zip(turns, kinds, strict=True):
        if kind is None:  # the backward pass of a cell goes with it
            of = {name for loop, name in cells if _differentiates(graph, turn.loop, loop)}
            kind = of.pop() if len(of) == 1 else None
        if kind is not None:
            product = np.array([each in PRODUCTS for each in turn.operations])
            yield turn.loop, kind, np.where(product & turn.carried(), 0, np.where(product, 1, 2))


def _differentiates(graph: NodeGraph, loop: ProductLoop, forward: ProductLoop) -> bool:
    """Return whether a loop is a backward pass' and reads what most iterations of a forward loop computed."""
    if loop.begin not in graph.backward or loop.begin < forward.end:
        return False
    span = slice(*np.searchsorted(graph.consumer, [loop.begin, loop.end]).tolist())
    writer = graph.producer[span]
    writer = writer[(writer >= forward.begin) & (writer < forward.end)]
    return 2 * len(sorted_unique((writer - forward.begin) // forward.period)) > (loop.end - loop.begin) // loop.period


_NONE: Final = "in no such loop, shapes were not recorded, or dataflow is not known"
COLUMNS = Columns(
    docs=(
        ColumnDoc("recurrence", "numbers", "which recurrence it is part of: operators that repeat 16 times or more on one stream with the same shapes, each time on what the time before left, and compute the cell of an LSTM, GRU or RNN or scale, multiply and add to a state; or the backward pass of such a cell", _NONE),
        ColumnDoc("recurrence_turns", "numbers", "how many iterations that has", _NONE),
        ColumnDoc("recurrence_kind", "categories", "what it computes, one of " + ", ".join(f"`{kind}`" for kind in KINDS), _NONE),
        ColumnDoc("recurrence_part", "categories", "`product`: a product on the way from one state to the next; `projection`: another product; `rest`", _NONE),
        ColumnDoc("projection_of", "numbers", "which products it is one of, that a loop makes with one weight, each of an input of its own, in iterations that need each other: these products need none of them", "no such product, shapes were not recorded, or dataflow is not known"),
        ColumnDoc("projection_turns", "numbers", "how many iterations that loop has", "no such product"),
    ),
    derive=_columns,
)  # fmt: skip

_ITEM_BYTES: Final = 4  # of narrower numbers a matrix counts as wider than it is
# Low, middle and high end. A layer's products of the state run one after another as they do now, all others at once,
# and one kernel an iteration does the rest.
_PRODUCT: Final = (0.6, 1.0, 1.3)
_PROJECTION: Final = (0.1, 0.25, 0.7)
_ITERATION_NS: Final = (1_200, 2_500, 5_000)
# What the host spends on an iteration within the library's layer: the state's product is launched there, and a kernel
# for the rest. Of three programs on an H200, forward, 19 to 26 µs.
_HOST_NS: Final = Range(6_000, 20_000, 26_000)
_SCAN: Final = (1.0, 2.5, 8.0)  # of reading and writing all states once


def estimate(context: ScanContext, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
    """Estimate one call in place of a recurrence's loop."""
    rows, members = context.rows["activities"], matrix[0]
    kind = text_at(category(rows, "recurrence_kind"), int(members[0]))
    turns = int(number(rows, "recurrence_turns")[members[0]])
    mean_ns = context.facts["activities"].dur_ns[matrix].mean(axis=0)
    if kind in CELLS:
        part = category(rows, "recurrence_part")
        spent = {name: float(mean_ns[part.among(name)[members]].sum()) for name in PARTS}
        found = on_gpu(context, matrix, layer(spent, turns), _evidence(context, members))
        return found if isinstance(found, Abstained) else replace(found, call_ns=_HOST_NS * turns)
    if context.curves is None:
        return Abstained("device_unknown")
    if kind == "linear":
        return on_gpu(context, matrix, _by_halves(context, context.curves, members, turns), _evidence(context, members))
    moved = [number(rows, name, null=-1)[members] for name in ("bytes_read", "bytes_written")]
    if min(each.min() for each in moved) < 0:
        return Abstained("bytes_unknown")
    # A scan reads what is given and writes the states; operators apart also read and write each state.
    moved_ns = context.curves.memory_ns(int(moved[0].sum()) // 2, int(moved[1].sum()) // 2, 0.0)
    after = outwards(*(min(times * moved_ns, float(mean_ns.sum())) for times in _SCAN))
    note = f"a scan takes {_SCAN[1]:g} times as long as moving all of it once ({_SCAN[0]:g}–{_SCAN[2]:g}, assumed)"
    return on_gpu(context, matrix, Estimate(after_ns=after, assumptions=(note,)), _evidence(context, members))


def _by_halves(context: ScanContext, curves: Curves, members: IntArray, turns: int) -> Estimate | Abstained:
    """Estimate steps that are joined two and two, in as many passes over all states as that takes: with one matrix a
    step for all of the batch, or at most one of its own for each row of a state.
    """
    rows = context.rows["activities"]
    flops, written = (number(rows, name)[members] for name in ("call_flops", "bytes_written"))
    products = (flops > 0) & (written > 0)
    if not products.any():
        return Abstained("bytes_unknown")
    width = int((flops * _ITEM_BYTES / (2 * np.maximum(written, 1)))[products].max())
    passes, states = (turns - 1).bit_length(), turns * int(written.max())
    mid = passes * max(curves.memory_ns(states, states, 0.0), KERNEL_NS)
    return Estimate(
        after_ns=outwards(mid / 2, mid, mid * max(width, 2)).at_most(
            int(context.facts["activities"].dur_ns[members].sum())
        ),
        assumptions=(f"steps are joined two and two, in {passes} passes over {turns} states (assumed)",),
    )


def _evidence(context: ScanContext, members: IntArray) -> Evidence:
    """Return how sure it is what the operators of a loop read."""
    graph = context.rows["activities"].graph
    if graph is None:
        return Evidence.ADJACENT
    nodes = graph.activity_node[members]
    read = graph.read_evidence[graph.read_begin[nodes.min()] : graph.read_begin[nodes.max() + 1]]
    return Evidence(int(read.min(initial=Evidence.PROVEN)))


def layer(spent: Mapping[str, float], turns: int) -> Estimate:
    """Estimate a library's layer for a loop of so many iterations; spent: on each of PARTS.

    >>> layer({"product": 280_000, "projection": 280_000, "rest": 500_000}, 48).after_ns
    Range(low=253600, mid=470000, high=800000)
    """
    low, mid, high = (
        product * spent["product"] + projection * spent["projection"] + min(turns * each_ns, spent["rest"])
        for product, projection, each_ns in zip(_PRODUCT, _PROJECTION, _ITERATION_NS, strict=True)
    )
    return Estimate(
        after_ns=outwards(low, mid, high),
        assumptions=(
            f"one call for all {turns} iterations: products of the state take as long as now "
            f"({_PRODUCT[0]:g}–{_PRODUCT[2]:g} times), the others {_PROJECTION[1]:g} of it at once "
            f"({_PROJECTION[0]:g}–{_PROJECTION[2]:g}), and the rest {_ITERATION_NS[1] / 1000:g} µs an iteration "
            f"({_ITERATION_NS[0] / 1000:g}–{_ITERATION_NS[2] / 1000:g}) (assumed)",
        ),
    )


def _facts(context: ScanContext, rule: Rule, classes: Sequence[ClassEstimate], named: BoolArray) -> dict[str, Fact]:
    """Return what the recurrence computes, and whether it makes its inputs' product anew in each iteration."""
    if rule.id != "recurrence_unfused":
        return {}
    kind, part = (category(context.rows["activities"], name) for name in ("recurrence_kind", "recurrence_part"))
    projected = any(bool(part.among("projection")[one.matrix[0]].any()) for one in classes)
    return {"recurrence": text_at(kind, int(classes[0].matrix[0, 0])), "projected": projected}


FACTS = AdviceFacts(
    docs={
        "recurrence": FactDoc("what a loop computes as `recurrence_kind` says it", text=True, values=KINDS),
        "projected": FactDoc("of a recurrence: its iterations make products that need nothing of its state"),
    },
    find=_facts,
)

CAUSE = Cause(rule="recurrence_unfused", columns=COLUMNS, estimate=estimate, facts=FACTS)
