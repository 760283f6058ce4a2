"""What speaks against one CUDA graph of the model: waits, copies and allocations in it, and several runs a step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tracemine.findings.graphs.kinds import KINDS
from tracemine.findings.graphs.obstacles import WHOLE_DEVICE, Obstacles
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray
from tracemine.timeline import Timeline
from tracemine.units import count_text

ALLOCATED = deferred(r"^(cuda|hip)Malloc(?!Host)")
_NODE = deferred(r"^autograd::engine::evaluate_function: ")


def in_model(timeline: Timeline, backward: BoolArray) -> BoolArray:
    """Return which operators `torch.compile(model)` takes in, one more for −1: modules and the backward pass; all where
    no module is known.
    """
    module = categories(timeline.ops["module"]).codes >= 0
    return np.append(module | backward, False) if module.any() else np.ones(len(module) + 1, np.bool_)


def model_calls(timeline: Timeline, backward: BoolArray) -> int:
    """Count the calls of the outermost module that runs most often, in all steps: its operators, others between.

    0: no steps, or no modules, were recorded.
    """
    paths = categories(timeline.ops["module"])
    steps = timeline.steps.num_rows
    thread = rows_of(timeline.ops["tid"])
    begin, step = rows_of(timeline.ops["start_ns"]), np.sort(rows_of(timeline.steps["start_ns"]))
    if not steps or not paths.values:
        return 0
    roots = {root: at for at, root in enumerate(dict.fromkeys(path.split(".")[0] for path in paths.values))}
    root = np.array([*(roots[path.split(".")[0]] for path in paths.values), -1], np.int64)[paths.codes]
    within = np.searchsorted(step, begin, side="right")
    of_forward = (within > 0) & ~backward
    order = np.flatnonzero(of_forward)[np.lexsort((begin[of_forward], thread[of_forward]))]
    changes = np.stack([np.diff(each[order]) != 0 for each in (root, thread, within)]).any(axis=0)
    begun = root[order][np.append(True, changes)[: len(order)]]
    return int(np.bincount(begun[begun >= 0], minlength=1).max())


def derived_twice(timeline: Timeline, backward: BoolArray) -> bool:
    """Return whether autograd differentiated what a backward pass had computed (`create_graph=True`).

    A node of autograd carries the sequence number of the operator that it differentiates. That one ran in a backward
    pass, and before the node: what a checkpoint computes again it differentiates within a node that is still open.
    """
    ops = timeline.ops
    sequence, begin = rows_of(ops["sequence_number"]), rows_of(ops["start_ns"])
    node = named(categories(ops["name"]), _NODE)
    inner = np.flatnonzero(backward & ~node & (sequence >= 0))
    nodes = np.flatnonzero(node & (sequence >= 0))
    if not len(inner) or not len(nodes):
        return False
    around = nearest(rows_of(ops["parent_row"]), node)[inner]
    ended = np.where(around >= 0, (begin + rows_of(ops["dur_ns"]))[around], begin[inner])
    # A node repeats the number of its own operator: what it runs itself has others.
    apart = sequence[inner] != np.where(around >= 0, sequence[around], -1)
    inner, ended = inner[apart], ended[apart]
    latest = dict(zip(sequence[nodes].tolist(), begin[nodes].tolist(), strict=True))
    return any(
        latest.get(number, -1) >= end for number, end in zip(sequence[inner].tolist(), ended.tolist(), strict=True)
    )


def blockers(found: Obstacles, chosen: BoolArray) -> Iterable[str]:
    """Yield what the capture of a CUDA graph does not allow, with how often it is chosen; but for waits for the whole
    device, which stand where steps end. chosen: of each operator, one more for −1.
    """
    count = np.bincount(found.code[chosen[found.op_row]], minlength=len(found.kind))
    for kind, what, times in zip(found.kind, found.what, count.tolist(), strict=True):
        known = KINDS[kind]
        if times and known.effects.get("cuda_graph") == "raises" and what != WHOLE_DEVICE:
            yield f"{known.says.format(what=what)}, {count_text(times, 'time')}"
