"""What the instructions of a module are: their class, by what they compute, and the order in which they start work."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct

from tracemine.formats.xla.hlo import HloInstruction, HloModule
from tracemine.formats.xla.values import GivenArray, TakenArray, Values

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


class InstructionBody(Struct, frozen=True):
    """What an instruction computes."""

    kind: str  # of CLASSES
    opcodes: frozenset[str]
    library: str  # target of a custom call, or kind of a fusion's backend; "" where XLA's own emitter wrote it
    flops: int  # of products; 0: none
    precision: str  # of a product, as configured: `DEFAULT`, `HIGHEST`
    dtypes: frozenset[str]  # of the arrays in it
    multiplies: str  # type of a product's operands, the wider where they differ; "": none, or not known


class ScheduledInstruction(Struct, frozen=True, dict=True):
    """An instruction that starts work, at its place in the schedule of its module."""

    program: int  # number of its module
    values: Values
    instruction: HloInstruction
    loop: int  # id of the innermost `while` around it; 0: none

    @cached_property
    def body(self) -> InstructionBody:
        """Return what it computes."""
        return body_of(self.values.module, self.instruction)

    @cached_property
    def reads(self) -> list[TakenArray]:
        """Return what it takes."""
        return self.values.reads(self.instruction)

    @cached_property
    def results(self) -> list[GivenArray]:
        """Return what it gives."""
        return self.values.results(self.instruction)


def items_of(module: HloModule, program: int = 0) -> list[ScheduledInstruction]:
    """Return what starts work in the order of the schedule; a loop's body stands there once."""
    values, items, seen = Values(module), list[ScheduledInstruction](), {module.entry}
    left = [(0, iter(module.in_order(module.entry)))]  # loops, and what is still to come in them
    while left:
        loop, following = left[-1]
        one = next(following, None)
        if one is None:
            left.pop()
        elif one.opcode in _AROUND:
            is_loop = one.opcode == "while"
            called = dict.fromkeys(each for each in one.called[: 1 if is_loop else None] if each not in seen)
            seen.update(called)  # each is called from one place
            left += [(one.id if is_loop else loop, iter(module.in_order(each))) for each in reversed(called)]
        elif one.opcode not in _SILENT:
            items.append(ScheduledInstruction(program, values, one, loop))
    return items


def trips(loop: HloInstruction) -> int:
    """Return how many iterations a `while` has; 0 where that is not known."""
    text = str(loop.setting("known_trip_count", "n"))
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def body_of(module: HloModule, instruction: HloInstruction) -> InstructionBody:
    """Return what an instruction computes, by what is in it and never by its name."""
    inside = list(_inside(module, instruction))
    opcodes = frozenset(inner.opcode for inner in inside)
    library = instruction.target or _custom_fusion(instruction)
    products = [inner for inner in inside if inner.opcode in _PRODUCTS]
    flops = sum(_flops(module, inner, inner.dot[0]) for inner in products if inner.opcode == "dot")
    kind = _kind(instruction, opcodes, library)
    if instruction.opcode == "custom-call" and kind == "product":
        flops = _call_flops(module, instruction)
    precision = _asked_precision(instruction) or max((inner.precision for inner in products), default="")
    dtypes = frozenset(leaf.dtype for inner in inside for _, leaf in inner.shape.leaves)
    multiplies = _multiplied(module, products or [instruction]) if kind in _PRODUCTS.values() else ""
    return InstructionBody(kind, opcodes, library, flops, precision, dtypes, multiplies)


def _custom_fusion(instruction: HloInstruction) -> str:
    """Return what makes a fusion that XLA does not emit itself; "": of any other instruction."""
    custom = instruction.fusion_kind == "kCustom"
    return str((custom and instruction.setting("fusion_backend_config", "kind")) or "")


def _asked_precision(instruction: HloInstruction) -> str:
    asked = instruction.setting("gemm_backend_config", "precision_config", "operand_precision")
    return str(asked[0]) if isinstance(asked, list) and asked else ""


def _multiplied(module: HloModule, products: list[HloInstruction]) -> str:
    operands = [module.instructions.get(operand) for each in products for operand in each.operands[:2]]
    return max(((one.shape.bits, one.shape.dtype) for one in operands if one is not None), default=(0, ""))[1]


def _kind(instruction: HloInstruction, opcodes: frozenset[str], library: str) -> str:
    if instruction.opcode == "custom-call":
        lower = instruction.target.lower()
        return next((kind for part, kind in _TARGETS if part in lower), "custom")
    if opcodes & _COLLECTIVES or "collective" in library:
        return "collective"
    products = [_PRODUCTS[opcode] for opcode in opcodes if opcode in _PRODUCTS]
    if products:
        return max(products)
    if opcodes & _REDUCING:
        return "reduction"
    return "movement" if opcodes - _WIRING <= _MOVING else "elementwise"


def _inside(module: HloModule, instruction: HloInstruction) -> Iterator[HloInstruction]:
    """Yield the instructions of a fusion, or the one alone; computations that reductions apply are not looked into."""
    left, seen = [instruction], set[int]()
    while left:
        taken = left.pop()
        inner = module.called(taken) if taken.opcode == "fusion" else None
        if inner is None or inner.id in seen:
            yield taken
        else:
            seen.add(inner.id)
            left += inner.instructions


def _call_flops(module: HloModule, instruction: HloInstruction) -> int:
    given = instruction.setting("gemm_backend_config", "dot_dimension_numbers", "lhs_contracting_dimensions")
    if not isinstance(given, list):
        return 0
    return _flops(module, instruction, [int(text) for text in map(str, given) if text.isdecimal()])


def _flops(module: HloModule, instruction: HloInstruction, summed: Iterable[int]) -> int:
    first = module.instructions.get(instruction.operands[0]) if instruction.operands else None
    if first is None or not instruction.shape.leaves:
        return 0
    extent = math.prod(first.shape.dims[at] for at in summed if at < len(first.shape.dims))
    return 2 * instruction.shape.leaves[0][1].elements * extent
