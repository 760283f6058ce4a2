"""The row set "activities": one row a GPU kernel, copy or set, numbered as in the timeline's table.

Everything is derived from the timeline, vectorised over rows; what a name or a signature means is asked once for each
distinct one. What each column says stands in docs.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tracemine.calls import Call, calls_of
from tracemine.columns import codes, examples, sorted_unique, uncovered
from tracemine.ops import CLASSES, classify, functor
from tracemine.patterns import deferred
from tracemine.rows.ancestors import nearest, taken
from tracemine.rows.arrow import categories, coded, joined, mapped, numbers, rows_of, spread, take, take_numbers
from tracemine.rows.codes import combination_codes, grouped_running_maximum, segments
from tracemine.rows.host import is_graph_launch
from tracemine.rows.spans import Spans
from tracemine.rows.spans import exposed as exposed_ns
from tracemine.rows.table import BoolArray, Categories, Column, Flags, IntArray, Numbers, Rows, category, number
from tracemine.rows.user_frames import is_own, source_lines
from tracemine.timeline import Timeline

# Operators whose main kernel is theirs alone to choose: what else they launch cannot be fused by anybody outside.
_LIBRARY_CLASSES = frozenset({"gemm", "conv", "attention", "rnn", "linalg", "fft"})
# An operator's class says nothing of a kernel where the operator itself does no work.
_IDLE_CLASSES = frozenset({"view", "allocate", "metadata", "sync", "other"})
_GENERATED = frozenset({"inductor", "inductor_template"})  # families that torch.compile writes
_OF_WIDTH = {"1": "uint8", "2": "float16", "4": "float32", "8": "float64", "16": "complex128"}
_ELEMENT_BYTES = deferred(r"OpaqueType<(\d{1,2})u?>")  # CatArrayBatchedCopy names its element's size

_STEP = deferred(r"Optimizer\.step#(.+)\.step")
_LIBRARY = deferred(r"(^|[/\\])torch[/\\]optim[/\\]")
_ZEROING = deferred(r"Optimizer\.zero_grad#(.+)\.zero_grad")

BETWEEN = ("HtoD", "DtoH")  # host and device
LEAST_PERCENT = 20  # of a device's busy time, from which on copies are worth a word: the rule asks for as much
COLLECTIVE, LEAST_COMMUNICATION = "collective", 3  # likewise of communication


def activity_rows(timeline: Timeline) -> Rows:
    """Return the activities with their derived columns.

    >>> from tracemine.timeline import Meta
    >>> activity_rows(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))).count
    0
    """
    table = timeline.activities
    column: Callable[[str], pa.ChunkedArray] = table.column
    count = table.num_rows
    kind, name, collective = (categories(column(each)) for each in ("kind", "name", "collective"))
    is_kernel = kind.among("kernel")
    start, dur = (numbers(column(each)).values.astype(np.int64) for each in ("start_ns", "dur_ns"))
    op_row, launch_row = rows_of(column("op_row")), rows_of(column("launch_row"))
    launch = _launches(timeline, launch_row, _present(column("graph_id")), start, dur)
    alone = is_kernel & (kernels_of_operator(op_row, is_kernel) == 1)
    call = _Calls(timeline, op_row, name, alone)
    family, op_class, auxiliary = _what(name, call.op_class, kind, is_kernel, alone, collective.codes >= 0)
    read, written = _bytes(table, call, is_kernel)
    device, stream, step = (numbers(column(each)) for each in ("device", "stream", "step_row"))
    of_ops, of_api = (rows_of(each.column("stack_row")) for each in (timeline.ops, timeline.api))
    stack, own_stack = _first_known(of_ops, op_row, of_api, launch_row), rows_of(column("stack_row"))
    return Rows(
        "activities",
        count,
        {
            "kind": kind,
            "name": name,
            "family": family,
            "op": call.op,
            "operation": mapped(call.op, _operation),
            "functor": mapped(name, functor),
            "op_class": op_class,
            "bound": mapped(op_class, lambda each: CLASSES[each].bound),
            "auxiliary": Flags(auxiliary),
            "generated": Flags(family.among(*_GENERATED) | call.generated),
            "start_ns": Numbers(start),
            "dur_ns": Numbers(dur),
            "gap_ns": stream_gaps(start, dur, device, stream),
            "bytes_read": read,
            "bytes_written": written,
            "bytes": _stated(numbers(column("stated_bytes")), _sum(read, written)),
            **{each: numbers(column(each)) for each in ("stated_bytes", "stated_flops")},
            "runs": Numbers(np.maximum(rows_of(column("calls")), 1)),
            "bytes_moved": numbers(column("bytes")),
            "shape": call.shape,
            "dtype": call.dtype,
            "width": Numbers(np.maximum(call.width, 0), call.width >= 0),
            "module": joined(categories(column("module")), _module(timeline, op_row, launch_row)),
            "source": take(source_lines(timeline.stacks), np.where(own_stack >= 0, own_stack, stack)),
            "device": device,
            "stream": stream,
            "step": step,
            "segment": Numbers(segments(step)),
            **{each: categories(column(each)) for each in ("copy_kind", "source_memory", "target_memory")},
            "collective": collective,
            "group_size": numbers(column("group_size")),
            **launch,
        },
    )


def stream_gaps(start: IntArray, dur: IntArray, device: Numbers, stream: Numbers) -> Numbers:
    """Return the idle time of each activity's stream before it: start − latest end so far, at least 0; first null.

    Rows are in order of start. Activities of one stream can overlap (programmatic dependent launch).

    >>> one = Numbers(np.zeros(3, np.int64))
    >>> gaps = stream_gaps(np.array([0, 10, 12]), np.array([5, 9, 1]), one, one)
    >>> gaps.values.tolist(), gaps.valid.tolist()
    ([0, 5, 0], [False, True, True])
    """
    if not len(start):
        return Numbers(np.zeros(0, np.int64))
    place = combination_codes(device, stream)
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    begins, ends = start[order], start[order] + dur[order]
    previous = np.r_[np.int64(0), grouped_running_maximum(ends, ordered)[:-1]]
    gaps = np.empty(len(start), np.int64)
    gaps[order] = np.where(first, 0, np.maximum(begins - previous, 0))
    valid = np.empty(len(start), np.bool_)
    valid[order] = ~first
    return Numbers(gaps, valid)


# --- operators -------------------------------------------------------------------------------------------------------


class _Calls:
    """Calls of the operators that own the activities."""

    def __init__(self, timeline: Timeline, op_row: IntArray, name: Categories, alone: BoolArray) -> None:
        ops = timeline.ops
        self.op = take(categories(ops.column("name")), op_row)
        self.generated = take(categories(ops.column("kernel_backend")), op_row).codes >= 0
        calls, of = calls_of(timeline).distinct(op_row)
        self.shape = coded([_shape_text(call) for call in calls], of)
        self.dtype = coded([call.first_tensor[1] for call in calls], of)
        self.width = np.array([*map(_width, calls), -1], np.int64)[of]
        self.op_class = coded([call.op_class for call in calls], of)
        # The dtype of a list's members is not recorded; what the kernel's name says of its element will do to count
        # bytes.
        width = mapped(name, lambda text: _OF_WIDTH.get(found[1]) if (found := _ELEMENT_BYTES.search(text)) else None)
        own = np.where(alone, of, -1)
        pair = codes(own, width.codes)
        one = examples(pair)
        counted = [
            None if call < 0 else calls[call].with_members(width.values[code] if code >= 0 else None)
            for call, code in zip(own[one].tolist(), width.codes[one].tolist(), strict=True)
        ]
        self.read = spread([None if call is None else call.bytes_read for call in counted], pair)
        self.written = spread([None if call is None else call.bytes_written for call in counted], pair)


def _shape_text(call: Call) -> str | None:
    """Return the shape of a call's first tensor.

    >>> _shape_text(Call("aten::relu", ((16, 559),), ("float",)))
    '[16,559]'
    """
    shape = call.first_tensor[0]
    return None if shape is None else "[" + ",".join(map(str, shape)) + "]"


def _width(call: Call) -> int:
    """Return the last extent of a call's first tensor; −1: none."""
    return (call.first_tensor[0] or (-1,))[-1]


def _operation(op: str) -> str:
    return op.removeprefix("aten::").rstrip("_") if op.startswith("aten::") else op


def _what(
    name: Categories,
    by_op: Categories,
    kind: Categories,
    is_kernel: BoolArray,
    alone: BoolArray,
    is_collective: BoolArray,
) -> tuple[Categories, Categories, BoolArray]:
    """Return family, class, and whether the kernel is only an auxiliary of a library's operator.

    The operator says what its only kernel does. Of several, each kernel's own name decides.
    """
    families = classify(name.values)
    family = coded([each.family for each in families], name.codes.astype(np.int64))
    by_name = coded([each.op_class for each in families], name.codes.astype(np.int64))
    names = sorted(CLASSES)
    position = {each: i for i, each in enumerate(names)}

    def recoded(column: Categories) -> IntArray:
        return np.array([*(position.get(value, -1) for value in column.values), -1], np.int64)[column.codes]

    kernel_class, operator_class = recoded(by_name), recoded(by_op)
    idle = np.isin(operator_class, [position[each] for each in _IDLE_CLASSES]) | (operator_class < 0)
    unnamed = (kernel_class < 0) | (kernel_class == position["other"])
    use_operator = is_kernel & ~idle & (alone | unnamed)
    code = np.where(use_operator, operator_class, kernel_class)
    code[kind.among("memcpy")] = position["copy"]
    code[kind.among("memset")] = position["fill"]
    code[is_collective] = position["collective"]
    library = [position[each] for each in _LIBRARY_CLASSES]
    auxiliary = np.isin(operator_class, library) & ~np.isin(code, library)
    return family, Categories(code.astype(np.int32), tuple(names)), auxiliary


def kernels_of_operator(op_row: IntArray, is_kernel: BoolArray) -> IntArray:
    """Return how many kernels the operator that owns each activity launched itself; 0 without one.

    >>> kernels_of_operator(np.array([3, 3, -1, 3]), np.array([True, False, True, True])).tolist()
    [2, 2, 0, 2]
    """
    owned = np.bincount(op_row[is_kernel & (op_row >= 0)], minlength=int(op_row.max(initial=-1)) + 2)
    return np.where(op_row >= 0, owned[op_row], 0).astype(np.int64)


def _bytes(table: pa.Table, call: _Calls, is_kernel: BoolArray) -> tuple[Numbers, Numbers]:
    """Return device memory traffic: of an operator's only kernel by its shapes, of copies and sets as recorded."""
    moved, copy_kind = numbers(table.column("bytes")), categories(table.column("copy_kind"))
    known = ~is_kernel if moved.valid is None else moved.valid & ~is_kernel
    reads = known & copy_kind.among("DtoD", "DtoH", "PtoP")
    writes = known & (copy_kind.among("DtoD", "HtoD", "PtoP") | (copy_kind.codes < 0))
    return _moved(call.read, moved, reads, writes), _moved(call.written, moved, writes, reads)


def _moved(shaped: Numbers, moved: Numbers, here: BoolArray, there: BoolArray) -> Numbers:
    """Return `shaped`, but all that was moved `here`, and 0 where device memory took part only on the other side."""
    valid = here | there
    values = np.where(here, moved.values, np.where(there, 0, shaped.values)).astype(np.int64)
    return Numbers(values, valid if shaped.valid is None else valid | shaped.valid)


def _stated(stated: Numbers, counted: Numbers) -> Numbers:
    """Return what a program states of its kernels, and of the others what their shapes say."""
    if stated.valid is None or not stated.valid.any():  # all of them, or none
        return counted if stated.valid is not None or not len(stated.values) else stated
    valid = None if counted.valid is None else stated.valid | counted.valid
    return Numbers(np.where(stated.valid, stated.values, counted.values).astype(np.int64), valid)


def _sum(one: Numbers, other: Numbers) -> Numbers:
    known = [each.valid for each in (one, other) if each.valid is not None]
    if not known:
        return Numbers(one.values + other.values)
    valid = np.logical_and.reduce(known)
    return Numbers(np.where(valid, one.values + other.values, 0), valid)


# --- launches --------------------------------------------------------------------------------------------------------


def _launches(
    timeline: Timeline, launch_row: IntArray, in_graph: BoolArray, start: IntArray, dur: IntArray
) -> dict[str, Any]:
    api = timeline.api
    launch = take(categories(api.column("name")), launch_row)
    begins = take_numbers(numbers(api.column("start_ns")), launch_row)
    lasts = take_numbers(numbers(api.column("dur_ns")), launch_row)
    graph = in_graph | is_graph_launch(launch)
    alone = (launch_row >= 0) & ~graph
    known = Numbers(np.where(alone, lasts.values, 0), alone)
    queued = np.where(alone, start - (begins.values + lasts.values), 0)
    return {
        "launch": launch,
        "launch_dur_ns": known,
        "launch_excess_ns": Numbers(np.where(alone, lasts.values - dur, 0), alone),
        "queued_ns": Numbers(queued, alone),
        "graph": Flags(graph),
    }


# --- small things ----------------------------------------------------------------------------------------------------


def _module(timeline: Timeline, op_row: IntArray, launch_row: IntArray) -> Categories:
    """Return the operator's module, else the launch call's."""
    of_op = take(categories(timeline.ops.column("module")), op_row)
    return joined(of_op, take(categories(timeline.api.column("module")), launch_row))


def _first_known(one: IntArray, one_rows: IntArray, other: IntArray, other_rows: IntArray) -> IntArray:
    """Return `one[one_rows]` where both are known, else `other[other_rows]`, else −1."""
    first, second = (
        np.where(rows >= 0, values[rows], -1) if len(values) else np.full(len(rows), -1, np.int64)
        for values, rows in ((one, one_rows), (other, other_rows))
    )
    return np.where(first >= 0, first, second)


def _present(column: pa.ChunkedArray) -> BoolArray:
    found = numbers(column)
    return np.ones(len(found.values), np.bool_) if found.valid is None else found.valid


def optimizer_of(annotation: str) -> str | None:
    """Return the optimizer's class of an annotation that names its step.

    >>> optimizer_of("Optimizer.step#AdamW.step"), optimizer_of("Optimizer.zero_grad#AdamW.zero_grad")
    ('AdamW', None)
    """
    found = _STEP.fullmatch(annotation)
    return found[1] if found else None


def update_columns(timeline: Timeline) -> dict[str, Column]:
    """Return the columns `optimizer` and `update`: of steps inside each other the innermost.

    >>> from tracemine.timeline import Meta
    >>> sorted(update_columns(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))))
    ['optimizer', 'update']
    """
    optimizer = mapped(categories(timeline.ops["name"]), optimizer_of)
    update = _around(timeline, optimizer.codes >= 0)
    return {"optimizer": take(optimizer, update), "update": Numbers(np.maximum(update, 0), update >= 0)}


def zero_grads(timeline: Timeline) -> IntArray:
    """Return the call of an optimizer's `zero_grad` that launched each activity, a row of `ops`; −1: none."""
    return _around(timeline, categories(timeline.ops["name"]).that(_ZEROING.fullmatch))


def written_out(timeline: Timeline) -> BoolArray:
    """Return which activities code of the program's own launched within a call of torch.optim: an optimizer's step that
    the program itself goes through.
    """
    file, parent = categories(timeline.stacks["file"]), rows_of(timeline.stacks["parent_row"])
    library, own = file.that(_LIBRARY.search), file.that(is_own)
    innermost, within = nearest(parent, library | own), nearest(parent, library)
    its_own = np.append((innermost > within) & (within >= 0), False)
    return its_own[taken(rows_of(timeline.ops["stack_row"]), rows_of(timeline.activities["op_row"]))]


def _around(timeline: Timeline, marked: BoolArray) -> IntArray:
    within = nearest(rows_of(timeline.ops["parent_row"]), marked)
    return taken(within, rows_of(timeline.activities["op_row"]))


def transfer_columns(timeline: Timeline, activities: Rows) -> dict[str, Column]:
    """Return how long each copy between host and device, and each collective, ran alone; and the share of the device's
    busy time that all of its kind do.

    A collective of one rank is no communication.

    >>> from tracemine.rows.activities import activity_rows
    >>> from tracemine.timeline import Meta
    >>> nothing = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> sorted(transfer_columns(nothing, activity_rows(nothing)))
    ['exposed_ns', 'exposed_percent']
    """
    table = timeline.activities
    start, dur, device = (rows_of(table[name]).astype(np.int64) for name in ("start_ns", "dur_ns", "device"))
    copies = category(activities, "copy_kind").among(*BETWEEN)
    communication = category(activities, "op_class").among(COLLECTIVE) & (number(activities, "group_size", null=0) != 1)
    end = start + dur
    exposed, percent = np.zeros(len(start), np.int64), np.zeros(len(start))
    for kind in (copies, communication):
        for ordinal in sorted_unique(device[kind]):
            own = device == ordinal
            rows, others = np.flatnonzero(own & kind), own & ~kind
            exposed[rows] = exposed_ns(start[rows], end[rows], Spans.of(start[others], end[others]))
            busy_ns = int(uncovered(start[own], end[own]).sum())
            percent[rows] = 100 * int(exposed[rows].sum()) / max(busy_ns, 1)
    known = copies | communication
    return {"exposed_ns": Numbers(exposed, known), "exposed_percent": Numbers(percent, known)}
