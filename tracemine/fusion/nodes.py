"""What fusion needs to know of each node: its role, its iteration space, where it runs, what it computes.

What a call means is asked once for each distinct call, never once a node.

A reduction's output lacks the axes that were reduced. PyTorch runs its kernels for contiguous rows of a softmax only
where nothing lies behind the axis (`inner_size == 1` in aten/src/ATen/native/cuda/SoftMax.cu).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.columns import Array, booleans, codes, lists, numbers, rows_that, string_ids
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray
from tracemine.fusion.iteration_space import NEEDS_SPACE, Space, space_of
from tracemine.fusion.kernel import FINISH, REDUCTIONS
from tracemine.fusion.roles import Role, role_of, steps_of
from tracemine.ops import Argument, is_custom
from tracemine.ops.facts import UNREAD
from tracemine.ops.infer.arguments import MISFITS
from tracemine.patterns import deferred
from tracemine.timeline import Timeline

_ALONG_THE_LAST = deferred(r"softmax_warp_(?:for|back)ward|cunn_SoftMax(?:For|Back)ward")
_MOST_AXES = 16

Shape = tuple[int, ...]


def rows_told(timeline: Timeline, flow: Flow, nodes: IntArray) -> list[Space | None]:
    """Return for each of some nodes the rows that it reduces; None where neither shapes nor its kernel tell."""
    if not len(nodes):
        return []
    last = _along_the_last(timeline, flow)[nodes].tolist()
    inputs = _first_shapes(timeline, flow.reads.node, flow.reads.tensor_row, nodes)
    outputs = _first_shapes(timeline, flow.writes.node, flow.writes.tensor_row, nodes)
    known: dict[tuple[Shape | None, Shape | None, bool], Space | None] = {}
    found = []
    for row in zip(inputs, outputs, last, strict=True):
        if row not in known:
            known[row] = _told(*row)
        found.append(known[row])
    return found


def _told(source: Shape | None, result: Shape | None, along_the_last: bool) -> Space | None:
    if source is None or not prod(source):
        return None
    if along_the_last:
        return Space(prod(source) // source[-1], source[-1]) if source and source[-1] > 1 else None
    return None if result is None or result == source else told_by_shapes(source, result)


def told_by_shapes(source: Shape, result: Shape) -> Space | None:
    """The rows that a reduction from one shape to another walks; None where more than one set of axes fits, or none.

    >>> told_by_shapes((4, 8), (4, 1)), told_by_shapes((4, 8), (8,))
    (Space(rows=4, length=8, columns=False), Space(rows=8, length=4, columns=True))
    >>> told_by_shapes((8, 8), (8,)) is told_by_shapes((4, 8), (3,)) is None
    True
    """
    if len(source) > _MOST_AXES:
        return None
    if len(source) == len(result):
        kept = [a == b for a, b in zip(source, result, strict=True)]
        ways = [kept] if all(same or b == 1 for same, b in zip(kept, result, strict=True)) else []
    else:
        ways = _embeddings(source, result)
    if len(ways) != 1:
        return None
    reduced = [axis for axis, stays in enumerate(ways[0]) if not stays and source[axis] > 1]
    inner = max((axis for axis, size in enumerate(source) if size > 1), default=0)
    length = prod(source[axis] for axis in reduced)
    return Space(prod(source) // length, length, columns=bool(reduced) and inner not in reduced)


def _embeddings(source: Shape, result: Shape) -> list[list[bool]]:
    """At most two ways to keep some axes of one shape and get the other; axes of one element do not count."""
    axes = [axis for axis, size in enumerate(source) if size > 1]
    wanted = [size for size in result if size > 1]
    ways: list[list[bool]] = []
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    while waiting and len(ways) < 2:
        at, kept = waiting.pop()
        if len(kept) == len(wanted):
            ways.append([axis in kept or size == 1 for axis, size in enumerate(source)])
            continue
        if len(axes) - at < len(wanted) - len(kept):
            continue
        waiting.append((at + 1, kept))
        if source[axes[at]] == wanted[len(kept)]:
            waiting.append((at + 1, (*kept, axes[at])))
    return ways


def _along_the_last(timeline: Timeline, flow: Flow) -> BoolArray:
    """Return for each node whether it ran a kernel that only walks the last axis."""
    told = rows_that(timeline.activities.column("name"), lambda name: _ALONG_THE_LAST.search(name[:512]) is not None)
    found = np.zeros(len(flow.nodes), np.bool_)
    found[flow.activity_node[np.flatnonzero(told & (flow.activity_node >= 0))]] = True
    return found


def _first_shapes(timeline: Timeline, node: IntArray, tensor_row: IntArray, wanted: IntArray) -> list[Shape | None]:
    """Return the shape of each node's first argument or output, where that is a tensor whose shape is known."""
    position = numbers(timeline.tensors.column("position"), 0)[tensor_row]
    rows = np.flatnonzero(position == 0)
    row_of = np.full(int(max(node.max(initial=-1), wanted.max(initial=-1))) + 1, -1, np.int64)
    row_of[node[rows][::-1]] = tensor_row[rows][::-1]
    sizes, ends, there = lists(timeline.tensors.column("shape"))
    return [
        tuple(sizes[ends[row] : ends[row + 1]].tolist()) if row >= 0 and there[row] else None
        for row in row_of[wanted].tolist()
    ]


_MOST = 1 << 44  # elements: more is damage
_MOST_FLOPS = 1 << 62  # of one call
# Whose effects reach far, and which nothing may be moved across unless it is known what they read and write.
HEAVY = ("gemm", "conv", "attention", "collective", "custom")
_HOST_COPIES = ("HtoD", "DtoH", "PtoP", "HtoH")


class FusionNodes(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a node of the Flow."""

    role: IntArray  # Role
    library: tuple[str, ...]  # of each code in `library_code`, the key of the reason in roles.toml
    library_code: IntArray  # −1 where the role is not LIBRARY
    size: IntArray  # elements of the largest tensor that it writes; of what scatters, of the largest that it scatters
    rows: IntArray  # rows that it reduces; 0: none
    length: IntArray
    columns: BoolArray
    axes_known: BoolArray  # of rows; else two nodes with as many rows need not reduce the same ones
    place: IntArray  # equal where step, device, stream and thread are
    steps: tuple[tuple[str, ...], ...]
    steps_code: IntArray
    flops: IntArray  # −1 where not known
    duration_ns: IntArray
    read_by_host: BoolArray  # it copies something to the host


class Meaning(msgspec.Struct, frozen=True):
    """What one distinct call is."""

    role: Role
    library: str | None
    space: Space | None
    steps: tuple[str, ...]
    flops: int
    looked_up: int  # position of the argument of which only what is looked up is read, −1
    unread: frozenset[int]  # positions of arguments whose elements are not read
    target: int  # position of the argument that is written at computed places, −1
    into: int  # of what scatters, position of the argument that it scatters into, or a copy of it; −1


def fusion_nodes(timeline: Timeline, flow: Flow) -> tuple[FusionNodes, list[Meaning], IntArray]:
    """Return the nodes, the distinct calls, and for each node which call it is."""
    calls, call = calls_of(timeline).distinct(flow.nodes.op_row)
    meanings = [*map(meaning_of, calls)]
    library = [m.library or "" for m in meanings]
    reasons = dict.fromkeys([*library, "host", "generated", "unknown"])
    position = {key: at for at, key in enumerate(reasons)}
    role = _of_calls([int(m.role) for m in meanings], call)
    code = _of_calls([position[key] for key in library], call)
    for key, where in (
        ("unknown", ~flow.nodes.known),
        ("generated", _generated(timeline, flow)),
        ("host", _any_activity(flow, _codes_in(timeline.activities.column("copy_kind"), _HOST_COPIES))),
    ):
        code = np.where(where, position[key], code)
        role = np.where(where, int(Role.LIBRARY), role)
    steps: dict[tuple[str, ...], int] = {}
    steps_code = _of_calls([steps.setdefault(m.steps, len(steps)) for m in meanings], call)
    size = _largest(timeline, flow.writes.node, flow.writes.tensor_row, len(flow.nodes))
    if len(size):
        into = _of_calls([m.into for m in meanings], call)
        size = np.where(role == Role.SCATTER, _scattered(timeline, flow, into, size), size)
    rows, length, columns, axes_known = _row_spaces(timeline, flow, meanings, call, role, size)
    role = np.where((role == Role.ROW) & (rows == 0), int(Role.POINTWISE), role)
    size = np.where(rows > 0, rows * length, size)
    nodes = FusionNodes(
        role=role,
        library=tuple(reasons),
        library_code=np.where(role == Role.LIBRARY, code, -1),
        size=size,
        rows=rows,
        length=length,
        columns=columns.astype(np.bool_),
        axes_known=axes_known,
        place=_places(timeline, flow),
        steps=tuple(steps) or ((),),
        steps_code=steps_code,
        flops=_of_calls([m.flops for m in meanings], call),
        read_by_host=_any_activity(flow, _codes_in(timeline.activities.column("copy_kind"), ("DtoH",))),
        duration_ns=_sum_of_activities(flow, numbers(timeline.activities.column("dur_ns"), 0)),
    )
    return nodes, meanings, call


def _of_calls(values: Sequence[int], call: IntArray) -> IntArray:
    """Return each node's value, of values of distinct calls."""
    return np.array(values, np.int64)[call] if len(call) else np.zeros(0, np.int64)


def _row_spaces(
    timeline: Timeline, flow: Flow, meanings: Sequence[Meaning], call: IntArray, role: IntArray, size: IntArray
) -> tuple[IntArray, IntArray, IntArray, BoolArray]:
    """Return each node's rows, their length, whether they are columns, and whether that is known."""
    spaces = [m.space or Space(0, 1) for m in meanings]
    rows, length, columns = (_of_calls([getattr(s, f) for s in spaces], call) for f in ("rows", "length", "columns"))
    known = np.ones(len(call), np.bool_)
    # A reduction whose axes are not recorded and cannot be inferred: as many rows as it writes, and as long as what it
    # reads allows.
    guess = np.flatnonzero(np.isin(role, [*map(int, NEEDS_SPACE)]) & (rows < 0))
    least = np.maximum(size[guess], 1)
    rows[guess], length[guess] = least, np.maximum(_largest_read(timeline, flow)[guess] // least, 1)
    # What is proven must not rest on a guess; where dataflow is itself inferred, the guess is as good.
    proven = guess if (flow.reads.evidence == Evidence.PROVEN).any() else guess[:0]
    for node, space in zip(proven.tolist(), rows_told(timeline, flow, proven), strict=True):
        known[node] = space is not None
        if space is not None:
            rows[node], length[node], columns[node] = space.rows, space.length, space.columns
    library = role == Role.LIBRARY
    return np.where(library, 0, rows), np.where(library, 1, length), columns, known


def _space(call: Call) -> Space | None:
    """Return the rows that a call reduces; of one that is not known, or too large, that they are unknown."""
    try:
        space = Space(-1, 1) if call.arguments is None else space_of(call.arguments)
    except MISFITS:
        return Space(-1, 1)
    too_large = space is not None and max(space.rows, space.length, space.rows * space.length) > _MOST
    return Space(-1, 1) if too_large else space


def meaning_of(call: Call) -> Meaning:
    """Return what a call is.

    >>> meaning_of(Call("aten::mul", ((4, 8), (8,)), ("float", "float"))).role
    <Role.POINTWISE: 1>
    """
    name, overload = call.name, None if call.arguments is None else call.arguments.overload
    op_class = call.op_class if overload is None else overload.op_class
    role = role_of(name, op_class)
    space = _space(call) if role in NEEDS_SPACE else None
    flops = call.flops
    return Meaning(
        role=role,
        library=_library(name, op_class) if role is Role.LIBRARY else None,
        space=space,
        steps=_steps(name, op_class, space),
        flops=-1 if flops is None or flops >= _MOST_FLOPS else flops,
        **_places_of(role, name.removeprefix("aten::"), () if overload is None else overload.arguments),
    )


def _places_of(role: Role, base: str, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the positions of arguments that a meaning names."""
    positions = {argument.name: at for at, argument in enumerate(arguments)}
    gathers, scatters = role is Role.GATHER, role is Role.SCATTER
    unread = () if gathers else UNREAD.get(base, ())
    return {
        "looked_up": 0 if gathers and not base.startswith("nll") else -1,
        "unread": frozenset(positions[each] for each in unread if each in positions),
        "target": 0 if scatters and base.endswith("_") else -1,
        "into": positions.get("self", -1) if scatters else -1,
    }


def _library(name: str, op_class: str | None) -> str:
    """Return why a library's kernel is left alone: a key of roles.toml's reasons."""
    if is_custom(name) and op_class not in HEAVY:
        return "custom"
    return op_class or "unknown"


def _steps(name: str, op_class: str | None, space: Space | None) -> tuple[str, ...]:
    """Return what it computes an element; what reduces rows has a reduction among its steps, whatever its name."""
    steps = steps_of(name)
    if space is None:
        return tuple(step for step in steps if step not in REDUCTIONS and step != FINISH) or ("simple",)
    if FINISH in steps or REDUCTIONS.intersection(steps):
        return steps
    # A norm's backward needs two sums a row, side by side, before it can write; any other reduction is one.
    return ("sum", "sum", *steps) if op_class == "norm" else ("sum", *steps)


def _scattered(timeline: Timeline, flow: Flow, into: IntArray, size: IntArray) -> IntArray:
    """Elements of the largest that each node reads but for what is at `into`; `size` where it reads nothing else."""
    position = numbers(timeline.tensors.column("position"), 0)[flow.reads.tensor_row]
    source = np.flatnonzero(position != into[flow.reads.node])
    found = _largest(timeline, flow.reads.node[source], flow.reads.tensor_row[source], len(flow.nodes))
    return np.where(found > 0, found, size)


def _largest_read(timeline: Timeline, flow: Flow) -> IntArray:
    return _largest(timeline, flow.reads.node, flow.reads.tensor_row, len(flow.nodes))


def _largest(timeline: Timeline, node: IntArray, tensor_row: IntArray, count: int) -> IntArray:
    table = timeline.tensors
    numel, position = numbers(table.column("numel"), 0), numbers(table.column("position"), 0)
    place = position[tensor_row] * 2 + booleans(table.column("is_output"))[tensor_row]
    width = int(place.max(initial=0)) + 1
    keys, inverse = np.unique(node * width + place, return_inverse=True)
    total = np.bincount(inverse, numel[tensor_row], len(keys)).astype(np.int64)
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, keys // width, total)
    return largest


def _any_activity(flow: Flow, flag: BoolArray) -> BoolArray:
    """Return whether one of each node's activities is flagged."""
    found = np.zeros(len(flow.nodes), np.bool_)
    owned = np.flatnonzero(flow.activity_node >= 0)
    found[flow.activity_node[owned[flag[owned]]]] = True
    return found


def _sum_of_activities(flow: Flow, values: Array) -> IntArray:
    owned = flow.activity_node >= 0
    total = np.bincount(flow.activity_node[owned], values[owned], len(flow.nodes))
    return total.astype(np.int64)


def _codes_in(column: Any, wanted: tuple[str, ...]) -> BoolArray:
    found: BoolArray = rows_that(column, lambda text: text in wanted)
    return found


def _generated(timeline: Timeline, flow: Flow) -> BoolArray:
    ids, _ = string_ids(timeline.ops.column("kernel_backend"))
    found: BoolArray = ids[flow.nodes.op_row] >= 0
    return found


def _places(timeline: Timeline, flow: Flow) -> IntArray:
    """Return a number for each node: equal where its step, device, stream and thread are."""
    nodes = flow.nodes
    if not len(nodes):
        return np.zeros(0, np.int64)
    first = nodes.activity[nodes.activity_begin[:-1]]
    return codes(
        nodes.step_row,
        numbers(timeline.activities.column("device"), -1)[first],
        numbers(timeline.activities.column("stream"), -1)[first],
        numbers(timeline.ops.column("tid"), -1)[nodes.op_row],
    )
