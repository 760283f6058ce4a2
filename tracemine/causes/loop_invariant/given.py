"""What each step was given: tensors from outside, and batches from the host.

A copy of what operators on the host make of nothing, alike in each step, is no batch: it is a constant too.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

import numpy as np

from tracemine.columns import booleans, is_among, numbers, sorted_unique, unique_pairs
from tracemine.flow.record import Evidence, Flow, Source
from tracemine.ops import lookup
from tracemine.rows.ancestors import nearest, outermost, taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.table import BoolArray, IntArray
from tracemine.timeline import Timeline

_BATCH_BYTES: Final = 512  # copied from the host in a step: less is a number, or a count
_NOT_WRITTEN: Final = "aten::empty"  # Python may write into it


def inputs_change(flow: Flow) -> bool:
    """Return whether each step was given inputs of its own."""
    reads, step = flow.reads, flow.nodes.step_row
    steps = sorted_unique(step[step >= 0])
    outside = (reads.source == Source.OUTSIDE) & ~np.isin(reads.buffer, flow.writes.buffer)
    outside &= (reads.evidence == Evidence.PROVEN) & (step[reads.node] >= 0)
    buffer, of = np.unique(reads.buffer[outside], return_inverse=True)
    within = np.searchsorted(steps, step[reads.node[outside]])
    pairs = sorted_unique(of.reshape(-1) * len(steps) + within)
    everywhere = np.bincount(pairs // max(len(steps), 1), minlength=len(buffer)) == len(steps)
    given = pairs[~everywhere[pairs // max(len(steps), 1)]] % max(len(steps), 1)
    return len(steps) in (len(sorted_unique(given)), int(_copied(flow.timeline, steps).sum()))


def _copied(timeline: Timeline, steps: IntArray) -> BoolArray:
    """Return in which steps a batch is copied from the host."""
    activities, op_row = timeline.activities, rows_of(timeline.activities["op_row"])
    batch = categories(activities["copy_kind"]).among("HtoD") & (numbers(activities["bytes"], 0) >= _BATCH_BYTES)
    rows = np.flatnonzero(batch)
    rows = rows[is_among(rows_of(activities["step_row"])[rows], steps)]
    copied: BoolArray = np.zeros(len(steps), np.bool_)
    if len(rows):
        step = np.searchsorted(steps, rows_of(activities["step_row"])[rows])
        parent, is_op = rows_of(timeline.ops["parent_row"]), categories(timeline.ops["kind"]).among("op")
        outer = outermost(nearest(parent, is_op), parent)
        call = taken(_alike(timeline, outer), taken(outer, op_row[rows]))
        in_steps = np.bincount(unique_pairs(call + 1, step)[0], minlength=int(call.max()) + 2)
        in_steps[0] = 0
        copied[step[in_steps[call + 1] < len(steps)]] = True
    return copied


def _alike(timeline: Timeline, outer: IntArray) -> IntArray:
    """Return a code of each outermost operator on the host: equal for the same call on what the same calls made. −1: it
    takes what was there before, what Python or the device gave, or it draws random numbers. outer: of each operator.
    """
    ops, tensors = timeline.ops, timeline.tensors
    names, arguments = (categories(ops[each]) for each in ("name", "concrete_inputs"))
    op, result = rows_of(tensors["op_row"]), np.full(ops.num_rows, -1)
    host = categories(tensors["device"]).among("cpu")
    rows = np.flatnonzero((outer[op] == op) & np.isin(op, op[host]))
    rows = rows[np.argsort(op[rows], kind="stable")]
    varies = names.that(_varies)
    columns = (op, rows_of(tensors["storage_id"]), booleans(tensors["is_output"]), host)
    made, known = dict[int, int](), dict[tuple[int, ...], int]()
    for at, entries in groupby(
        zip(*(column[rows].tolist() for column in columns), strict=True), lambda entry: entry[0]
    ):
        tensors_of = list(entries)
        takes = [made.get(storage, -1) if on_host else -1 for _, storage, gives, on_host in tensors_of if not gives]
        call = (int(names.codes[at]), int(arguments.codes[at]), *takes)
        result[at] = -1 if varies[at] or -1 in takes else known.setdefault(call, len(known))
        made |= {storage: int(result[at]) for _, storage, gives, on_host in tensors_of if gives and on_host}
    return result


def _varies(name: str) -> bool:
    """Return whether an operator may give something else for the same arguments.

    >>> [_varies(f"aten::{name}") for name in ("linspace", "stack", "randn", "empty", "of_ones_own")]
    [False, False, True, True, True]
    """
    known = lookup(name)
    return known is None or known.op_class == "random" or name.startswith(_NOT_WRITTEN)
