"""An HLO module as XLA optimised it: computations, instructions, shapes, schedule, and which buffers results share.

What a module's proto holds stands in https://github.com/openxla/xla/blob/main/xla/service/hlo.proto; literals are
stepped over undecoded: an array that a jitted function closes over is in the file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from tracemine.formats.xla.wire import INT, SPAN, TEXT, Span, read, table

_DTYPES: Final = {  # PrimitiveType: name, bits
    1: ("pred", 8), 2: ("s8", 8), 3: ("s16", 16), 4: ("s32", 32), 5: ("s64", 64), 6: ("u8", 8), 7: ("u16", 16),
    8: ("u32", 32), 9: ("u64", 64), 10: ("f16", 16), 11: ("f32", 32), 12: ("f64", 64), 15: ("c64", 64),
    16: ("bf16", 16), 18: ("c128", 128), 19: ("f8e5m2", 8), 20: ("f8e4m3fn", 8), 21: ("s4", 4), 22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e4m3fnuz", 8), 28: ("f8e4m3", 8), 29: ("f8e3m4", 8),
    32: ("f4e2m1fn", 4), 33: ("f8e8m0fnu", 8),
}  # fmt: skip
_TUPLE = 13
_INSTRUCTION = table(
    name=(1, TEXT), opcode=(2, TEXT), shape=(3, SPAN), metadata=(7, SPAN), parameter=(9, INT), fusion_kind=(11, TEXT),
    tuple_index=(13, INT), slices=(17, [table(start=(1, INT), limit=(2, INT), step=(3, INT))]), target=(28, TEXT),
    dot=(30, table(lhs_contracting=(1, [INT]))), id=(35, INT), operands=(36, [INT]), called=(38, [INT]),
    configured=(43, SPAN), precision=(51, table(operands=(1, [INT]))),
)  # fmt: skip
_COMPUTATION = table(instructions=(2, [_INSTRUCTION]), id=(5, INT), root=(6, INT))
_FRAMES = table(
    files=(1, [TEXT]),
    functions=(2, [TEXT]),
    locations=(3, [table(file=(1, INT), function=(2, INT), line=(3, INT))]),
    frames=(4, [table(location=(1, INT), parent=(2, INT))]),
)
_MODULE = table(
    name=(1, TEXT),
    computations=(3, [SPAN]),
    entry=(6, INT),
    schedule=(7, table(entries=(1, [table(computation=(1, INT), value=(2, table(ids=(1, [INT]))))]))),
    frames=(17, _FRAMES),
)
_BUFFERS = table(
    logical=(1, [table(id=(1, INT), defined=(3, table(index=(3, [INT]), instruction=(4, INT))))]),
    allocations=(3, [table(index=(1, INT), assigned=(9, [table(logical=(1, INT), offset=(2, INT))]))]),
)
_PROTO = table(module=(1, _MODULE), buffers=(3, _BUFFERS))
_METADATA = table(op_name=(2, TEXT), file=(3, TEXT), line=(4, INT), kernel=(12, TEXT), frame=(15, INT))
_SHAPE = table(type=(2, INT), dims=(3, [INT]), members=(4, [SPAN]), layout=(5, table(minor_to_major=(1, [INT]))))
_PRECISIONS: Final = ("DEFAULT", "HIGH", "HIGHEST")
_LARGEST = 1 << 44  # elements: what has more is damage
_DEEPEST = 64  # tuples in tuples, and callers of a line; what is deeper is damage
Index = tuple[int, ...]  # which member of a tuple, and of that; () is the whole


class Shape(Struct, frozen=True, dict=True):
    """An array, or a tuple of shapes.

    >>> shape = Shape("f32", 32, (2, 3, 4), (1, 0, 2))
    >>> shape.elements, shape.strides
    (24, (3, 1, 6))
    >>> [index for index, _ in Shape("", 0, (), (), (shape,)).leaves]
    [(0,)]
    """

    dtype: str
    bits: int  # of an element
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    members: tuple[Shape, ...] = ()

    @cached_property
    def elements(self) -> int:
        """Return how many elements an array has."""
        return math.prod(self.dims) if self.bits else 0

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Return the stride of each dimension, in elements."""
        strides, step = [1] * len(self.dims), 1
        for dimension in self.minor_to_major or range(len(self.dims) - 1, -1, -1):
            if 0 <= dimension < len(strides):
                strides[dimension] = step
                step *= self.dims[dimension]
        return tuple(strides)

    @cached_property
    def leaves(self) -> tuple[tuple[Index, Shape], ...]:
        """Return the arrays in it, each with its place."""
        if not self.members:
            return (((), self),) if self.bits else ()
        return tuple(((at, *index), leaf) for at, member in enumerate(self.members) for index, leaf in member.leaves)


class Origin(Struct, frozen=True):
    """Where an instruction comes from: `frame` of the stack frame index, counted from 1, or `file` and `line`."""

    op_name: str
    file: str
    line: int
    kernel: str  # name of the kernel that computes it where XLA compiled equal bodies once, else ""
    frame: int


class HloInstruction(Struct, frozen=True, dict=True):
    """One instruction. Ids are unique in a module; newer ones hold the computation's in their upper half.

    What few are asked for is decoded when they are: of some thousand instructions in fusions it never is.
    """

    name: str
    opcode: str
    shape: Shape
    metadata: Span | None
    parameter: int
    fusion_kind: str
    tuple_index: int
    slices: Sequence[tuple[int, int, int]]  # start, limit and step in each dimension
    target: str
    dot: tuple[Sequence[int]]  # the dimensions of its first operand that it sums over
    id: int
    operands: Sequence[int]
    called: Sequence[int]
    configured: Span | None
    asked: tuple[Sequence[int]]  # the precision of each operand
    computation: int
    data: memoryview  # of the file

    @cached_property
    def origin(self) -> Origin:
        """Return where it comes from."""
        return Origin(*read(self.data, self.metadata or (0, 0), _METADATA))

    @property
    def precision(self) -> str:
        """Return the precision of a dot as the program asks for it; "": it does not."""
        highest = max(self.asked[0], default=-1)
        return _PRECISIONS[highest] if 0 <= highest < len(_PRECISIONS) else ""

    @cached_property
    def _config(self) -> Any:
        try:
            return msgspec.json.decode(self.data[slice(*(self.configured or (0, 0)))])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def setting(self, *keys: str) -> Any:
        """Return what the backend's configuration has by these keys, one in another; None: nothing, or no JSON."""
        found = self._config
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found


class Computation(Struct, frozen=True):
    """A computation: its instructions in the order they are written."""

    id: int
    instructions: tuple[HloInstruction, ...]
    root: int


class Frame(Struct, frozen=True):
    """One frame of a Python stack."""

    file: str
    function: str
    line: int


class HloModule(Struct, frozen=True, dict=True):
    """A module."""

    name: str
    entry: int
    computations: dict[int, Computation]
    sequences: dict[int, Sequence[int]]  # of a computation's id: ids of its instructions as they are executed
    frames: list[tuple[Frame, int]]  # each with its caller's number, counted from 1
    places: dict[tuple[int, Index], tuple[int, int]]  # of what an instruction defines: allocation and offset

    @cached_property
    def instructions(self) -> dict[int, HloInstruction]:
        """Return all instructions by id."""
        return {each.id: each for computation in self.computations.values() for each in computation.instructions}

    @cached_property
    def users(self) -> dict[int, list[HloInstruction]]:
        """Return of each instruction those that take it as an operand."""
        takers: dict[int, list[HloInstruction]] = {}
        for instruction in self.instructions.values():
            for operand in dict.fromkeys(instruction.operands):
                takers.setdefault(operand, []).append(instruction)
        return takers

    @cached_property
    def parameters(self) -> dict[tuple[int, int], HloInstruction]:
        """Return the parameters of all computations, by theirs and their number."""
        found = self.instructions.values()
        return {(each.computation, each.parameter): each for each in found if each.opcode == "parameter"}

    def in_order(self, computation: int) -> tuple[HloInstruction, ...]:
        """Return a computation's instructions as they are executed: as scheduled, which need not be as written."""
        written = self.computations.get(computation)
        if written is None:
            return ()
        scheduled = self.sequences.get(computation)
        if scheduled is None:
            return written.instructions
        own = {instruction.id: instruction for instruction in written.instructions}
        return tuple(own[id] for id in scheduled if id in own)

    def called(self, instruction: HloInstruction) -> Computation | None:
        """Return the first computation that an instruction calls."""
        return self.computations.get(instruction.called[0]) if instruction.called else None

    def stack(self, instruction: HloInstruction) -> list[Frame]:
        """Return the Python stack of an instruction, outermost first."""
        origin = instruction.origin
        found, at = list[Frame](), origin.frame
        while 0 < at <= len(self.frames) and len(found) < _DEEPEST:
            frame, at = self.frames[at - 1]
            found.append(frame)
        return found[::-1] or ([Frame(origin.file, "", origin.line)] if origin.file else [])


def module_of(data: memoryview, span: Span) -> HloModule:
    """Return the module of an `HloProto`. Raises InputError where the bytes are none."""
    (name, given, entry, (schedule,), frames), buffers = read(data, span, _PROTO)
    shapes: dict[bytes, Shape] = {}
    computations: dict[int, Computation] = {}
    for instructions, computation, root in (read(data, each, _COMPUTATION) for each in given):
        made = []
        for own_name, opcode, shape, *rest in instructions:
            written = data[slice(*(shape or (0, 0)))].tobytes()  # equal ones are read once
            if (known := shapes.get(written)) is None:
                known = shapes[written] = _shape(data, shape)
            made.append(HloInstruction(*(own_name, opcode, known, *rest, computation, data)))
        computations[computation] = Computation(computation, tuple(made), root)
    sequences = {computation: ids for computation, (ids,) in schedule}
    return HloModule(name, entry, computations, sequences, _frames(*frames), _places(*buffers))


def _shape(data: memoryview, span: Span | None, deep: int = 0) -> Shape:
    nothing = Shape("", 0, (), ())
    if span is None or deep > _DEEPEST:
        return nothing
    kind, dims, members, (minor_to_major,) = read(data, span, _SHAPE)
    if kind == _TUPLE:
        return Shape("", 0, (), (), tuple(_shape(data, each, deep + 1) for each in members))
    if min(dims, default=0) < 0 or math.prod(dims) > _LARGEST:
        return nothing
    return Shape(*_DTYPES.get(kind, ("", 0)), tuple(dims), tuple(minor_to_major))


def _frames(
    files: Sequence[str], functions: Sequence[str], locations: Sequence[tuple[int, int, int]], frames: Sequence[Index]
) -> list[tuple[Frame, int]]:
    texts = [{0: "", **dict(enumerate(each, 1))} for each in (files, functions)]
    nowhere = Frame("", "", 0)
    known = dict(
        enumerate((Frame(texts[0].get(file, ""), texts[1].get(of, ""), line) for file, of, line in locations), 1)
    )
    return [(known.get(location, nowhere), parent) for location, parent in frames]


def _places(logical: Sequence[Any], allocations: Sequence[Any]) -> dict[tuple[int, Index], tuple[int, int]]:
    defined = {number: (instruction, tuple(index)) for number, (index, instruction) in logical}
    return {
        defined[number]: (allocation, offset)
        for allocation, assigned in allocations
        for number, offset in assigned
        if number in defined
    }
