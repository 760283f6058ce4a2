"""Dataflow where nothing recorded it: tensors simulated from shapes, dtypes, strides and the order of operators.

Where a timeline has no execution trace, `inferred` gives the `tensors` that one might have had: each input of an
operator is bound to a live tensor of its shape, dtype and strides, and gets that tensor's storage.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.columns import numbers, string_ids, texts, with_columns
from tracemine.flow.inferred.perhaps import Guesses
from tracemine.flow.inferred.simulate import SimulatedProgram
from tracemine.flow.inferred.tables import tensors_table
from tracemine.flow.inferred.wiring import KERNEL, TO_DEVICE, TO_HOST
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

__all__ = ["inferred"]


def inferred(timeline: Timeline, order: Order) -> tuple[Timeline, Order, BoolArray, Guesses]:
    """Return the timeline as an execution trace would have made it, as far as can be inferred.

    It has `tensors`, and the schemas of the operators that have some, as `joined` of the order says. Of each row of
    `tensors` exactly one candidate was left, or it is a guess; and what was guessed.
    """
    program = SimulatedProgram(timeline, order, _launches(timeline, order))
    simulation, schemas = program.simulated()
    subtrees = program.subtrees
    table, sure, found_at = tensors_table(simulation.bound, order, subtrees)
    places = np.fromiter(schemas, np.int64, len(schemas))
    joined = np.zeros(len(order.row), np.bool_)
    joined[subtrees.at[places]] = True
    guesses = Guesses(
        bound=simulation.bound,
        root_of=program.root_of,
        inside=~sure & np.array([*simulation.bound.sure, False], np.bool_)[found_at],
    )
    timeline = _with(timeline, table, order.row[subtrees.at[places]], list(schemas.values()))
    return timeline, replace(order, joined=joined), sure, guesses


def _launches(timeline: Timeline, order: Order) -> IntArray:
    """Return for each operator what it launched itself: KERNEL, TO_DEVICE, TO_HOST, together."""
    owner = numbers(timeline.activities.column("op_row"), -1)
    position = np.append(order.position, -1)[owner]
    copy, kinds = string_ids(timeline.activities.column("copy_kind"))
    flag = np.array([{"HtoD": TO_DEVICE, "DtoH": TO_HOST}.get(kind, KERNEL) for kind in (*kinds, "")], np.int64)[copy]
    found = np.zeros(len(order.row) + 1, np.int64)
    np.bitwise_or.at(found, position, flag)
    return found[:-1]


def _with(timeline: Timeline, table: pa.Table, rows: IntArray, schemas: list[str]) -> Timeline:
    """Return the timeline with these tensors, and these schemas of these rows of `ops`."""
    distinct = {schema: number for number, schema in enumerate(sorted(set(schemas)))}
    code = np.full(timeline.ops.num_rows, -1, np.int64)
    code[rows] = [distinct[schema] for schema in schemas]
    ops = with_columns(timeline.ops, {"op_schema": texts(code, list(distinct))})
    return replace(timeline, ops=ops, tensors=table)
