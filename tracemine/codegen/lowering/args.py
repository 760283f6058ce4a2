"""The arguments of one call, as rules ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tracemine.codegen.graph import GraphCall, LiteralArg, Ref, Refs, Scalar, Unsupported, Value
from tracemine.codegen.tensor_ir import ScalarArg, Tensor
from tracemine.ops.infer import TensorSpec

Operand = Tensor | ScalarArg


class CallArgs(msgspec.Struct, frozen=True):
    """The arguments of one call, asked for by name, with the expressions of its tensors."""

    call: GraphCall
    values: Mapping[str, Value]
    tensors: Sequence[Tensor]
    number: int

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    @property
    def output(self) -> TensorSpec:
        """The first output."""
        return self.call.outputs[0]

    def tensor(self, name: str) -> Tensor:
        """Return a tensor argument. Raises Unsupported where there is none."""
        value = self.values.get(name)
        if not isinstance(value, Ref):
            raise Unsupported(f"{self.call.label} is called without a tensor for {name}")
        return self.tensors[value.value]

    def members(self, name: str) -> tuple[Tensor | None, ...]:
        """Return a list of tensors."""
        value = self.values.get(name)
        if not isinstance(value, Refs):
            raise Unsupported(f"{self.call.label} is called without a list for {name}")
        return tuple(None if v is None else self.tensors[v] for v in value.values)

    def operand(self, name: str, default: float | None = None) -> Operand:
        """Return a tensor or a number. Raises Unsupported where neither is given and there is no default."""
        value = self.values.get(name)
        if isinstance(value, Ref):
            return self.tensors[value.value]
        if isinstance(value, Scalar):
            return ScalarArg(value.value, value.name)
        if isinstance(value, LiteralArg) and isinstance(value.value, int | float):
            return ScalarArg(value.value)
        if value is None and default is not None:
            return ScalarArg(default)
        raise Unsupported(f"{self.call.label} is called without {name}")

    def literal(self, name: str, default: bool | int | float | str | tuple[int, ...] | None = None) -> object:
        """Return what shapes the kernel; the default where None was given."""
        value = self.values.get(name)
        if isinstance(value, LiteralArg):
            return value.value
        if isinstance(value, Scalar):  # an axis or a size that was given as a number
            return value.value
        return default

    def integer(self, name: str, default: int) -> int:
        """Return an integer literal."""
        value = self.literal(name, default)
        if not isinstance(value, int):
            raise Unsupported(f"{self.call.label}: {name} is no integer")
        return int(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of integers, also where one alone is given; None where None is."""
        value = self.literal(name)
        if value is None:
            return None
        return tuple(value) if isinstance(value, tuple) else (self.integer(name, 0),)
