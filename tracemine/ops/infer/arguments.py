"""Inputs of one operator call as a profiler recorded them, ready to be asked for by the argument's name.

`Unknown` is raised for what was not recorded and for what cannot be, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final

from tracemine.ops.dtypes import dtype as canonical_dtype
from tracemine.ops.dtypes import scalar_type
from tracemine.ops.infer.tensor import TensorSpec
from tracemine.ops.operators import Overload, lookup

LARGEST: Final = 1 << 40  # elements, a size, or what a stride steps over: no GPU holds as much, more is damage
_MOST_AXES = 64  # torch's own limit
_MOST_INPUTS = 128
_MOST_MEMBERS = 1 << 14  # of a TensorList
LISTS: Final = ("TensorList", "GenericList")
NUMBERS: Final = ("float64", "int64", "complex128")  # the types of 0-dim tensors that Python numbers are recorded as
_FLOATING = ("float16", "bfloat16", "float32", "float64")
_PROMOTING = ("other", "exponent", "min", "max", "self")  # scalars that take part in promotion; alpha and value do not

Given = TensorSpec | tuple[TensorSpec, ...] | None
ListDtype = str | Sequence[Sequence[str]] | None  # of all members of lists, or of each, one entry an input


class Unknown(Exception):
    """Something cannot be known from what was recorded; its text is the reason."""


MISFIT: Final = "the inputs do not fit the operator"


def refuse_if(wrong: bool, reason: str = MISFIT) -> None:
    """Raise Unknown where something about the inputs is wrong.

    >>> refuse_if(2 > 3)
    """
    if wrong:
        raise Unknown(reason)


# What looking into inputs may raise that do not belong together.
MISFITS: Final = (Unknown, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Arguments:
    """The inputs of one call by the names of its overload's arguments."""

    __slots__ = ("_given", "_places", "_texts", "_types", "name", "overload")

    def __init__(
        self,
        operator: str,
        shapes: Sequence[Any],
        types: Sequence[str],
        strides: Sequence[Any] | None,
        concrete: Sequence[str] | None,
        list_dtype: ListDtype = None,
    ) -> None:
        """Raises Unknown where the operator, its overload or its inputs are not what they should be."""
        given = given_tensors(shapes, types, strides, list_dtype)
        self.name, self.overload, self._places = signature(operator, tuple(types))
        later = len(self.overload.arguments) - len(types)  # arguments that newer releases have appended
        self._types = (*types, *("",) * later)
        self._texts = (*concrete, *("",) * later) if concrete is not None and len(concrete) == len(shapes) else None
        self._given: list[Given] = [*given, *(None,) * later]

    def __contains__(self, name: str) -> bool:
        """Return whether the overload has an argument of this name."""
        return name in self._places

    def at(self, place: int) -> Given:
        """Return the input at a position."""
        return self._given[place]

    def given(self, name: str) -> bool:
        """Return whether the argument exists and something other than None was given for it, as far as was recorded."""
        place = self._places.get(name)
        return place is not None and bool(self._types[place])

    def tensor(self, *names: str) -> TensorSpec:
        """Return the tensor given for the first of these arguments that the overload has; Unknown where it is none."""
        found = self.optional(*names)
        if found is None:
            raise Unknown(f"{names[0]} was not recorded as a tensor")
        return found

    def optional(self, *names: str) -> TensorSpec | None:
        """Return as tensor; None where None was given."""
        for name in names:
            place = self._places.get(name)
            if place is not None:
                found = self._given[place]
                return found if isinstance(found, TensorSpec) else None
        return None

    def tensors(self, name: str) -> tuple[TensorSpec, ...]:
        """Return the members of a TensorList. Unknown where they were not recorded: long lists are cut to nothing."""
        place = self._places.get(name)
        found = None if place is None else self._given[place]
        if not isinstance(found, tuple) or not found:
            raise Unknown(f"the members of {name} were not recorded")
        return found

    def text(self, name: str) -> str:
        """Return the value given for an argument, as text; "" for None. Unknown where values were not recorded."""
        place = self._places.get(name)
        if place is None:
            return ""
        if self._texts is None:
            raise Unknown("the values of arguments were not recorded")
        text = self._texts[place]
        if not isinstance(text, str):
            raise Unknown(f"the value of {name} is damaged")
        if not text and self._types[place]:
            raise Unknown(f"the value of {name} was not recorded")
        return text

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an integer argument; the default where None was given, or Unknown without one."""
        text = self.text(name)
        if not text:
            if default is None:
                raise Unknown(f"the value of {name} was not recorded")
            return default
        return _integer(text)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return a list of integers, also where one alone was recorded; None where None was given."""
        text = self.text(name)
        return _integers(text) if text else None

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return as integers; Unknown where None was given, or a list too long to be recorded."""
        found = self.integers(name)
        if found is None:
            raise Unknown(f"the value of {name} was not recorded")
        return found

    def flags(self, name: str) -> tuple[bool, ...]:
        """Return a list of booleans."""
        return tuple(part.strip() in ("True", "1") for part in self.text(name).strip("[]").split(","))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean argument; the default where the overload has none of this name, or None was given."""
        text = self.text(name)
        if text in ("True", "1"):
            return True
        if text in ("False", "0"):
            return False
        if text:
            raise Unknown(f"the value of {name} is damaged")
        return default

    def dtype(self, name: str = "dtype") -> str | None:
        """Return a dtype argument; None where None was given."""
        text = self.text(name)
        if not text:
            return None
        found = scalar_type(text)
        if found is None:
            raise Unknown(f"the value of {name} is no known dtype")
        return found

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """Return an axis, counted from the front; a 0-dim tensor counts as having one."""
        return wrapped(self.integer(name, default), rank)

    def operands(self) -> tuple[list[TensorSpec], list[str]]:
        """Return what is computed on, element by element: the tensors, and the dtypes of Python numbers that promote.

        A Python number where a tensor was wanted is recorded as a 0-dim tensor of type double or long int. No trace
        tells it from a true one, so each that is not `self` counts as a number.
        """
        tensors, numbers = [], []
        for place, argument in enumerate(self.overload.arguments):
            given = self._given[place]
            if place in self.overload.overwrites:
                continue
            if isinstance(given, TensorSpec):
                if self.is_number(place):
                    numbers.append(str(given.dtype))
                else:
                    tensors.append(given)
            elif argument.type in ("Scalar", "Scalar?") and argument.name in _PROMOTING and self._types[place]:
                numbers.append(self._number(argument.name))
        return tensors, numbers

    def _number(self, name: str) -> str:
        """Return the dtype of a number; where its value is not recorded, bool if self is floating: any would do."""
        try:
            return number_type(self.text(name))
        except Unknown:
            given = self._given[0]
            if isinstance(given, TensorSpec) and given.dtype in _FLOATING:
                return "bool"
            raise

    @property
    def inputs(self) -> list[Given]:
        """Every input, in order."""
        return self._given

    def is_number(self, place: int) -> bool:
        """Return whether the input there is taken for a Python number that was recorded as a 0-dim tensor."""
        given = self._given[place]
        if place == 0 or not isinstance(given, TensorSpec) or given.shape or given.dtype not in NUMBERS:
            return False
        return self.overload.arguments[0].is_tensor

    def recorded(self, name: str) -> str:
        """Return the recorded type of an argument; "" for None and for an argument that the overload lacks."""
        place = self._places.get(name)
        return "" if place is None else self._types[place]


def wrapped(axis: int, rank: int) -> int:
    """Return an axis counted from the front. Raises Unknown where the tensor has no such axis."""
    rank = max(rank, 1)
    if not -rank <= axis < rank:
        raise Unknown("an axis is out of range")
    return axis % rank


def number_type(text: str) -> str:
    """Return the dtype that a recorded Python number has.

    >>> number_type("1"), number_type("1.e-05"), number_type("True"), number_type("(1,2)")
    ('int64', 'float64', 'bool', 'complex128')
    """
    if text in ("True", "False"):
        return "bool"
    if "j" in text or "(" in text:
        return "complex128"
    return "int64" if text.lstrip("+-").isdigit() else "float64"


def _integer(text: str) -> int:
    try:
        value = int(text) if len(text) < 21 else LARGEST + 1
    except ValueError:
        raise Unknown("a recorded value is no integer") from None
    return value


def _integers(text: str) -> tuple[int, ...]:
    if len(text) > 4096:
        raise Unknown("a recorded list is too long")
    values = tuple(_integer(part.strip()) for part in text.strip("[]()").split(",") if part.strip())
    if any(abs(value) > LARGEST for value in values):
        raise Unknown("a recorded value is out of range")
    return values


@lru_cache(maxsize=1 << 12)
def signature(operator: str, types: tuple[str, ...]) -> tuple[str, Overload, dict[str, int]]:
    """Return a call's name without namespace and overload, its overload, and where each argument stands.

    Raises Unknown where the recorded types do not say which overload it is.
    """
    found = lookup(operator)
    if found is None:
        raise Unknown("the operator is not known")
    if not found.overloads:
        raise Unknown("the operator's schema is not known")
    overload = found.called(types)
    if overload is None:
        raise Unknown("no one overload takes such inputs")
    namespace, _, name = found.name.partition("::")
    places = {argument.name: place for place, argument in enumerate(overload.arguments)}
    return (name if namespace == "aten" else found.name).partition(".")[0], overload, places


def given_tensors(
    shapes: Sequence[Any], types: Sequence[str], strides: Sequence[Any] | None, list_dtype: ListDtype = None
) -> list[Given]:
    """Return the tensors that each input is. Raises Unknown where one is damaged."""
    if not len(shapes) == len(types) <= _MOST_INPUTS:
        raise Unknown("the recorded shapes and types do not pair")
    if strides is None or len(strides) != len(shapes):
        strides = (None,) * len(shapes)
    members = [list_dtype] * len(shapes) if list_dtype is None or isinstance(list_dtype, str) else list_dtype
    return [_given(*row) for row in zip(shapes, types, strides, members, strict=True)]


def _given(shape: Any, recorded: str, strides: Any, members: str | Sequence[str] | None) -> Given:
    if recorded in LISTS:
        if not isinstance(shape, (list, tuple)) or len(shape) > _MOST_MEMBERS:
            raise Unknown("a recorded shape is damaged")
        steps = strides if isinstance(strides, (list, tuple)) and len(strides) == len(shape) else (None,) * len(shape)
        if not all(isinstance(member, (list, tuple)) for member in shape):
            return ()  # lists that are not of tensors
        dtypes = (members,) * len(shape) if members is None or isinstance(members, str) else members
        return tuple(_tensor(*member) for member in zip(shape, dtypes, steps, strict=True))
    dtype = canonical_dtype(recorded)
    return None if dtype is None else _tensor(shape, dtype, strides)


def _tensor(shape: Any, dtype: str | None, strides: Any) -> TensorSpec:
    if not isinstance(shape, (list, tuple)) or len(shape) > _MOST_AXES:
        raise Unknown("a recorded shape is damaged")
    for size in shape:
        if type(size) is not int or not 0 <= size <= LARGEST:
            raise Unknown("a recorded shape is damaged")
    if prod(shape) > LARGEST:
        raise Unknown("a recorded shape is damaged")
    if not isinstance(strides, (list, tuple)) or len(strides) != len(shape):
        return TensorSpec(tuple(shape), dtype, None if shape else ())
    for step in strides:
        if type(step) is not int or not 0 <= step <= LARGEST:
            raise Unknown("recorded strides are damaged")
    return TensorSpec(tuple(shape), dtype, tuple(strides))
