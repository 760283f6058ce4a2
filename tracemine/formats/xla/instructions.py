"""What the instructions of a module are: their class, by what they compute, and the order in which they start work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tracemine.formats.xla.hlo import Index, Instruction, Module, Shape

_SILENT: Final = frozenset(  # start no work
    (
        *("parameter", "constant", "bitcast", "get-tuple-element", "tuple", "opt-barrier", "after-all", "domain"),
        *("add-dependency", "partition-id", "replica-id", "async-done", "async-update", "copy-done", "send-done"),
        *("recv-done", "all-reduce-done", "all-gather-done", "collective-permute-done"),
    )
)
_PASSING: Final = frozenset({"bitcast", "opt-barrier", "copy-done", "domain", "add-dependency", "all-reduce-done"})
_DONE: Final = frozenset({"async-done", "async-update"})
_COLLECTIVES: Final = frozenset(
    (
        *("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "collective-broadcast"),
        *("ragged-all-to-all", "all-reduce-start", "all-gather-start", "collective-permute-start", "send", "recv"),
    )
)
_WIRING: Final = frozenset({"parameter", "constant", "bitcast", "get-tuple-element", "tuple", "iota"})
_MOVING: Final = frozenset(
    (
        *("copy", "transpose", "reshape", "broadcast", "concatenate", "slice", "pad", "convert", "reverse"),
        *("dynamic-slice", "dynamic-update-slice", "copy-start"),
    )
)
_REDUCING: Final = frozenset({"reduce", "reduce-window", "sort", "scatter", "select-and-scatter"})
_PRODUCTS: Final = {"dot": "product", "convolution": "convolution", "ragged-dot": "product"}
_TARGETS: Final = (  # what a custom call's target holds: its class; the first that fits
    ("fmha", "attention"), ("attn", "attention"), ("attention", "attention"), ("$conv", "convolution"),
    ("cublas", "product"), ("matmul", "product"), ("gemm", "product"), ("__cudnn$norm", "reduction"),
    ("topk", "reduction"), ("sort", "reduction"), ("collective", "collective"), ("nccl", "collective"),
)  # fmt: skip
CLASSES: Final = (
    *("product", "convolution", "attention", "reduction", "elementwise", "movement", "collective", "custom"),
)
LIBRARY: Final = ("__cublas", "__cudnn", "__cusolver", "__cufft")  # of targets, and of kinds of fusions
_UPDATES: Final = {"dynamic-update-slice": 1, "scatter": -1}  # which operand is written into the first one
_PARTIAL: Final = frozenset({"slice", "dynamic-slice", "gather"})
_MOST_ITEMS: Final = 1 << 20
_DEEPEST: Final = 64


class Item(Struct, frozen=True):
    """An instruction that starts work, at its place in the schedule."""

    instruction: Instruction
    loop: int  # id of the innermost `while` around it; 0: none


class Body(Struct, frozen=True):
    """What an instruction computes."""

    kind: str  # of CLASSES
    opcodes: frozenset[str]
    library: str  # target of a custom call, or kind of a fusion's backend; "" where XLA's own emitter wrote it
    flops: int  # of products; 0: none
    updates: int  # elements that it writes into an operand's memory; −1: it makes all that it gives
    precision: str  # of a product, as configured: `DEFAULT`, `HIGHEST`


def items_of(module: Module) -> list[Item]:
    """Return what starts work in the order of the schedule; a loop's body stands there once."""
    found = list[Item]()
    _collect(module, module.entry, 0, found, 0)
    return found


def _collect(module: Module, computation: int, loop: int, found: list[Item], deep: int) -> None:
    for each in module.in_order(computation):
        if each.opcode in _SILENT or len(found) > _MOST_ITEMS or deep > _DEEPEST:
            continue
        if each.opcode == "while":
            for called in each.called[:1]:
                _collect(module, called, each.id, found, deep + 1)
        elif each.opcode in ("call", "async-start", "conditional"):
            for called in each.called:
                _collect(module, called, loop, found, deep + 1)
        else:
            found.append(Item(each, loop))


def trips(loop: Instruction) -> int:
    """Return how many iterations a `while` has; 0 where that is not known."""
    known = loop.config.get("known_trip_count")
    text = str(known.get("n", "")) if isinstance(known, dict) else ""
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def body_of(module: Module, each: Instruction) -> Body:
    """Return what an instruction computes, by what is in it and never by its name."""
    inside = list(_inside(module, each, 0))
    opcodes = frozenset(one.opcode for one in inside)
    library = each.target or _backend(each)
    products = [one for one in inside if one.opcode in _PRODUCTS]
    flops = sum(_dot_flops(module, one) for one in products)
    if each.opcode == "custom-call":
        lower = each.target.lower()
        kind = next((kind for part, kind in _TARGETS if part in lower), "custom")
        if kind == "product":
            flops = _call_flops(module, each)
    elif opcodes & _COLLECTIVES or "collective" in library:
        kind = "collective"
    elif products:
        kind = max(_PRODUCTS[one.opcode] for one in products)
    elif opcodes & _REDUCING:
        kind = "reduction"
    else:
        kind = "movement" if opcodes - _WIRING <= _MOVING else "elementwise"
    return Body(kind, opcodes, library, flops, _updated(module, each), _precision(each))


def _inside(module: Module, each: Instruction, deep: int) -> Iterator[Instruction]:
    """Yield the instructions of a fusion, or the one alone; computations that reductions apply are not looked into."""
    if each.opcode != "fusion" or deep > _DEEPEST:
        yield each
        return
    for called in each.called[:1]:
        computation = module.computations.get(called)
        for one in () if computation is None else computation.instructions:
            yield from _inside(module, one, deep + 1)


def _backend(each: Instruction) -> str:
    fusion = each.config.get("fusion_backend_config") if each.fusion_kind == "kCustom" else None
    return str(fusion.get("kind", "")) if isinstance(fusion, dict) else ""


def _precision(each: Instruction) -> str:
    gemm = each.config.get("gemm_backend_config")
    given = gemm.get("precision_config") if isinstance(gemm, dict) else None
    operands = given.get("operand_precision") if isinstance(given, dict) else None
    return str(operands[0]) if isinstance(operands, list) and operands else ""


def _dot_flops(module: Module, each: Instruction) -> int:
    first = module.instructions.get(each.operands[0]) if each.operands else None
    if first is None or each.opcode != "dot":
        return 0
    return 2 * each.shape.elements * _extent(first.shape, each.contracting[0])


def _call_flops(module: Module, each: Instruction) -> int:
    gemm = each.config.get("gemm_backend_config")
    dims = gemm.get("dot_dimension_numbers") if isinstance(gemm, dict) else None
    first = module.instructions.get(each.operands[0]) if each.operands else None
    if not isinstance(dims, dict) or first is None or not each.shape.leaves:
        return 0
    given = dims.get("lhs_contracting_dimensions")
    contracting = tuple(int(text) for text in map(str, given) if text.isdecimal()) if isinstance(given, list) else ()
    return 2 * each.shape.leaves[0][1].elements * _extent(first.shape, contracting)


def _extent(shape: Shape, dimensions: tuple[int, ...]) -> int:
    return math.prod(shape.dims[at] for at in dimensions if at < len(shape.dims))


def _updated(module: Module, each: Instruction) -> int:
    """Return how many elements an instruction writes, where it writes into an operand's memory."""
    root = _root(module, each)
    if root is None or root.opcode not in _UPDATES or not _in_place(module, each):
        return -1
    update = module.instructions.get(root.operands[_UPDATES[root.opcode]]) if len(root.operands) > 1 else None
    return -1 if update is None else update.shape.elements


def _root(module: Module, each: Instruction) -> Instruction | None:
    for _ in range(_DEEPEST):
        if each.opcode == "fusion" and each.called and each.called[0] in module.computations:
            inner = module.instructions.get(module.computations[each.called[0]].root)
        elif each.opcode in ("bitcast", "copy") and each.operands:
            inner = module.instructions.get(each.operands[0])
        else:
            return each
        if inner is None:
            return None
        each = inner
    return None


def _in_place(module: Module, each: Instruction) -> bool:
    """Return whether a result lies where an operand does; where no buffers are recorded, as the opcode allows."""
    place = module.places.get((each.id, ()))
    if place is None:
        return not module.places
    given = [source(module, operand, ()) for operand in each.operands]
    if any(module.places.get(one) == place for one in given):
        return True
    return any(  # what a loop carries has its place by another name, and is updated where it lies
        one not in module.places and module.instructions[one[0]].opcode == "parameter" for one in given
    )


def source(module: Module, instruction: int, index: Index) -> tuple[int, Index]:
    """Return which instruction defines a value, and at which place of its result, through what only passes it on.

    Loops and their parameters stay as they are: what they hold depends on the iteration.
    """
    for _ in range(1 << 10):
        each = module.instructions.get(instruction)
        if each is None or not each.operands:
            break
        if each.opcode in _PASSING:
            instruction = each.operands[0]
        elif each.opcode == "get-tuple-element":
            instruction, index = each.operands[0], (each.tuple_index, *index)
        elif each.opcode == "tuple" and index and 0 <= index[0] < len(each.operands):
            instruction, index = each.operands[index[0]], index[1:]
        elif each.opcode in _DONE:
            instruction, index = each.operands[0], (1, *index)
        else:
            break
    return instruction, index


class Part(Struct, frozen=True):
    """Which elements of an operand are read: where the first lies, and their shape and strides."""

    offset: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]


def read_part(module: Module, each: Instruction, position: int) -> Part | None:
    """Return the part of an operand that is read; None: all of it."""
    if each.opcode != "fusion":
        return _sliced([each], position, module, each)
    computation = module.computations.get(each.called[0]) if each.called else None
    given = [] if computation is None else computation.instructions
    parameter = next((one for one in given if one.opcode == "parameter" and one.parameter == position), None)
    for _ in range(_DEEPEST):
        if parameter is None:
            return None
        users = [module.instructions[user] for user in module.users.get(parameter.id, ())]
        if len(users) == 1 and users[0].opcode == "bitcast":
            parameter = users[0]
            continue
        if not users or any(user.opcode not in (*_PARTIAL, *_UPDATES) for user in users):
            return None
        places = {user.operands.index(parameter.id) for user in users}
        return _sliced(users, 0, module, parameter) if places == {0} else None
    return None


def _sliced(users: list[Instruction], position: int, module: Module, of: Instruction) -> Part | None:
    """Return what slices, lookups and updates read of the array that they take first."""
    if position or any(user.opcode not in (*_PARTIAL, *_UPDATES) for user in users):
        return None
    first = users[0]
    whole = of.shape if of is not first else module.instructions[first.operands[0]].shape
    if len(users) == 1 and first.starts and len(first.starts) == len(whole.dims):
        strides = whole.strides
        offset = sum(start * stride for start, stride in zip(first.starts, strides, strict=True))
        if not any(step > 1 for step in first.steps):
            return Part(offset, first.shape.dims, strides)
    count = 0
    for user in users:
        update = _UPDATES.get(user.opcode)
        part = user if update is None else module.instructions.get(user.operands[update])
        count += whole.elements if part is None else part.shape.elements
    return Part(0, (count,), (1,)) if count < whole.elements else None
