"""Shapes of an operator's inputs as NVTX texts list them, laid out as the timeline has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from tracemine.columns import Array
from tracemine.formats.nsys.nvtx import NvtxRange, Sizes
from tracemine.ops import Overload, lookup


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
