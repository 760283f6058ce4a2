"""What XLA could have compiled otherwise: patterns among the instructions of one module.

Each detector yields cases: which instructions are part of one, and what is left of them once its cause is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tracemine.causes.xla_attention_unfused.reading import Array, Instruction

_HALF: Final = frozenset({"bfloat16", "float16"})
_FEWEST_SCORES: Final = 256  # queries, and keys
_WIDEST_HEAD: Final = 128
_BACKWARD: Final = 2.5  # times the forward pass' operations
_DENSE_BYTES: Final = 16 << 20
_FEW: Final = 100  # times fewer elements scattered than there are
_LEAST_TRIPS: Final = 4
_LEAST_COPIED: Final = 2 << 20  # bytes read and written: weights are less
_MOST_PARTS: Final = 64  # that a product's sum is split into
_MOVES: Final = frozenset({"parameter", "bitcast", "copy", "transpose", "reshape", "tuple", "get-tuple-element"})
_ALIGNED, _WIDE = 8, 1_024
FINDINGS: Final = (
    *("attention", "dense scatter", "loop work", "float32 product", "odd product", "partial sums", "layout copy"),
    "op by op",
)


class Left(Struct, frozen=True):
    """What an instruction leaves: operations at the rate of a call of a library, and bytes."""

    flops: int = 0
    rate: str = ""  # operation and arithmetic, as library_rates.py has them
    nbytes: int = 0


class Case(Struct, frozen=True):
    """One case: positions of instructions, each with what is left of it."""

    finding: str
    parts: dict[int, Left]
    count: int = 1  # of what it is: layers, products


def _attention(given: Sequence[Instruction]) -> Iterator[Case]:
    """Products of queries and keys, a softmax, a product with the values; and all that works on arrays as large."""
    spaces: dict[tuple[int, int, int], list[Instruction]] = {}
    for each in given:
        for array in each.gives if each.kind == "product" and each.flops else ():
            space = _scores(array)
            if space is not None and _is_softmax(given, each, space):
                spaces.setdefault(space, []).append(each)
                break
    for space, products in spaces.items():
        members = {each.number: Left() for each in given if _touches(each, space) and each.kind != "collective"}
        trained = sum(given[number].kind == "product" for number in members) > 2 * len(products)
        causal = any(_is_causal(given, number, space) for number in members)
        for first in products:
            width = first.flops // (2 * space[0])
            if width > _WIDEST_HEAD or width % _ALIGNED:
                return
            flops = 2 * first.flops // (2 if causal else 1)
            members[first.number] = Left(flops, "attention half")
            if trained:
                values = next(reader for reader in _consumers(given, first, space) if given[reader].kind == "product")
                members[values] = Left(int(_BACKWARD * flops), "attention_backward half")
        yield Case("attention", members, len(products))


def _scores(array: Array) -> tuple[int, int, int] | None:
    """Return elements, queries and keys of an array that can be scores of attention."""
    if len(array.shape) < 3 or array.dtype not in _HALF or min(array.shape[-2:]) < _FEWEST_SCORES:
        return None
    queries, keys = array.shape[-2:]
    return (array.elements, queries, keys) if math.prod(array.shape[:-2]) > 1 else None


def _is_like(array: Array, space: tuple[int, int, int]) -> bool:
    rest = [*array.shape]
    for size in space[1:]:
        if size not in rest:
            return False
        rest.remove(size)
    return array.elements == space[0]


def _touches(each: Instruction, space: tuple[int, int, int]) -> bool:
    return any(_is_like(array, space) for array in (*each.takes, *each.gives))


def _consumers(given: Sequence[Instruction], first: Instruction, space: tuple[int, int, int]) -> list[int]:
    """Return what scores go through, and nothing else as large, up to the product that reads them last."""
    found = {first.number}
    for each in given[first.number + 1 :]:
        makers = [maker for array in each.takes if _is_like(array, space) for maker in array.makers]
        rests = any(maker in found and given[maker].kind != "product" for maker in makers)
        if makers and found.issuperset(makers) and (rests or first.number in makers):
            found.add(each.number)
    return sorted(found - {first.number})


def _is_softmax(given: Sequence[Instruction], first: Instruction, space: tuple[int, int, int]) -> bool:
    """Return whether scores become weights: exponentials, sums over a row, and a product that takes the result."""
    behind = [given[at] for at in _consumers(given, first, space)]
    between = [each for each in behind if each.kind != "product"]
    body = frozenset[str]().union(*(each.body for each in between))
    weighs = any(
        each.kind == "product" and all(first.number not in array.makers for array in each.takes) for each in behind
    )
    return weighs and "exponential" in body and "reduce" in body


def _is_causal(given: Sequence[Instruction], number: int, space: tuple[int, int, int]) -> bool:
    each = given[number]
    if {"iota", "compare", "select"} <= each.body:
        return True
    masks = [array for array in each.takes if array.dtype == "bool" and array.shape[-2:] == space[1:]]
    makers = [given[maker] for mask in masks for maker in mask.makers]
    return any(not maker.takes and {"iota", "compare"} <= maker.body for maker in makers)


def _dense_scatter(given: Sequence[Instruction]) -> Iterator[Case]:
    """Zeros, a few elements scattered into them where they lie, and what reads all of it."""
    for each in given:
        targets = [array for array in each.takes if "scatter" in each.body and array.makers]
        for zeros in {given[maker].number for array in targets for maker in array.makers if not given[maker].takes}:
            whole = given[zeros].gives[0]
            written = sum(array.elements for array in each.gives)
            if whole.nbytes < _DENSE_BYTES or written * _FEW > whole.elements:
                continue
            parts = {zeros: Left(), each.number: Left()}
            for reader in each.readers:
                if given[reader].kind in ("elementwise", "reduction", "movement"):
                    read = sum(a.nbytes for a in given[reader].takes if each.number in a.makers)
                    parts[reader] = Left(nbytes=given[reader].nbytes - read)
            yield Case("dense scatter", parts)


def _loop_work(given: Sequence[Instruction]) -> Iterator[Case]:
    """Products in a loop that need nothing of the iteration before, with what only they read."""
    for loop in dict.fromkeys(each.loop for each in given if each.trips >= _LEAST_TRIPS):
        free = [each for each in given if each.loop == loop and not each.needs_turn]
        parts = {
            each.number: Left(each.flops, _rate(each), 3 * sum(a.nbytes for a in each.gives) // max(_parts(each), 1))
            for each in free
            if each.kind == "product"
        }
        if not parts:
            continue
        for each in reversed(free):
            if each.number not in parts and each.readers and all(reader in parts for reader in each.readers):
                parts[each.number] = Left()
        yield Case("loop work", parts, sum(given[at].kind == "product" for at in parts))


def _rate(each: Instruction) -> str:
    half = any(array.dtype in _HALF for array in each.takes)
    return "product half" if half else "product fp32" if each.precision == "HIGHEST" else "product tf32"


def _float32(given: Sequence[Instruction]) -> Iterator[Case]:
    """Products of float32 for which full precision is asked."""
    for each in given:
        wide = all(array.dtype == "float32" for array in each.takes)
        if each.kind == "product" and each.precision == "HIGHEST" and each.flops and each.takes and wide:
            yield Case("float32 product", {each.number: Left(each.flops, "product tf32", each.nbytes)})


def _odd(given: Sequence[Instruction]) -> Iterator[Case]:
    """Products in half precision of which a size is wide and no multiple of 8."""
    for each in given:
        sizes = {size for array in (*each.takes, *each.gives) if array.dtype in _HALF for size in array.shape[-2:]}
        if each.kind == "product" and each.flops and any(size > _WIDE and size % _ALIGNED for size in sizes):
            yield Case("odd product", {each.number: Left(each.flops, "product half", each.nbytes)})


def _partials(given: Sequence[Instruction]) -> Iterator[Case]:
    """Partial sums of a product, in float32, that one instruction adds up."""
    for each in given:
        parts = _parts(each)
        if not parts or len(each.readers) != 1:
            continue
        reader = given[each.readers[0]]
        sums = any(array.elements * parts == each.gives[0].elements for array in reader.gives)
        if sums and "reduce" in reader.body:
            own = sum(array.nbytes for array in reader.takes if each.number not in array.makers)
            left = own + sum(array.nbytes for array in reader.gives)
            yield Case("partial sums", {reader.number: Left(nbytes=left)})


def _parts(each: Instruction) -> int:
    """Return into how many parts the sum of a product may be split; 0: it is not."""
    result = each.gives[0] if each.kind == "product" and each.gives else None
    if result is None or result.dtype != "float32" or len(result.shape) < 3:
        return 0
    parts = result.shape[0]
    return parts if 1 < parts <= _MOST_PARTS and any(parts in array.shape for array in each.takes) else 0


def _layouts(given: Sequence[Instruction]) -> Iterator[Case]:
    """Copies into another layout, in front of a convolution or behind one."""
    for each in given:
        large = each.nbytes >= _LEAST_COPIED
        if each.kind != "movement" or not each.body <= _MOVES or not each.body & {"copy", "transpose"} or not large:
            continue
        makers = [given[maker] for array in each.takes for maker in array.makers]
        if any(one.kind == "convolution" for one in (*makers, *(given[reader] for reader in each.readers))):
            yield Case("layout copy", {each.number: Left()})


DETECTORS: Final[tuple[Callable[[Sequence[Instruction]], Iterator[Case]], ...]] = (
    *(_attention, _dense_scatter, _loop_work, _float32, _odd, _partials, _layouts),
)


def cases(given: Sequence[Instruction]) -> Iterator[Case]:
    """Yield all cases in a module, of which no two have an instruction in common."""
    taken = set[int]()
    for detect in DETECTORS:
        for case in detect(given):
            if taken.isdisjoint(case.parts):
                taken.update(case.parts)
                yield case
