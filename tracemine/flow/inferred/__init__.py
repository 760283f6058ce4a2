"""Dataflow where nothing recorded it: tensors simulated from shapes, dtypes, strides and the order of operators.

Where a timeline has no execution trace, `inferred` gives the `tensors` that one might have had: each input of an
operator is bound to a live tensor of its shape, dtype and strides, and gets that tensor's storage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from tracemine.columns import numbers, string_ids
from tracemine.flow.inferred.autograd import Gradients, is_record, steps_of
from tracemine.flow.inferred.binding import Simulation
from tracemine.flow.inferred.calls import NOTHING, Calls, Lists
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.optimizers import Update, updates
from tracemine.flow.inferred.subtrees import Subtrees, roots
from tracemine.flow.inferred.tables import tensors_table, texts
from tracemine.flow.inferred.wiring import KERNEL, TO_DEVICE, TO_HOST, Builder, Wiring
from tracemine.flow.order import Order, codes
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

__all__ = ["Inferred", "inferred"]

_PASSES = 3  # what a backward pass tells of its forward pass, a simulation of both takes into account; then again


@dataclass(frozen=True, slots=True)
class Inferred:
    """A timeline with the tensors that the simulation found."""

    timeline: Timeline  # with `tensors`, and the schemas of the operators that have some
    order: Order  # of which `joined` says whether the operator's schema is known
    consistent: BoolArray  # for each row of `tensors`: exactly one candidate was left; else it is a guess
    reasons: list[str]  # for each row how it was found; empty unless asked for


def inferred(timeline: Timeline, order: Order, *, explain: bool = False) -> Inferred:
    """The timeline as an execution trace would have made it, as far as can be told; with reasons to `explain`."""
    calls = Calls(timeline, order.row)
    launches = _launches(timeline, order)
    thread = codes(*(numbers(timeline.ops.column(name))[order.row] for name in ("pid", "tid")))
    subtrees = Subtrees.of(calls, order, thread, launches)
    known = np.array([calls.get(number).known for number in range(len(calls))], np.bool_)[calls.of_op]
    builder = Builder(calls, subtrees, launches)
    at = roots(order, known)
    at = at[known[at] | (launches[at] > 0) | ~is_record(timeline, order)[at]]
    first = at[np.unique(subtrees.number[at], return_index=True)[1]]
    wirings: dict[tuple[int, Lists], Wiring] = {
        (int(subtrees.number[root]), NOTHING): builder.build(root, NOTHING) for root in first.tolist()
    }
    lists = {need.loose for wiring in wirings.values() for need in wiring.needs if need.listed}
    # What launches work of its own around operators that stand for themselves: nobody knows what that makes.
    stands = np.full(len(known), -1)
    stands[at] = at
    around = np.flatnonzero((launches > 0) & (order.inherited(stands) < 0))
    optimizers = updates(timeline, order, at, subtrees.sums(launches > 0)[at] > 0, builder.call)
    hints: dict[tuple[int, int], tuple[int, int]] = {}
    own: set[int] = set()
    for _ in range(_PASSES):
        simulation = Simulation(builder.keys, lists, Lives.of(timeline, order, at))
        simulation.reasons = [] if explain else None
        simulation.trains, simulation.hints = bool(optimizers), hints
        simulation.own_roots = own
        schemas: dict[int, str] = {}
        _simulate(timeline, order, subtrees, builder, wirings, simulation, schemas, at, around, optimizers)
        before = len(hints), len(own)
        hints, own = hints | simulation.resolved(), simulation.own()
        if (len(hints), len(own)) == before:
            break
    table, sure, found_at = tensors_table(simulation.bound, order, subtrees)
    reasons = [] if simulation.reasons is None else [simulation.reasons[row] for row in found_at.tolist()]
    places = np.fromiter(schemas, np.int64, len(schemas))
    joined = np.zeros(len(order.row), np.bool_)
    joined[subtrees.at[places]] = True
    return Inferred(
        timeline=_with(timeline, table, order.row[subtrees.at[places]], list(schemas.values())),
        order=replace(order, joined=joined),
        consistent=sure,
        reasons=reasons,
    )


def _simulate(
    timeline: Timeline,
    order: Order,
    subtrees: Subtrees,
    builder: Builder,
    wirings: dict[tuple[int, Lists], Wiring],
    simulation: Simulation,
    schemas: dict[int, str],
    at: IntArray,
    around: IntArray,
    optimizers: dict[int, Update],
) -> None:
    """Run every root, in the order in which they begin, and pass what is unknown around some."""
    gradients = Gradients.of(timeline, order, at, subtrees.place)
    saves = gradients.saves
    positions = np.union1d(np.union1d(at, gradients.positions), around)
    is_root, is_unknown = np.isin(positions, at).tolist(), np.isin(positions, around).tolist()
    is_gradient = np.isin(positions, gradients.positions).tolist()
    step = steps_of(timeline, order)[positions].tolist()
    inside = gradients.around[positions].tolist()
    number_of, place_of = subtrees.number[positions].tolist(), subtrees.place[positions].tolist()
    last_step = None
    in_gradient = False

    def wiring_of(number: int, position: int, lists: Lists = NOTHING) -> Wiring:
        found = wirings.get((number, lists))
        if found is None:
            found = wirings[number, lists] = builder.build(position, lists)
        return found

    parents = order.parent[positions].tolist()
    for position, root, unknown, begins, number, place, node, parent, at_step in zip(
        *(positions.tolist(), is_root, is_unknown, is_gradient, number_of, place_of, inside, parents, step),
        strict=True,
    ):
        if at_step != last_step:
            simulation.step(at_step)
            last_step = at_step
        if unknown:
            simulation.unknown()
        if begins and not root:
            gradient = gradients.node(position)
            record = None if gradient.record < 0 else wiring_of(int(subtrees.number[gradient.record]), gradient.record)
            inner = [wiring_of(int(subtrees.number[at]), at) for at in gradient.roots]
            simulation.backward(position, gradient, record, inner)
            in_gradient = True
        if not root:
            continue
        if in_gradient and node < 0:
            simulation.forward()
            in_gradient = False
        wiring = wiring_of(number, position)
        update = optimizers.get(position)
        if update is not None and update.lists:
            wiring = wiring_of(number, position, simulation.lists(update, wiring))
        elif wiring.has_list:
            wiring = wiring_of(number, position, simulation.list_dtype(wiring))
        ran = simulation.run(position, wiring, apart=parent == node, update=update)
        for of_node in saves.get(position, ()):
            gradient = gradients.node(of_node)
            forward_op = wiring.inside.get(gradient.forward_place - gradient.root_place)
            if forward_op is not None:
                simulation.saved(of_node, forward_op, ran)
        for op, schema in wiring.nodes:
            schemas[place + op] = schema


def _launches(timeline: Timeline, order: Order) -> IntArray:
    """For each operator what it launched itself: KERNEL, TO_DEVICE, TO_HOST, together."""
    owner = numbers(timeline.activities.column("op_row"), -1)
    position = np.append(order.position, -1)[owner]
    copy, kinds = string_ids(timeline.activities.column("copy_kind"))
    flag = np.array([{"HtoD": TO_DEVICE, "DtoH": TO_HOST}.get(kind, KERNEL) for kind in (*kinds, "")], np.int64)[copy]
    found = np.zeros(len(order.row) + 1, np.int64)
    np.bitwise_or.at(found, position, flag)
    return found[:-1]


def _with(timeline: Timeline, table: pa.Table, rows: IntArray, schemas: list[str]) -> Timeline:
    """The timeline with these tensors, and these schemas of these rows of `ops`."""
    distinct = {schema: number for number, schema in enumerate(sorted(set(schemas)))}
    code = np.full(timeline.ops.num_rows, -1, np.int64)
    code[rows] = [distinct[schema] for schema in schemas]
    place = timeline.ops.schema.get_field_index("op_schema")
    ops = timeline.ops.set_column(place, timeline.ops.schema.field(place), texts(code, list(distinct)))
    return replace(timeline, ops=ops, tensors=table)
