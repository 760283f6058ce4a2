"""A graph: the ATen calls that one fused kernel replaces, in dataflow order, as plain records. Needs no torch.

Values are numbered: the graph's inputs first, then the tensors that its calls give, in order. A call refers to
values by number, so what reads what is said once and nowhere guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain as flatten

import msgspec

from tracemine.errors import TracemineError
from tracemine.ops import Overload, lookup
from tracemine.ops.infer import TensorSpec

# Operators that write what they keep of a run only where they train.
_TRAINED = frozenset(f"aten::{name}batch_norm" for name in ("native_", "cudnn_", "miopen_")) | {
    "aten::_native_batch_norm_legit"
}


# Operators that torch takes a number for in a tensor's place (python_arg_parser.cpp: should_allow_numbers_as_tensors).
_ALLOW_NUMBERS = frozenset(
    f"aten::{name}{end}"
    for name in ("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "copy")
    for end in ("", "_")
)


class GraphError(TracemineError):
    """A graph that cannot be: what is wrong with which call."""


class Unsupported(TracemineError):
    """A sound graph that no kernel can be generated for: the reason, in words for a user."""


class Ref(msgspec.Struct, frozen=True, tag="ref"):
    """A value of the graph, by its number."""

    value: int


class Scalar(msgspec.Struct, frozen=True, tag="scalar"):
    """A number that the fused kernel takes as an argument. `recorded`: whether the trace has its value."""

    name: str
    value: int | float
    recorded: bool = True


class LiteralArg(msgspec.Struct, frozen=True, tag="literal"):
    """What shapes the kernel itself: an axis, sizes, a flag, a dtype's name."""

    value: bool | int | float | str | tuple[int | float | bool, ...]


class Refs(msgspec.Struct, frozen=True, tag="refs"):
    """A list of tensors; None where an optional member is not given."""

    values: tuple[int | None, ...]


class Scalars(msgspec.Struct, frozen=True, tag="scalars"):
    """A list of numbers, one for each member of a TensorList."""

    values: tuple[Scalar, ...]


Value = Ref | Refs | Scalar | Scalars | LiteralArg | None


class GraphInput(msgspec.Struct, frozen=True):
    """A tensor that the graph reads and does not make. `below`: it holds indices, each in [0, below)."""

    name: str
    spec: TensorSpec
    below: int | None = None


class GraphCall(msgspec.Struct, frozen=True):
    """One ATen call: its overload, a value for each argument of the schema, and the tensors that it gives."""

    operator: str  # with namespace: aten::mul
    overload: str
    arguments: tuple[Value, ...]
    outputs: tuple[TensorSpec, ...]

    @property
    def schema(self) -> Overload:
        """The overload in the operator table. Raises GraphError where it has none of this name."""
        if (known := _overload(self.operator, self.overload)) is not None:
            return known
        found = lookup(self.operator)
        others = ", ".join(overload.name or "none" for overload in found.overloads) if found is not None else ""
        raise GraphError(
            f"{self.label} is not in the operator table" + (f"; its overloads: {others}" if others else "")
        )

    @property
    def label(self) -> str:
        """Operator and overload.

        >>> GraphCall("aten::mul", "Tensor", (), ()).label
        'aten::mul.Tensor'
        """
        return f"{self.operator}.{self.overload}" if self.overload else self.operator

    @property
    def wraps_numbers(self) -> bool:
        """Whether a number in a tensor's place has to be made a tensor for torch to take it.

        >>> [GraphCall(name, "Tensor", (), ()).wraps_numbers for name in ("aten::remainder", "aten::add")]
        [True, False]
        """
        return self.operator not in _ALLOW_NUMBERS

    def given(self) -> dict[str, Value]:
        """Return the arguments by the schema's names."""
        return {a.name: value for a, value in zip(self.schema.arguments, self.arguments, strict=True)}


@cache
def _overload(operator: str, name: str) -> Overload | None:
    known = lookup(operator)
    return next((overload for overload in known.overloads if overload.name == name), None) if known else None


class Graph(msgspec.Struct, frozen=True):
    """Calls in dataflow order. `live`: live-outs, which the fused kernel must write."""

    name: str
    inputs: tuple[GraphInput, ...]
    calls: tuple[GraphCall, ...]
    live: tuple[int, ...]

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Shape, dtype and strides of every value."""
        return (*(i.spec for i in self.inputs), *flatten.from_iterable(c.outputs for c in self.calls))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """Every scalar argument, once, in the order of the calls."""
        found: dict[str, Scalar] = {}
        for call in self.calls:
            for value in call.arguments:
                members = value.values if isinstance(value, Scalars) else (value,)
                found.update((s.name, s) for s in members if isinstance(s, Scalar))
        return tuple(found.values())

    def first_output(self, call: int) -> int:
        """Return the number of a call's first output."""
        return len(self.inputs) + sum(len(c.outputs) for c in self.calls[:call])

    @property
    def memory(self) -> tuple[int, ...]:
        """Of each value the one whose memory it is in: an input, or what a call made anew."""
        behind = list(range(len(self.inputs)))
        for call in self.calls:
            shares = call.schema.aliases
            for place in range(len(call.outputs)):
                alias = shares[min(place, len(shares) - 1)] if shares else None
                source = None if alias is None else call.arguments[alias]
                behind.append(behind[source.value] if isinstance(source, Ref) else len(behind))
        return tuple(behind)

    @property
    def written(self) -> tuple[int, ...]:
        """Inputs that a call writes in place, themselves or through a view."""
        behind, count = self.memory, len(self.inputs)
        return tuple(dict.fromkeys(behind[v] for call in self.calls for v in mutated(call) if behind[v] < count))


def tensors(value: Value) -> tuple[int, ...]:
    """Return values that an argument refers to.

    >>> tensors(Refs((0, None, 2))), tensors(Ref(1)), tensors(LiteralArg(3))
    ((0, 2), (1,), ())
    """
    if isinstance(value, Ref):
        return (value.value,)
    return tuple(v for v in value.values if v is not None) if isinstance(value, Refs) else ()


def mutated(call: GraphCall) -> tuple[int, ...]:
    """Return values that a call writes in place."""
    if call.operator in _TRAINED and call.given().get("training") == LiteralArg(False):
        return ()
    return tuple(v for place in call.schema.mutates for v in tensors(call.arguments[place]))


def asked(call: GraphCall) -> tuple[bool, ...]:
    """Return for each output of the schema whether the call gives it: gradients are given as they are asked for."""
    mask = call.given().get("output_mask")
    if isinstance(mask, LiteralArg) and isinstance(mask.value, tuple):
        return tuple(map(bool, mask.value))
    count, listed = len(call.outputs), any(kind.endswith("[]") for kind in call.schema.outputs)
    return (True,) * count + (False,) * (0 if listed else len(call.schema.outputs) - count)


def reads(call: GraphCall) -> tuple[int, ...]:
    """Return values that a call takes, in the order of its arguments."""
    return tuple(v for value in call.arguments for v in tensors(value))


def renumbered(value: Value, to: Callable[[int], int]) -> Value:
    """Return an argument of a graph whose values have other numbers."""
    if isinstance(value, Ref):
        return Ref(to(value.value))
    return Refs(tuple(None if v is None else to(v) for v in value.values)) if isinstance(value, Refs) else value


def settled(graph: Graph, numbers: Mapping[str, float]) -> Graph:
    """Return the graph with other values for numbers that were not recorded, by name; what is recorded stays."""

    def scalar(one: Scalar) -> Scalar:
        return one if one.recorded else Scalar(one.name, numbers.get(one.name, one.value), recorded=False)

    def argument(value: Value) -> Value:
        if isinstance(value, Scalars):
            return Scalars(tuple(map(scalar, value.values)))
        return scalar(value) if isinstance(value, Scalar) else value

    calls = tuple(msgspec.structs.replace(c, arguments=tuple(map(argument, c.arguments))) for c in graph.calls)
    return msgspec.structs.replace(graph, calls=calls)


def numbers_once(graph: Graph) -> Graph:
    """Return the graph, in which equal numbers that are recorded for one argument have one name."""
    first = dict[tuple[str, str, str], Scalar]()  # 1, 1.0 and True are equal, and no one number

    def argument(name: str, value: Value) -> Value:
        if not isinstance(value, Scalar) or not value.recorded:
            return value
        return first.setdefault((name, type(value.value).__name__, repr(value.value)), value)

    calls = []
    for call in graph.calls:
        given = zip(call.schema.arguments, call.arguments, strict=True)
        calls.append(msgspec.structs.replace(call, arguments=tuple(argument(a.name, v) for a, v in given)))
    return msgspec.structs.replace(graph, calls=tuple(calls))
