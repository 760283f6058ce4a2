"""What speaks against one CUDA graph of the model: waits, copies and allocations in it, and several runs a step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray, Categories, Rows, category
from tracemine.timeline import Timeline
from tracemine.units import count_text

ALLOCATED = deferred(r"^(cuda|hip)Malloc(?!Host)")
_NODE = deferred(r"^autograd::engine::evaluate_function: ")
_SYNCHRONISES = deferred(r"^(cuda|hip)(Stream|Event)Synchronize")
# Operators that wait for a value, or for a size, from the device; what runs in them waits as part of them.
_READS_BACK = {"aten::_local_scalar_dense": "`.item()`", "aten::nonzero": "`nonzero`", "aten::_unique2": "`unique`"}
_LOOPED_ADAM = deferred(r"^aten::(_foreach_)?addcdiv_$")
_ADAMS = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax"})


class Chosen(Struct, frozen=True):
    """Operators and runtime calls that count; `known`: some lie in modules, so that others are known not to."""

    ops: BoolArray
    api: BoolArray
    known: bool
    optimizer: bool  # what an optimizer does counts

    @property
    def others(self) -> Chosen:
        """Return the rest; nothing where all may lie in the model."""
        return Chosen(~self.ops & self.known, ~self.api & self.known, self.known, self.known and not self.optimizer)

    def activities(self, timeline: Timeline) -> BoolArray:
        """Return which activities do; those without an operator do with the rest of the model."""
        op = rows_of(timeline.activities["op_row"])
        without = self.optimizer  # in the model, unless it is known where that ends
        return np.where(op >= 0, np.append(self.ops, without)[op], without)


def in_model(timeline: Timeline, backward: BoolArray) -> Chosen:
    """Return what `torch.compile(model)` takes in: modules and the backward pass; all where no module is known."""
    module = categories(timeline.ops["module"]).codes >= 0
    if not module.any():
        return Chosen(np.ones(len(module), np.bool_), np.ones(timeline.api.num_rows, np.bool_), False, True)
    inside = module | backward
    owner = rows_of(timeline.api["op_row"])
    of_op = np.where(owner >= 0, np.append(inside, False)[owner], False)
    return Chosen(inside, of_op | (categories(timeline.api["module"]).codes >= 0), True, False)


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


def blockers(timeline: Timeline, activities: Rows, optimizer: Categories, chosen: Chosen) -> Iterable[str]:
    """Yield what the capture of a CUDA graph does not allow, with how often it is chosen.

    `optimizer`: of each activity the class of the optimizer in whose step it is.
    """
    calls, ops = categories(timeline.api["name"]), categories(timeline.ops["name"])
    counted = ops.codes[chosen.ops & (ops.codes >= 0)]
    times = dict(zip(ops.values, np.bincount(counted, minlength=len(ops.values)).tolist(), strict=True))
    for name, text in _READS_BACK.items():
        if times.get(name):
            yield f"{text}, {count_text(times[name], 'time')}"
    pageable = np.zeros(activities.count, np.bool_)
    for name in ("source_memory", "target_memory"):
        pageable |= category(activities, name).among("pageable")
    if count := int((pageable & chosen.activities(timeline)).sum()):
        yield count_text(count, "copy") + " from or to pageable memory"
    if count := int((named(calls, ALLOCATED) & chosen.api).sum()):
        yield f"memory allocated by the driver, {count_text(count, 'time')} (warm up before the capture)"
    if count := _waits(timeline, calls, ops, chosen):
        yield f"a stream or an event waited for, {count_text(count, 'time')}"
    adams = sorted(_ADAMS.intersection(optimizer.values)) if chosen.optimizer and _looped(ops.values) else []
    if adams:
        yield f"{adams[0]} in a loop, unless it was made with `capturable=True`"


def _looped(names: Sequence[str]) -> bool:
    return any(_LOOPED_ADAM.search(name) for name in names) and not any("_fused_adam" in name for name in names)


def _waits(timeline: Timeline, calls: Categories, ops: Categories, chosen: Chosen) -> int:
    """Count calls that wait for a stream or an event, without those of operators counted as such, and of copies."""
    owner = rows_of(timeline.api["op_row"])
    counted = named(ops, re.compile("|".join(map(re.escape, (*_READS_BACK, "aten::copy_")))))
    own = np.where(owner >= 0, counted[owner], False) if len(counted) else np.zeros(len(owner), np.bool_)
    return int((named(calls, _SYNCHRONISES) & ~own & chosen.api).sum())
