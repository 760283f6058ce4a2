"""Build graphs call by call, and check them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from tracemine.codegen.graph import (
    Graph,
    GraphCall,
    GraphError,
    GraphInput,
    LiteralArg,
    Ref,
    Refs,
    Scalar,
    Scalars,
    Value,
    reads,
    tensors,
)
from tracemine.ops import Argument, itemsize, scalar_type
from tracemine.ops.infer import TensorSpec, infer
from tracemine.ops.infer.tensor import broadcast, contiguous, like

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
# Names that the generated source has for itself, and builtins that it calls.
_TAKEN = re.compile(
    r"n\d+|out\d*|scratch\d*|tl|torch|triton|fused|rows?|columns?|(row|column)_mask|mask|blocks|start|seed"
    r"|delta|values|running_max|finite_max|scaled_sum|more|index|[rx]block|elements(_per_thread)?|warps|blocks_per_row"
    r"|part_\d+|args|launch(_\d+)?|plan|new|device"
    r"|min|max|abs|sum|float|int|len|tuple|range|zip|print"
)
# Numbers that decide what is computed, or how much of it.
_SHAPING = frozenset({"exponent", "ord", "correction", "start", "end", "step", "scales", "scales_h", "scales_w"})

MOST_CALLS = 512
# Profilers write a dtype argument as torch's number of it.
_SCALAR_TYPE_NUMBERS = {name: str(k) for k in range(64) if (name := scalar_type(str(k))) is not None}
_NUMBERS = ("Scalar", "float", "Tensor")  # a number given for one of these is an argument of the kernel


def is_shaping(argument: Argument) -> bool:
    """Return whether a number decides what is computed, or how much of it: such are no arguments of a kernel.

    Of what is called p that is a norm's order; a dropout's share is a float.
    """
    return argument.name in _SHAPING or (argument.name == "p" and argument.type.startswith("Scalar"))


def usable(name: str) -> bool:
    """Return whether a kernel's argument may be called so.

    >>> usable("weight"), usable("n3"), usable("import"), usable("x; y")
    (True, False, False, False)
    """
    return bool(_NAME.fullmatch(name)) and not keyword.iskeyword(name) and not _TAKEN.fullmatch(name)


# What cuDNN keeps of a batch norm for its gradient: nothing, unless channels come last.
_ROOTS, _SUMS = ("aten::rsqrt", "aten::sqrt", "aten::rsqrt_", "aten::sqrt_"), ("aten::add", "aten::add_")
_NO_RESERVE = TensorSpec((0,), "uint8", (1,))


def check(graph: Graph, most: int = MOST_CALLS) -> Graph:
    """Return the graph. Raises GraphError, naming the call, where it is not sound. most: calls that it may have."""
    if not graph.calls or len(graph.calls) > most:
        raise GraphError(f"{graph.name}: a graph has 1 to {most} calls, not {len(graph.calls)}")
    names = _argument_names(graph)
    if bad := [n for n in names if not usable(n)]:
        raise GraphError(f"{graph.name}: {bad[0]!r} is no name for an argument")
    if len(set(names)) < len(names):
        raise GraphError(f"{graph.name}: two arguments have one name")
    known = len(graph.inputs)
    for number, call in enumerate(graph.calls):
        _check_call(call, f"{graph.name}: call {number} ({call.label})", known)
        known += len(call.outputs)
    _check_values(graph, known)
    return graph


def _argument_names(graph: Graph) -> list[str]:
    return [i.name for i in graph.inputs] + [s.name for s in graph.scalars]


def _check_values(graph: Graph, known: int) -> None:
    """Raise GraphError where a value is not known, or none is wanted."""
    if any(not 0 <= v < known for v in graph.live):
        raise GraphError(f"{graph.name}: a live value is not in the graph")
    for number, spec in enumerate(graph.specs):
        if spec.dtype is None or spec.strides is None or len(spec.strides) != len(spec.shape):
            raise GraphError(f"{graph.name}: shape, dtype or strides of value {number} are not known")
    if not graph.live and not graph.written:
        raise GraphError(f"{graph.name}: nothing that it computes is wanted")


def with_eps(graph: Graph) -> Graph:
    """Return the graph with `eps` for the name of a number that is added before a root: ATen calls it `other`."""
    rooted = {value for call in graph.calls if call.operator in _ROOTS for value in reads(call)}
    names = _argument_names(graph)
    free = (name for k in range(10_000) if (name := f"eps_{k}" if k else "eps") not in names)
    calls = []
    for number, call in enumerate(graph.calls):
        added = [a for a in call.arguments if isinstance(a, Scalar) and a.name.partition("_")[0] == "other"]
        if call.operator in _SUMS and added and graph.first_output(number) in rooted:
            eps = msgspec.structs.replace(added[0], name=next(free))
            call = msgspec.structs.replace(call, arguments=tuple(eps if a is added[0] else a for a in call.arguments))
        calls.append(call)
    return msgspec.structs.replace(graph, calls=tuple(calls))


class GraphBuilder:
    """Builds a graph call by call; what a call gives is inferred from the operator table.

    >>> b = GraphBuilder("scaled")
    >>> x = b.input("x", (4, 8), "bfloat16")
    >>> y = b.call("aten::mul.Tensor", x, 0.5)
    >>> graph = b.done(b.call("aten::relu", y))
    >>> graph.calls[1].outputs[0].dtype, graph.live, graph.scalars[0].value
    ('bfloat16', (2,), 0.5)

    `inputs` and `calls` hold what was named so far, `specs` the shape, dtype and strides of each value by its number.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[GraphInput] = []
        self.calls: list[GraphCall] = []
        self.specs: list[TensorSpec] = []
        self._names: set[str] = set()

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str,
        strides: Sequence[int] | None = None,
        below: int | None = None,
    ) -> Ref:
        """Return a tensor from outside. strides: in elements; None is contiguous. Inputs come before the first call."""
        if self.calls:
            raise GraphError(f"{self.name}: inputs are named before the first call")
        spec = TensorSpec(tuple(shape), dtype, contiguous(shape) if strides is None else tuple(strides))
        self.inputs.append(GraphInput(name, spec, below))
        self._names.add(name)
        self.specs.append(spec)
        return Ref(len(self.specs) - 1)

    def call(self, operator: str, *given: Any, **named: Any) -> Any:
        """Add a call; return the Ref of its output, or a tuple of them. Raises GraphError where nothing is inferred.

        operator: with the overload where it has a name. given: Refs, lists of Refs, and Python values in the
        schema's order. A number where the schema has a Scalar, a float or a Tensor becomes an argument of the kernel.
        """
        name, _, overload_name = operator.partition(".")
        call = GraphCall(name, overload_name, (), ())
        schema = call.schema
        places = {a.name: a for a in schema.arguments}
        values = dict(zip(places, given, strict=False)) | named
        if unknown := values.keys() - places.keys():
            raise GraphError(f"{self.name}: {operator} has no argument {min(unknown)}")
        arguments = tuple(self._value(a, values.get(a.name)) for a in schema.arguments)
        outputs = infer_outputs(GraphCall(name, overload_name, arguments, ()), self.specs)
        self.calls.append(GraphCall(name, overload_name, arguments, outputs))
        self.specs += outputs
        refs = tuple(Ref(len(self.specs) - len(outputs) + at) for at in range(len(outputs)))
        return refs[0] if len(refs) == 1 and not schema.outputs[0].endswith("[]") else refs

    def done(self, *live: Ref) -> Graph:
        """Return the graph, checked. live: what is read outside of it; of a call with several outputs, unpack them."""
        if not all(isinstance(ref, Ref) for ref in live):
            raise GraphError(f"{self.name}: live values are what `call` gives, one by one")
        graph = Graph(self.name, tuple(self.inputs), tuple(self.calls), tuple(r.value for r in live))
        return with_eps(check(graph))

    def _members(self, argument: Argument, given: Sequence[Any]) -> Refs | Scalars | None:
        """Return a list of tensors, or of numbers that count as such; None: it is a list of something else."""
        if argument.is_tensor:
            return Refs(tuple(None if r is None else r.value for r in given))
        return Scalars(tuple(self._scalar(argument.name, v) for v in given)) if argument.type == "Scalar[]" else None

    def _value(self, argument: Argument, given: Any) -> Value:
        if given is None or isinstance(given, Ref):
            return given
        if isinstance(given, list | tuple) and (members := self._members(argument, given)) is not None:
            return members
        kind = argument.type.removesuffix("?")
        if is_shaping(argument):
            return LiteralArg(given)
        if kind in _NUMBERS and type(given) in (int, float):
            return self._scalar(argument.name, given)
        return LiteralArg(tuple(given) if isinstance(given, list | tuple) else given)

    def _scalar(self, name: str, value: float) -> Scalar:
        names = (name, *(f"{name}_{k}" for k in range(1, 10_000)))
        taken = next(n for n in names if usable(n) and n not in {*self._names, "self", "input", "seed"})
        self._names.add(taken)
        return Scalar(taken, value)


def _check_call(call: GraphCall, place: str, known: int) -> None:
    """Raise GraphError where arguments do not fit the schema, or a value is none of the `known` ones before."""
    if len(call.schema.arguments) != len(call.arguments):
        raise GraphError(f"{place}: {len(call.arguments)} arguments, the schema has {len(call.schema.arguments)}")
    for argument, value in zip(call.schema.arguments, call.arguments, strict=True):
        if isinstance(value, Ref | Refs) and not argument.is_tensor:
            raise GraphError(f"{place}: a tensor is given for {argument.name}")
    if any(not 0 <= v < known for v in reads(call)):
        raise GraphError(f"{place}: it reads a value that no earlier call gives")


def infer_outputs(call: GraphCall, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return a call's outputs, by its rule or else as it says itself. Raises GraphError where nothing can tell."""
    if not call.schema.outputs:
        return ()
    recorded = [_recorded(v, a, specs) for v, a in zip(call.arguments, call.schema.arguments, strict=True)]
    members = [
        [str(specs[v].dtype) for v in tensors(value)] if isinstance(value, Refs) else [] for value in call.arguments
    ]
    shapes, dtypes, strides, texts = map(list, zip(*recorded, strict=True))
    found = infer(f"{call.operator}.{call.overload or 'default'}", shapes, dtypes, strides, texts, members)
    told = _completed(found.outputs or (), call)
    outputs = tuple(s for s in told if s is not None) or _looked_up(call, specs)
    if not outputs or not all(map(_is_whole, outputs)):
        raise GraphError(f"what {call.label} gives is not known: {found.reason or 'strides or dtype'}")
    return outputs


def _is_whole(spec: TensorSpec) -> bool:
    return spec.strides is not None and spec.dtype is not None and itemsize(spec.dtype) is not None


def _completed(told: Sequence[TensorSpec | None], call: GraphCall) -> tuple[TensorSpec | None, ...]:
    """Return what a rule says about a call's outputs, with what is known of them besides."""
    if len(told) == len(call.outputs):
        return tuple(_merged(one, other) for one, other in zip(told, call.outputs, strict=True))
    if told and call.operator == "aten::cudnn_batch_norm":
        return (*told[:-1], told[-1] or _NO_RESERVE)
    return tuple(told)


def _merged(told: TensorSpec | None, known: TensorSpec) -> TensorSpec:
    """Return what a rule tells; the rest as it is known of a call at other sizes."""
    if told is None:
        return known
    strides = like(told.shape, known.strides or ()) if told.strides is None else told.strides
    return TensorSpec(told.shape, told.dtype or known.dtype, strides)


def _looked_up(call: GraphCall, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return what `index` gives with neighbouring index tensors: the operator table does not say."""
    given = call.given() if call.operator in ("aten::index", "aten::_unsafe_index") else {}
    source, indices = given.get("self"), given.get("indices")
    if not isinstance(source, Ref) or not isinstance(indices, Refs):
        return ()
    used = [at for at, v in enumerate(indices.values) if v is not None]
    shape = specs[source.value].shape
    if not used or used != list(range(used[0], used[-1] + 1)) or used[-1] >= len(shape):
        return ()
    together = broadcast([specs[v].shape for v in tensors(indices)])
    found = (*shape[: used[0]], *together, *shape[used[-1] + 1 :])
    return (TensorSpec(found, specs[source.value].dtype, contiguous(found)),)


def _recorded(value: Value, argument: Argument, specs: Sequence[TensorSpec]) -> tuple[Any, str, Any, str]:
    """Return an argument as a profiler records it: shape, type, strides, text."""
    if isinstance(value, Ref):
        spec = specs[value.value]
        return list(spec.shape), str(spec.dtype), list(spec.strides or ()), ""
    if isinstance(value, Refs):
        members = [specs[v] for v in tensors(value)]
        return [list(m.shape) for m in members], "TensorList", [list(m.strides or ()) for m in members], ""
    return [], *_recorded_number(value, argument)


def _recorded_number(value: Scalar | Scalars | LiteralArg | None, argument: Argument) -> tuple[str, Any, str]:
    """Return type, strides and text of an argument that is no tensor."""
    if isinstance(value, Scalar) and argument.is_tensor:
        return "double" if isinstance(value.value, float) else "long int", [], ""
    if isinstance(value, Scalar):
        return "Scalar", [], repr(value.value)
    if isinstance(value, Scalars):
        return "ScalarList", [], ""
    if value is None or (argument.type in ("str", "str?") and not isinstance(value.value, tuple)):
        return "", [], ""
    if isinstance(value.value, tuple):
        return "ScalarList", [], "[" + ", ".join(map(str, value.value)) + "]"
    return "Scalar", [], _SCALAR_TYPE_NUMBERS.get(str(value.value), str(value.value))
