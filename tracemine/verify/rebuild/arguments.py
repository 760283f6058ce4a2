"""Arguments of a rebuilt call: recorded texts as values, names for tensors and numbers, and what was not recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tracemine.codegen.graph import LiteralArg, Scalar, Scalars, Value
from tracemine.codegen.graph_builder import is_shaping, usable
from tracemine.ops import Argument, Overload, scalar_type
from tracemine.verify.rebuild.call_facts import CallFacts, RecordedTensor

NUMBER = "a Python number among the arguments is not recorded: it is tried at several values"
_PLACEMENT = frozenset({"layout", "device", "pin_memory", "non_blocking", "generator"})  # where, not what
_NUMBER_TYPES = ("double", "long int", "float64", "int64", "bool", "long")
_LONGEST_LIST = 4096
_TENSOR_NAMES = {"self": "x", "input": "x", "other": "y", "src": "x", "mat1": "x", "mat2": "y"}

Plain = bool | int | float | str | tuple[Any, ...] | None


class NotRecorded(Exception):
    """An argument's value is not in the trace; its text is the reason."""


# An argument's value, and what is assumed of it: with NUMBER, that it is not recorded.
ArgumentValue = tuple[Plain, tuple[str, ...]]


class Names:
    """Names of the kernel's arguments, each given once. They come from schemas, never from a trace."""

    def __init__(self) -> None:
        self.taken = set[str]()

    def tensor(self, argument: str) -> str:
        """Return a name for an input that is given for an argument.

        >>> names = Names()
        >>> names.tensor("weight"), names.tensor("self"), names.tensor("self"), names.tensor("index")
        ('weight', 'x', 'x_1', 'x_2')
        """
        return self._free(_TENSOR_NAMES.get(argument, argument), "x")

    def number(self, argument: str) -> str:
        """Return a name for a number."""
        return self._free("number" if argument in ("self", "other", "input") else argument, "number")

    def _free(self, wish: str, other: str) -> str:
        stem = wish if usable(wish) and wish != "seed" else other
        for k in range(10_000):
            name = f"{stem}_{k}" if k else stem
            if name not in self.taken and usable(name):
                self.taken.add(name)
                return name
        raise NotRecorded("it takes too many tensors of one name")


class Numbers:
    """Plain values as a graph holds them."""

    def value(self, argument: Argument, plain: Plain, names: Names, recorded: bool = True) -> Value:
        """Return a literal where the value shapes the kernel, a scalar argument where it does not."""
        if plain is None:
            return None
        kind = argument.type.removesuffix("?")
        if is_shaping(argument):
            return LiteralArg(plain)
        if kind == "Scalar[]" and isinstance(plain, tuple):
            return Scalars(tuple(Scalar(names.number(argument.name), n, recorded) for n in plain))
        if kind in ("Scalar", "float", "Tensor") and type(plain) in (int, float):
            return Scalar(names.number(argument.name), plain, recorded)  # type: ignore[arg-type]
        return LiteralArg(plain)

    def unknown(self, argument: Argument, recorded_type: str, names: Names) -> Scalar:
        """Return a number of which only the type was recorded."""
        whole = recorded_type in ("long int", "int64", "long")
        return Scalar(names.number(argument.name), 2 if whole else 0.5, recorded=False)


def is_number(seen: RecordedTensor | None, facts: CallFacts, overload: Overload, place: int | None = None) -> bool:
    """Return whether a Python number was given for a tensor: it is recorded as a 0-dim tensor of the host."""
    at = place if place is not None else seen.position if seen is not None else -1
    if not 0 <= at < len(facts.types) or at >= len(overload.arguments) or overload.arguments[at].is_list:
        return False
    if facts.types[at] not in _NUMBER_TYPES:
        return False
    return at > 0 if seen is None else seen.on_host and not seen.layout.shape


def told(facts: CallFacts, place: int) -> float | int | bool | None:
    """Return the number that was given for a tensor, where the call around recorded it; else None."""
    text = facts.texts[place] if facts.texts is not None and place < len(facts.texts) else ""
    try:
        return _number(text) if text else None
    except ValueError:
        return None


def given(argument: Argument, place: int, facts: CallFacts) -> ArgumentValue:
    """Return what was given for an argument that is no tensor. Raises NotRecorded."""
    if argument.name in _PLACEMENT or (argument.has_default and place >= len(facts.types)):
        return None, ()
    if place >= len(facts.types):  # recorded by a version whose schema has no such argument, or not at all
        raise NotRecorded(f"the value of {argument.name} is not recorded")
    kind = argument.type.removesuffix("?")
    if kind == "str":
        return _word(argument, facts)
    if text := "".join((facts.texts or ())[place : place + 1]):
        return _parsed(kind, text, argument.name), ()
    return _not_recorded(argument, kind, place, facts)


def _not_recorded(argument: Argument, kind: str, place: int, facts: CallFacts) -> ArgumentValue:
    """Return what an argument without a recorded value must have been. Raises NotRecorded."""
    # Without values a list that was given looks like one that was not.
    if not facts.types[place] and argument.is_optional and (facts.texts is not None or "[" not in kind):
        return None, ()
    if kind in ("Scalar", "float") and not is_shaping(argument):
        return 2 if _all_whole(facts) else 0.5, (NUMBER,)
    if kind == "bool":
        return _by_kernels(argument, facts, _FLAGS)
    raise NotRecorded(f"the value of {argument.name} is not recorded")


def _all_whole(facts: CallFacts) -> bool:
    kinds = [seen.dtype or "" for seen in (*facts.inputs, *facts.outputs)]
    return bool(kinds) and not any("float" in kind or "complex" in kind for kind in kinds)


def _word(argument: Argument, facts: CallFacts) -> ArgumentValue:
    """Return a string: profilers do not record it, but kernels may tell."""
    try:
        word, assumptions = _by_kernels(argument, facts, _WORDS)
    except NotRecorded:
        if argument.type.endswith("?"):
            raise NotRecorded(f"whether {argument.name} was given is not recorded") from None
        raise NotRecorded(f"{argument.name}, a word, is not recorded") from None
    return word or None, assumptions


def _by_kernels(argument: Argument, facts: CallFacts, told_by: _ByKernels) -> ArgumentValue:
    """Return what the names of a call's kernels tell. Raises NotRecorded where none does, or several disagree."""
    operator = facts.operator.removesuffix("_")
    marks = told_by.get((operator, argument.name), ())
    found = {value for mark, value in marks for kernel in facts.kernels if mark in kernel}
    if len(found) != 1:
        raise NotRecorded(f"the value of {argument.name} is not recorded")
    return found.pop(), (f"{argument.name} of {operator} is read off its kernel's name",)


_ByKernels = Mapping[tuple[str, str], tuple[tuple[str, Plain], ...]]

# What a kernel's name shows: ATen's branch for tanh comes first in GeluCUDAKernelImpl and its backward
# (ActivationGeluKernel.cu), and division has a kernel for each way of rounding (BinaryDiv*Kernel.cu).
_GELU = (("GeluType)::{lambda()#1}", "tanh"), ("GeluType)::{lambda()#2}", "none"))
_WORDS: _ByKernels = {
    ("aten::gelu", "approximate"): _GELU,
    ("aten::gelu_backward", "approximate"): _GELU,
    ("aten::div", "rounding_mode"): (("div_floor", "floor"), ("div_trunc", "trunc"), ("div_true", "")),
}
# cuDNN's kernels are named after what they do: forward, training or inference.
_FLAGS: _ByKernels = {("aten::cudnn_batch_norm", "training"): (("bn_fw_tr_", True), ("bn_fw_inf_", False))}


def _parsed(kind: str, text: str, name: str) -> Plain:
    try:
        if kind == "ScalarType":
            found = scalar_type(text)
            if found is None:
                raise NotRecorded(f"the value of {name} is no known dtype")
            return found
        if kind.startswith("bool"):
            return _each(text, _flag) if "[" in kind else _flag(text)
        if kind.split("[")[0] in ("int", "SymInt", "MemoryFormat"):
            whole = _each(text, int) if "[" in kind else int(text)
            values = whole if isinstance(whole, tuple) else (whole,)
            if any(abs(v) > 1 << 63 for v in values):
                raise NotRecorded(f"the value of {name} is out of range")
            return whole
        if kind in ("Scalar", "float"):
            return _number(text)
        if kind in ("Scalar[]", "float[]"):
            return _each(text, _number)
    except ValueError:
        raise NotRecorded(f"the value of {name} is damaged") from None
    raise NotRecorded(f"{name} is of a kind that graphs do not have")


def _flag(text: str) -> bool:
    if text not in ("True", "False", "1", "0"):
        raise ValueError(text)
    return text in ("True", "1")


def _number(text: str) -> float | int | bool:
    if text in ("True", "False"):
        return text == "True"
    value = float(text)  # also what is too large for an int
    whole = text.lstrip("+-").isdigit() and len(text) < 20
    if math.isnan(value):
        raise ValueError(text)
    return int(text) if whole else value


def _each(text: str, one: Any) -> tuple[Any, ...]:
    if len(text) > _LONGEST_LIST:
        raise ValueError(text)
    return tuple(one(part.strip()) for part in text.strip("[]()").split(",") if part.strip())
