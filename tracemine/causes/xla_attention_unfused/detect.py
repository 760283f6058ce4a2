"""What XLA could have compiled otherwise: patterns among the instructions of one module.

Each detector yields cases: which instructions are part of one, and what is left of them once its cause is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from tracemine.causes.xla_attention_unfused.reading import Array, ModuleInstruction
from tracemine.ops.dtypes import HALF

_FEWEST_SCORES: Final = 256  # queries, and keys
_WIDEST_HEAD: Final = 128
_BACKWARD: Final = 2.5  # times the forward pass' operations
_DENSE_BYTES: Final = 16 << 20
_SIDE: Final = 8  # times smaller than a product's result: what its epilogue reads besides
_FEW: Final = 100  # times fewer elements scattered than there are
_LEAST_TRIPS: Final = 4
_LEAST_COPIED: Final = 2 << 20  # bytes read and written: weights are less
_MOST_PARTS: Final = 64  # that a product's sum is split into
_OWN: Final = frozenset({"elementwise", "reduction", "movement"})  # what XLA generates, and fuses
_IN_PLACE: Final = frozenset({"scatter", "dynamic-update-slice", "dynamic-slice", "gather"})  # reads or writes a part
_MOVES: Final = frozenset({"parameter", "bitcast", "copy", "transpose", "reshape", "tuple", "get-tuple-element"})
_TURNS: Final = frozenset({"copy", "transpose"})
_ALIGNED, _WIDE = 8, 1_024
_CODES: Final = {  # types of 8 bits and fewer that stand for wider numbers, and the arithmetic of their products
    **dict.fromkeys(("int8", "s4", "u4"), "int8"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "f8e4m3", "f8e3m4", "f4e2m1fn"), "fp8"),
}
_ROUNDING: Final = frozenset(
    (
        *("parameter", "constant", "broadcast", "bitcast", "convert", "multiply", "divide", "round-nearest-even"),
        *("clamp", "maximum", "minimum", "add", "subtract", "abs", "compare", "select", "floor"),
    )
)
FINDINGS: Final = (
    *("attention", "dense scatter", "loop work", "float32 product", "odd product", "partial sums", "layout copy"),
    *("fusion boundary", "epilogue outside", "op by op", "wide product", "dequantised weight", "round trip"),
    "transposed weight",
)


class LeftWork(Struct, frozen=True):
    """What an instruction leaves: operations at the rate of a call of a library, and bytes."""

    flops: int = 0
    rate: str = ""  # operation and arithmetic, as library_rates.py has them
    nbytes: int = 0


class Case(Struct, frozen=True):
    """One case: positions of instructions, each with what is left of it."""

    finding: str
    parts: dict[int, LeftWork]
    count: int = 1  # of what it is: layers, products


def _attention(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Products of queries and keys, a softmax, a product with the values; and all that works on arrays as large."""
    spaces: dict[tuple[int, int, int], list[ModuleInstruction]] = {}
    for instruction in given:
        for array in instruction.gives if instruction.kind == "product" and instruction.flops else ():
            space = _scores(array)
            if space is not None and _is_softmax(given, instruction, space):
                spaces.setdefault(space, []).append(instruction)
                break
    for space, products in spaces.items():
        widths = [first.flops // (2 * space[0]) for first in products]
        if max(widths) <= _WIDEST_HEAD and not any(width % _ALIGNED for width in widths):
            yield Case("attention", _layers(given, products, space), len(products))


def _layers(
    given: Sequence[ModuleInstruction], products: Sequence[ModuleInstruction], space: tuple[int, int, int]
) -> dict[int, LeftWork]:
    """Return all that works on scores, with what fused calls in place of these products do."""
    touching = [each for each in given if _touches(each, space) and each.kind != "collective"]
    members = {each.number: LeftWork() for each in touching}
    trained = sum(each.kind == "product" for each in touching) > 2 * len(products)
    causal = any(_is_causal(given, number, space) for number in members)
    for first in products:
        flops = 2 * first.flops // (2 if causal else 1)
        members[first.number] = LeftWork(flops, "attention half")
        if trained:
            values = next(reader for reader in _consumers(given, first, space) if given[reader].kind == "product")
            members[values] = LeftWork(int(_BACKWARD * flops), "attention_backward half")
    return members


def _scores(array: Array) -> tuple[int, int, int] | None:
    """Return elements, queries and keys of an array that can be scores of attention."""
    if len(array.shape) < 3 or array.dtype not in HALF or min(array.shape[-2:]) < _FEWEST_SCORES:
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


def _touches(instruction: ModuleInstruction, space: tuple[int, int, int]) -> bool:
    return any(_is_like(array, space) for array in (*instruction.takes, *instruction.gives))


def _consumers(given: Sequence[ModuleInstruction], first: ModuleInstruction, space: tuple[int, int, int]) -> list[int]:
    """Return what scores go through, and nothing else as large, up to the product that reads them last."""
    found = {first.number}
    for instruction in given[first.number + 1 :]:
        makers = [maker for array in instruction.takes if _is_like(array, space) for maker in array.makers]
        rests = any(maker in found and given[maker].kind != "product" for maker in makers)
        if makers and found.issuperset(makers) and (rests or first.number in makers):
            found.add(instruction.number)
    return sorted(found - {first.number})


def _is_softmax(given: Sequence[ModuleInstruction], first: ModuleInstruction, space: tuple[int, int, int]) -> bool:
    """Return whether scores become weights: exponentials, sums over a row, and a product that takes the result."""
    behind = [given[at] for at in _consumers(given, first, space)]
    between = [instruction for instruction in behind if instruction.kind != "product"]
    body = frozenset[str]().union(*(instruction.body for instruction in between))
    weighs = any(
        instruction.kind == "product" and all(first.number not in array.makers for array in instruction.takes)
        for instruction in behind
    )
    return weighs and "exponential" in body and "reduce" in body


def _is_causal(given: Sequence[ModuleInstruction], number: int, space: tuple[int, int, int]) -> bool:
    instruction = given[number]
    if {"iota", "compare", "select"} <= instruction.body:
        return True
    masks = [array for array in instruction.takes if array.dtype == "bool" and array.shape[-2:] == space[1:]]
    makers = [given[maker] for mask in masks for maker in mask.makers]
    return any(not maker.takes and {"iota", "compare"} <= maker.body for maker in makers)


def _dense_scatter(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Zeros, a few elements scattered into them where they lie, and what reads all of it."""
    for instruction in given:
        targets = [array for array in instruction.takes if "scatter" in instruction.body and array.makers]
        for zeros in {given[maker].number for array in targets for maker in array.makers if not given[maker].takes}:
            whole = given[zeros].gives[0]
            written = sum(array.elements for array in instruction.gives)
            if whole.nbytes < _DENSE_BYTES or written * _FEW > whole.elements:
                continue
            parts = {zeros: LeftWork(), instruction.number: LeftWork()}
            for reader in instruction.readers:
                if given[reader].kind in ("elementwise", "reduction", "movement"):
                    read = sum(a.nbytes for a in given[reader].takes if instruction.number in a.makers)
                    parts[reader] = LeftWork(nbytes=given[reader].nbytes - read)
            yield Case("dense scatter", parts)


def _loop_work(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Products in a loop that need nothing of the iteration before, with what only they read."""
    for loop in dict.fromkeys(instruction.loop for instruction in given if instruction.trips >= _LEAST_TRIPS):
        free = [instruction for instruction in given if instruction.loop == loop and not instruction.needs_turn]
        parts = {each.number: _at_once(each) for each in free if each.kind == "product"}
        count = len(parts)
        for each in reversed(free) if parts else ():
            if each.readers and parts.keys() >= {*each.readers}:
                parts.setdefault(each.number, LeftWork())
        if parts:
            yield Case("loop work", parts, count)


def _at_once(product: ModuleInstruction) -> LeftWork:
    """Return what is left of a product that one for all iterations replaces: its result is written, and read again."""
    written = sum(array.nbytes for array in product.gives)
    return LeftWork(product.flops, _rate(product), 3 * written // max(_parts(product), 1))


def _rate(instruction: ModuleInstruction) -> str:
    half = any(array.dtype in HALF for array in instruction.takes)
    return "product half" if half else "product fp32" if instruction.precision == "HIGHEST" else "product tf32"


def _products(given: Sequence[ModuleInstruction]) -> list[ModuleInstruction]:
    """Return the products whose operations are known."""
    return [instruction for instruction in given if instruction.kind == "product" and instruction.flops]


def _float32(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Products of float32 for which full precision is asked."""
    for product in _products(given):
        wide = {array.dtype for array in product.takes} == {"float32"}
        if wide and product.precision == "HIGHEST":
            left = LeftWork(product.flops, "product tf32", product.nbytes)
            yield Case("float32 product", {product.number: left})


def _odd(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Products in half precision of which a size is wide and no multiple of 8."""
    for product in _products(given):
        half = [array.shape[-2:] for array in (*product.takes, *product.gives) if array.dtype in HALF]
        if any(size > _WIDE and size % _ALIGNED for sizes in half for size in sizes):
            left = LeftWork(product.flops, "product half", product.nbytes)
            yield Case("odd product", {product.number: left})


def _widened(instruction: ModuleInstruction) -> Array | None:
    """Return the codes that a pass turns into as many wide numbers, and does nothing else with."""
    wide = instruction.gives[0] if len(instruction.gives) == 1 else None
    if wide is None or wide.dtype in _CODES or not instruction.body <= _ROUNDING:
        return None
    return next(
        (array for array in instruction.takes if array.dtype in _CODES and array.elements == wide.elements), None
    )


def _of_codes(given: Sequence[ModuleInstruction], array: Array) -> Array | None:
    """Return the codes that an operand is, or was before a pass of its own."""
    if array.dtype in _CODES:
        return array
    return _widened(given[array.makers[0]]) if len(array.makers) == 1 else None


def _wide_products(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Products at full width whose operands are both codes; or one is, where most products are of codes."""
    products = [product for product in _products(given) if product.multiplies]
    wide = [product for product in products if product.multiplies not in _CODES]
    mostly_narrow = 2 * sum(product.flops for product in wide) < sum(product.flops for product in products)
    for product in wide:
        operands = [(array, codes) for array in product.takes if (codes := _of_codes(given, array)) is not None]
        if len(operands) + mostly_narrow >= 2 and len({_CODES[codes.dtype] for _, codes in operands}) == 1:
            yield Case("wide product", _as_codes(given, product, operands))


def _as_codes(
    given: Sequence[ModuleInstruction], product: ModuleInstruction, operands: Sequence[tuple[Array, Array]]
) -> dict[int, LeftWork]:
    """Return what is left of a product, and of what widens its operands for it alone, where it multiplies codes."""
    moved = sum(array.nbytes for array in (*(codes for _, codes in operands), *product.gives))
    makers = (array.makers[0] for array, codes in operands if codes is not array)
    passes = {maker: LeftWork() for maker in makers if given[maker].readers == [product.number]}
    return {product.number: LeftWork(product.flops, f"product {_CODES[operands[0][1].dtype]}", moved), **passes}


def _dequantised(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Codes from outside that are widened for products, in a pass of its own."""
    for instruction in given:
        codes = _widened(instruction)
        if codes is not None and not codes.makers and _is_for_products(given, instruction):
            yield Case("dequantised weight", {instruction.number: LeftWork()})


def _is_for_products(given: Sequence[ModuleInstruction], instruction: ModuleInstruction) -> bool:
    """Return whether products alone read what a pass over a large array gives."""
    kinds = {given[reader].kind for reader in instruction.readers}
    return bool(kinds) and kinds <= {"product", "convolution"} and instruction.nbytes >= _LEAST_COPIED


def _transposed(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Codes from outside that are turned for products, which read one order: in a pass, or in the product's kernel."""
    for instruction in () if any(instruction.trains for instruction in given) else given:
        outside = [array for array in instruction.takes if array.dtype in _CODES and not array.makers]
        if _turns(instruction) and len(outside) == len(instruction.takes) and _is_for_products(given, instruction):
            yield Case("transposed weight", {instruction.number: LeftWork()})
        elif any(_is_turned_in(instruction, array) for array in outside):
            rate = f"product {_CODES[instruction.multiplies]}"
            left = LeftWork(instruction.flops, rate, instruction.nbytes)
            yield Case("transposed weight", {instruction.number: left})


def _turns(instruction: ModuleInstruction) -> bool:
    """Return whether an instruction writes an array in another order, and does nothing else."""
    return instruction.kind == "movement" and instruction.body <= _MOVES and bool(instruction.body & _TURNS)


def _is_turned_in(product: ModuleInstruction, array: Array) -> bool:
    """Return whether a product of codes that XLA generated turns an array, as it sums along the first axis."""
    if product.multiplies not in _CODES or len(product.gives) != 1 or len(array.shape) < 2:
        return False
    generated = product.library.startswith("__triton") and "transpose" in product.body
    summed = product.flops == 2 * product.gives[0].elements * array.shape[-2]
    return generated and summed and 2 * array.nbytes >= _LEAST_COPIED


def _round_trips(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Numbers that a pass rounds to codes and widens again, of which nothing but that is left; not where one trains."""
    for instruction in () if any(instruction.trains for instruction in given) else given:
        at_its_ends = {array.dtype for array in (*instruction.takes, *instruction.gives)}
        hidden = instruction.dtypes & _CODES.keys() and not at_its_ends & _CODES.keys()
        if hidden and instruction.body <= _ROUNDING and _is_for_products(given, instruction):
            yield Case("round trip", {instruction.number: LeftWork()})


def _partials(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Partial sums of a product, in float32, that one instruction adds up."""
    for instruction in given:
        parts = _parts(instruction)
        if not parts or len(instruction.readers) != 1:
            continue
        reader = given[instruction.readers[0]]
        sums = any(array.elements * parts == instruction.gives[0].elements for array in reader.gives)
        if sums and "reduce" in reader.body:
            own = sum(array.nbytes for array in reader.takes if instruction.number not in array.makers)
            left = own + sum(array.nbytes for array in reader.gives)
            yield Case("partial sums", {reader.number: LeftWork(nbytes=left)})


def _parts(instruction: ModuleInstruction) -> int:
    """Return into how many parts the sum of a product may be split; 0: it is not."""
    result = instruction.gives[0] if instruction.kind == "product" and instruction.gives else None
    if result is None or result.dtype != "float32" or len(result.shape) < 3:
        return 0
    parts = result.shape[0]
    return parts if 1 < parts <= _MOST_PARTS and any(parts in array.shape for array in instruction.takes) else 0


def _layouts(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Copies into another layout, in front of a convolution or behind one."""
    for instruction in given:
        if not _turns(instruction) or instruction.nbytes < _LEAST_COPIED:
            continue
        makers = [given[maker] for array in instruction.takes for maker in array.makers]
        if any(one.kind == "convolution" for one in (*makers, *(given[reader] for reader in instruction.readers))):
            yield Case("layout copy", {instruction.number: LeftWork()})


def _sole(given: Sequence[ModuleInstruction], reader: ModuleInstruction) -> Iterator[tuple[ModuleInstruction, Array]]:
    """Yield each large array that only `reader` reads, with what made it, in the same loop or in none."""
    for array in reader.takes:
        maker = given[array.makers[0]] if len(array.makers) == 1 else reader
        alone = set(maker.readers) == {reader.number} and not maker.gives_result
        if alone and maker.loop == reader.loop and array.nbytes >= _DENSE_BYTES and not reader.body & _IN_PLACE:
            yield maker, array


def _boundary(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Yield what reads a large array that XLA generated for it alone, in a pass of its own."""
    for reader in given:
        makers = [(maker, array) for maker, array in _sole(given, reader) if maker.kind in _OWN]
        read = sum(array.nbytes for maker, array in makers if not maker.body & _IN_PLACE)
        if reader.kind in _OWN and read:
            yield Case("fusion boundary", {reader.number: LeftWork(nbytes=reader.nbytes - read)})


def _epilogue(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Yield each pass over what a product of cuBLAS gives to nothing else, which reads nothing as large besides."""
    for reader in given:
        for maker, array in _sole(given, reader) if reader.kind == "elementwise" else ():
            besides = sum(each.nbytes for each in reader.takes) - array.nbytes
            same = [each.elements for each in reader.gives] == [array.elements]
            if maker.kind == "product" and "cublas" in maker.library and same and besides * _SIDE <= array.nbytes:
                yield Case("epilogue outside", {reader.number: LeftWork()})


DETECTORS: Final[tuple[Callable[[Sequence[ModuleInstruction]], Iterator[Case]], ...]] = (
    *(_attention, _dense_scatter, _loop_work, _float32, _odd, _wide_products, _dequantised, _round_trips),
    _transposed,
    *(_partials, _layouts, _boundary, _epilogue),
)


def cases(given: Sequence[ModuleInstruction]) -> Iterator[Case]:
    """Yield all cases in a module, of which no two have an instruction in common."""
    taken = set[int]()
    for detect in DETECTORS:
        for case in detect(given):
            if taken.isdisjoint(case.parts):
                taken.update(case.parts)
                yield case
