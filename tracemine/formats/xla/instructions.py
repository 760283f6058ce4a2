"""What the instructions of a module are: their class, by what they compute, and the order in which they start work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tracemine.formats.xla.hlo import Instruction, Module, Shape

_SILENT: Final = frozenset(  # start no work
    (
        *("parameter", "constant", "bitcast", "get-tuple-element", "tuple", "opt-barrier", "after-all", "domain"),
        *("add-dependency", "partition-id", "replica-id", "async-done", "async-update", "copy-done", "send-done"),
        *("recv-done", "all-reduce-done", "all-gather-done", "collective-permute-done"),
    )
)
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
_AROUND: Final = frozenset({"while", "call", "async-start", "conditional"})


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
    precision: str  # of a product, as configured: `DEFAULT`, `HIGHEST`


def items_of(module: Module) -> list[Item]:
    """Return what starts work in the order of the schedule; a loop's body stands there once."""
    found = list[Item]()
    _collect(module, module.entry, 0, found, [module.entry])
    return found


def _collect(module: Module, computation: int, loop: int, found: list[Item], seen: list[int]) -> None:
    """Add what a computation starts; each is called from one place, and `seen` once."""
    for each in module.in_order(computation):
        if each.opcode in _SILENT:
            continue
        if each.opcode not in _AROUND:
            found.append(Item(each, loop))
            continue
        for called in each.called[:1] if each.opcode == "while" else each.called:
            if called not in seen:
                seen.append(called)
                _collect(module, called, each.id if each.opcode == "while" else loop, found, seen)


def trips(loop: Instruction) -> int:
    """Return how many iterations a `while` has; 0 where that is not known."""
    known = loop.config.get("known_trip_count")
    text = str(known.get("n", "")) if isinstance(known, dict) else ""
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def body_of(module: Module, each: Instruction) -> Body:
    """Return what an instruction computes, by what is in it and never by its name."""
    inside = list(_inside(module, each))
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
    return Body(kind, opcodes, library, flops, _precision(each) or max((one.precision for one in products), default=""))


def _inside(module: Module, each: Instruction) -> Iterator[Instruction]:
    """Yield the instructions of a fusion, or the one alone; computations that reductions apply are not looked into."""
    left, seen = [each], set[int]()
    while left:
        one = left.pop()
        inner = module.computations.get(one.called[0]) if one.opcode == "fusion" and one.called else None
        if inner is None or inner.id in seen:
            yield one
        else:
            seen.add(inner.id)
            left += inner.instructions


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
