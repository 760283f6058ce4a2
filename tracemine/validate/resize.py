"""Resize a graph: a kernel that takes sizes as arguments must be right at others, too."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tracemine.codegen.graph import Graph, GraphCall, GraphInput, LiteralArg, Ref, Value
from tracemine.codegen.graph_builder import infer_outputs
from tracemine.codegen.index_inputs import computed, within
from tracemine.codegen.lowering.context import Lowered
from tracemine.codegen.lowering.driver import lower
from tracemine.codegen.tensor_ir import CumulativeSum, Reduction, Tensor, arguments, columns_of
from tracemine.errors import TracemineError
from tracemine.ops.infer import TensorSpec

_SHAPES = frozenset({"size", "shape"})  # arguments that are the output's shape
_LAST = frozenset({"normalized_shape", "output_size"})  # the last of its sizes
_ENDS = {"aten::slice": "end", "aten::narrow": "length"}  # of a part of an axis
_COUNTS = ("N", "C", "HxW")  # of a group norm: what its input's shape says again


def free_axes(lowered: Lowered) -> dict[int, int]:
    """Return axes whose size the kernels take as an argument, and their sizes."""
    found: dict[int, int] = {}
    for source in lowered.inputs:
        for leaf in lowered.axes.flat(source.dims):
            if not lowered.axes.axis(leaf).pinned:
                found[leaf] = lowered.axes.size((leaf,))
    return found


def reduced_axes(lowered: Lowered) -> frozenset[int]:
    """Return axes that some reduction or running sum walks."""
    found: set[int] = set()
    seen: set[Tensor] = set()
    todo = [*lowered.live, *lowered.written.values()]
    while todo:
        tensor = todo.pop()
        if tensor not in seen:
            seen.add(tensor)
            found.update(columns_of(lowered.axes, tensor) if isinstance(tensor, Reduction | CumulativeSum) else ())
            todo.extend(arguments(tensor))
    return frozenset(found)


def resized(graph: Graph, lowered: Lowered, sizes: Mapping[int, int]) -> Graph:
    """Return the graph with other sizes for some axes. Raises GraphError where its calls do not allow them."""
    if not sizes:
        return graph
    shape = _Shapes(lowered, sizes)
    before = _Shapes(lowered, {})
    changed = {lowered.axes.size((a,)): n for a, n in sizes.items()}
    inputs = tuple(
        GraphInput(e.name, reshaped(e.spec, shape(v)), changed.get(e.below, e.below) if e.below is not None else None)
        for e, v in zip(graph.inputs, lowered.values, strict=False)
    )
    specs = [e.spec for e in inputs]
    calls: list[GraphCall] = []
    for number, call in enumerate(graph.calls):
        first = graph.first_output(number)
        arguments = tuple(
            _argument(a.name, v, call, first, lowered, shape, before)
            for a, v in zip(call.schema.arguments, call.arguments, strict=True)
        )
        made = GraphCall(call.operator, call.overload, arguments, call.outputs)
        # A trace need not record the last of what a call gives, where nothing reads it: cuDNN's reserve.
        outputs = infer_outputs(made, specs)[: len(call.outputs)] if call.outputs else ()
        calls.append(GraphCall(call.operator, call.overload, arguments, outputs))
        specs += outputs
    return Graph(graph.name, inputs, tuple(calls), graph.live)


def at_sizes(graph: Graph, sizes: Mapping[int, int]) -> Graph | None:
    """Return the graph with other sizes of axes; None where its calls do not allow them."""
    try:
        found = within(resized(graph, lower(graph), sizes))
        lower(found)  # its views may split axes that other sizes do not nest in
        return found if computed(found) == computed(graph) else None
    except (TracemineError, ArithmeticError, ValueError, LookupError):
        return None


class _Shapes:
    """Shapes of tensors under given sizes."""

    def __init__(self, lowered: Lowered, sizes: Mapping[int, int]) -> None:
        self._axes, self._sizes = lowered.axes, sizes

    def __call__(self, tensor: Tensor) -> tuple[int, ...]:
        axes = self._axes
        return tuple(prod(self._sizes.get(a, axes.size((a,))) for a in axes.leaves(dim)) for dim in tensor.dims)


def _argument(
    name: str, value: Value, call: GraphCall, first: int, lowered: Lowered, shape: _Shapes, before: _Shapes
) -> Value:
    if call.operator == "aten::arange" and name == "end":
        return LiteralArg(counted_to(call, shape(lowered.values[first])[0]))
    if name in _COUNTS and isinstance(source := call.given().get("input"), Ref):
        batch, channels, *rest = shape(lowered.values[source.value])
        return LiteralArg((batch, channels, prod(rest))[_COUNTS.index(name)])
    if not isinstance(value, LiteralArg) or not isinstance(value.value, tuple):
        return _ended(name, value, call, lowered, shape, before)
    if name in _SHAPES and call.outputs:
        return LiteralArg(shape(lowered.values[first]))
    if name in _LAST:
        return LiteralArg(shape(lowered.values[first])[-len(value.value) :])
    return value


def _ended(name: str, value: Value, call: GraphCall, lowered: Lowered, shape: _Shapes, before: _Shapes) -> Value:
    """End a slice where its axis ends, if it did; anything else stays as it is."""
    given = call.given()
    source, dim = given.get("self"), getattr(given.get("dim"), "value", 0)
    if _ENDS.get(call.operator) != name or not isinstance(source, Ref) or not isinstance(value, LiteralArg):
        return value
    recipe = lowered.values[source.value]
    return LiteralArg(shape(recipe)[dim]) if value.value == before(recipe)[dim] else value


def counted_to(call: GraphCall, size: int) -> int | float:
    """Return where `arange` has to end to give as many elements."""
    start, step = (getattr(call.given().get(name), "value", other) for name, other in (("start", 0), ("step", 1)))
    end: int | float = start + step * size
    return end


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Return another shape in the same order of dimensions; what was repeated stays so."""
    if shape == spec.shape:
        return spec
    old = spec.strides or ()
    order = sorted((d for d in range(len(shape)) if old[d]), key=lambda d: (-old[d], d))
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= max(shape[d], 1)
    return TensorSpec(shape, spec.dtype, tuple(strides))
