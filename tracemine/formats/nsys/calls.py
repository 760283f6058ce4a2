"""What the operator table says of a call whose argument sizes are recorded, and nothing else of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tracemine.columns import Array
from tracemine.formats.nsys.ranges import NvtxRange, Sizes
from tracemine.ops import Overload, lookup
from tracemine.ops.infer import infer
from tracemine.tables import table_beside


def input_shapes(parsed: Sequence[NvtxRange]) -> tuple[Array, list[str]]:
    """Return for each distinct text the number of its shapes' JSON (−1: none recorded), and the JSON texts."""
    seen: dict[str, int] = {}
    known: dict[tuple[str, Sizes], int] = {}
    numbers = np.full(len(parsed) + 1, -1, np.int64)
    for at, one in enumerate(parsed):
        if one.sizes is not None:
            key = one.name, one.sizes
            if key not in known:
                text = msgspec.json.encode(nested(*key)).decode()
                known[key] = seen.setdefault(text, len(seen))
            numbers[at] = known[key]
    return numbers, list(seen)


def nested(name: str, sizes: Sizes) -> list[Any]:
    """Return the sizes, a TensorList's members in a list of their own, where the operator table tells which they are.

    >>> nested("aten::cat", ((2, 8), (2, 8), ()))
    [[[2, 8], [2, 8]], []]
    """
    place, given = list_place(name, sizes), [list(size) for size in sizes]
    if place is None:
        return given
    position, count = place
    return [*given[:position], given[position : position + count], *given[position + count :]]


def list_place(name: str, sizes: Sizes) -> tuple[int, int] | None:
    """Return position and length of the one TensorList among an operator's inputs; None: none, or more than one way."""
    found = {place for overload in _overloads(name) if (place := _place_in(overload, sizes)) is not None}
    return found.pop() if len(found) == 1 else None


def _place_in(overload: Overload, sizes: Sizes) -> tuple[int, int] | None:
    lists = [at for at, argument in enumerate(overload.arguments) if argument.is_tensor and argument.is_list]
    if len(lists) != 1:
        return None
    position, count = lists[0], len(sizes) - len(overload.arguments) + 1
    if count < 1:
        return None
    after = zip(overload.arguments[position + 1 :], sizes[position + count :], strict=True)
    before = zip(overload.arguments[:position], sizes[:position], strict=True)
    if any(size and not argument.is_tensor for argument, size in (*before, *after)):
        return None
    # A tensor that must be there and is not would be one without dimensions, which is rarer than another overload.
    if any(not size and argument.is_tensor and not argument.is_optional for argument, size in (*before, *after)):
        return None
    return position, count


@lru_cache(maxsize=1 << 14)
def _overloads(name: str) -> tuple[Overload, ...]:
    operator = lookup(name)
    return () if operator is None else tuple(operator.overloads)


_TABLE = table_beside(__file__, "calls.toml")
# Operators whose first outputs have the shape of their first input, whatever the arguments that are not recorded are.
_LIKE_ITS_FIRST = _TABLE["like_its_first"]
_DTYPE = "float"  # shapes do not depend on it; where a rule needs one, any will do


class Arguments(Struct, frozen=True):
    """What all overloads that fit agree on. Positions count arguments; entries count sizes, lists laid out flat."""

    aliases: tuple[int | None, ...]  # a tensor output: the argument whose storage it shares, or may share
    mutates: tuple[int, ...]
    list_position: int = -1  # of the one list of tensors, −1: none
    list_length: int = 1

    def entry(self, position: int) -> int | None:
        """Return where the sizes of an argument stand; None for a list.

        >>> Arguments((), (), list_position=1, list_length=3).entry(2)
        4
        """
        if self.list_position < 0 or position < self.list_position:
            return position
        return None if position == self.list_position else position + self.list_length - 1

    def place(self, entry: int) -> tuple[int, int]:
        """Return the argument that an entry belongs to, and which member of a list it is (−1: no list).

        >>> Arguments((), (), list_position=1, list_length=3).place(3)
        (1, 2)
        """
        inside = entry - self.list_position
        if self.list_position < 0 or inside < 0:
            return entry, -1
        if inside < self.list_length:
            return self.list_position, inside
        return entry - self.list_length + 1, -1


@lru_cache(maxsize=1 << 16)
def arguments(name: str, sizes: Sizes) -> Arguments | None:
    """Return how the call used its arguments; None for operators not in the table, or where overloads disagree.

    >>> arguments("aten::add_", ((4, 8), (8,), ())).mutates
    (0,)
    """
    operator = lookup(name)
    fitting = [] if operator is None else [f for o in operator.overloads if (f := _fitted(o, sizes)) is not None]
    return fitting[0] if len(set(fitting)) == 1 else None


def _fitted(overload: Overload, sizes: Sizes) -> Arguments | None:
    given = overload.arguments
    lists = [at for at, argument in enumerate(given) if argument.is_tensor and argument.is_list]
    extra = len(sizes) - len(given)
    if len(lists) > 1 or (extra < 0 if lists else extra):
        return None
    if any(kind.endswith("[]") for kind in overload.outputs):
        return None  # members of lists are not numbered
    found = Arguments(
        aliases=_of_tensors(overload),
        mutates=overload.mutates,
        list_position=lists[0] if lists else -1,
        list_length=extra + 1,
    )
    tensors = all(given[found.place(entry)[0]].is_tensor for entry, size in enumerate(sizes) if size)
    return found if tensors and _has_its_outputs(overload, found, sizes) else None


def _of_tensors(overload: Overload) -> tuple[int | None, ...]:
    """Return what each output that is a tensor shares its storage with."""
    pairs = zip(overload.aliases, overload.outputs, strict=True)
    return tuple(aliased for aliased, kind in pairs if kind.startswith("Tensor"))


def _has_its_outputs(overload: Overload, arguments: Arguments, sizes: Sizes) -> bool:
    """Return whether an out= overload has all its own: a 0-d tensor and a missing one look the same."""
    if not overload.name.endswith("out"):
        return True
    written = [arguments.entry(position) for position in overload.mutates]
    return all(at is not None and sizes[at] for at in written)


@lru_cache(maxsize=1 << 16)
def output_shapes(name: str, sizes: Sizes) -> tuple[tuple[int, ...] | None, ...]:
    """Return the shape of each output as far as it follows from the inputs' sizes alone.

    >>> output_shapes("aten::mul", ((4, 8), (8,))), output_shapes("aten::mean", ((4, 8), (), (), ()))
    (((4, 8),), ())
    """
    given = nested(name, sizes)
    types = ["TensorList" if size and isinstance(size[0], list) else _DTYPE if size else "Scalar" for size in given]
    found = infer(name, given, types).outputs
    if found is not None:
        return tuple(None if spec is None else spec.shape for spec in found)
    return (sizes[0],) * _LIKE_ITS_FIRST.get(name, 0) if sizes and sizes[0] else ()
