"""An HLO module as XLA optimised it: computations, instructions, shapes, schedule, and which buffers results share.

What a module's proto holds stands in https://github.com/openxla/xla/blob/main/xla/service/hlo.proto; literals are
stepped over undecoded: an array that a jitted function closes over is in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from tracemine.formats.xla.wire import Kind, Span, read, table

_DTYPES: Final = {  # PrimitiveType: name, bits
    1: ("pred", 8), 2: ("s8", 8), 3: ("s16", 16), 4: ("s32", 32), 5: ("s64", 64), 6: ("u8", 8), 7: ("u16", 16),
    8: ("u32", 32), 9: ("u64", 64), 10: ("f16", 16), 11: ("f32", 32), 12: ("f64", 64), 15: ("c64", 64),
    16: ("bf16", 16), 18: ("c128", 128), 19: ("f8e5m2", 8), 20: ("f8e4m3fn", 8), 21: ("s4", 4), 22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8), 24: ("f8e5m2fnuz", 8), 25: ("f8e4m3fnuz", 8), 28: ("f8e4m3", 8), 29: ("f8e3m4", 8),
    32: ("f4e2m1fn", 4), 33: ("f8e8m0fnu", 8),
}  # fmt: skip
_TUPLE, _TOKEN = 13, 17
_PROTO = table(module=(1, Kind.SPAN), buffers=(3, Kind.SPAN))
_MODULE = table(
    name=(1, Kind.TEXT), computations=(3, Kind.SPANS), id=(5, Kind.SIGNED), entry=(6, Kind.SIGNED),
    schedule=(7, Kind.SPAN), aliases=(8, Kind.SPAN), frames=(17, Kind.SPAN),
)  # fmt: skip
_COMPUTATION = table(name=(1, Kind.TEXT), instructions=(2, Kind.SPANS), id=(5, Kind.SIGNED), root=(6, Kind.SIGNED))
_INSTRUCTION = table(
    name=(1, Kind.TEXT), opcode=(2, Kind.TEXT), shape=(3, Kind.SPAN), metadata=(7, Kind.SPAN),
    parameter=(9, Kind.SIGNED), fusion_kind=(11, Kind.TEXT), tuple_index=(13, Kind.SIGNED),
    slices=(17, Kind.SPANS), target=(28, Kind.TEXT), dot=(30, Kind.SPAN), id=(35, Kind.SIGNED),
    operands=(36, Kind.SIGNEDS), called=(38, Kind.SIGNEDS), configured=(43, Kind.SPAN), precisions=(51, Kind.SPAN),
)  # fmt: skip
_METADATA = table(
    op_name=(2, Kind.TEXT), file=(3, Kind.TEXT), line=(4, Kind.SIGNED), kernel=(12, Kind.TEXT), frame=(15, Kind.SIGNED)
)
_SHAPE = table(type=(2, Kind.INT), dims=(3, Kind.SIGNEDS), members=(4, Kind.SPANS), layout=(5, Kind.SPAN))
_LAYOUT = table(minor_to_major=(1, Kind.SIGNEDS))
_DOT = table(lhs_contracting=(1, Kind.SIGNEDS))
_PRECISION = table(operands=(1, Kind.INTS))
_PRECISIONS: Final = ("DEFAULT", "HIGH", "HIGHEST")
_SLICE = table(start=(1, Kind.SIGNED), limit=(2, Kind.SIGNED), step=(3, Kind.SIGNED))
_ENTRIES = table(entries=(1, Kind.SPANS))
_ENTRY = table(key=(1, Kind.SIGNED), value=(2, Kind.SPAN))
_SEQUENCE = table(ids=(1, Kind.SIGNEDS))
_ALIAS = table(output=(1, Kind.SIGNEDS), parameter=(2, Kind.SIGNED), parameter_index=(3, Kind.SIGNEDS))
_FRAMES = table(files=(1, Kind.TEXTS), functions=(2, Kind.TEXTS), locations=(3, Kind.SPANS), frames=(4, Kind.SPANS))
_LOCATION = table(file=(1, Kind.SIGNED), function=(2, Kind.SIGNED), line=(3, Kind.SIGNED))
_FRAME = table(location=(1, Kind.SIGNED), parent=(2, Kind.SIGNED))
_BUFFERS = table(logical=(1, Kind.SPANS), allocations=(3, Kind.SPANS))
_LOGICAL = table(id=(1, Kind.SIGNED), defined=(3, Kind.SPAN))
_DEFINED = table(index=(3, Kind.SIGNEDS), instruction=(4, Kind.SIGNED))
_ALLOCATION = table(index=(1, Kind.SIGNED), size=(2, Kind.SIGNED), assigned=(9, Kind.SPANS))
_ASSIGNED = table(logical=(1, Kind.SIGNED), offset=(2, Kind.SIGNED), size=(3, Kind.SIGNED))
_LARGEST = 1 << 44  # elements: what has more is damage
_DEEPEST = 64  # tuples in tuples, and callers of a line; what is deeper is damage
Index = tuple[int, ...]  # which member of a tuple, and of that; () is the whole


class Shape(Struct, frozen=True, dict=True):
    """An array, or a tuple of shapes."""

    dtype: str
    bits: int  # of an element
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    members: tuple[Shape, ...] = ()

    @cached_property
    def elements(self) -> int:
        """Return how many elements an array has.

        >>> Shape("f32", 32, (2, 3), (1, 0)).elements
        6
        """
        return math.prod(self.dims) if self.bits else 0

    @property
    def bytes(self) -> int:
        """Return the bytes of an array, or of all in a tuple.

        >>> Shape("bf16", 16, (2, 3), (1, 0)).bytes
        12
        """
        return (self.elements * self.bits + 7) // 8 + sum(member.bytes for member in self.members)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Return the stride of each dimension, in elements.

        >>> Shape("f32", 32, (2, 3, 4), (1, 0, 2)).strides
        (3, 1, 6)
        """
        strides, step = [1] * len(self.dims), 1
        for dimension in self.minor_to_major or range(len(self.dims) - 1, -1, -1):
            if 0 <= dimension < len(strides):
                strides[dimension] = step
                step *= self.dims[dimension]
        return tuple(strides)

    @cached_property
    def leaves(self) -> tuple[tuple[Index, Shape], ...]:
        """Return the arrays in it, each with its place.

        >>> [index for index, _ in Shape("", 0, (), (), (Shape("f32", 32, (2,), (0,)),)).leaves]
        [(0,)]
        """
        if not self.members:
            return (((), self),) if self.bits else ()
        return tuple(((at, *index), leaf) for at, member in enumerate(self.members) for index, leaf in member.leaves)


class HloInstruction(Struct, frozen=True, dict=True, kw_only=True):
    """One instruction. Ids are unique in a module; newer ones hold the computation's in their upper half.

    What few are asked for is decoded when they are: of some thousand instructions in fusions it never is.
    """

    id: int
    name: str
    opcode: str
    shape: Shape
    computation: int
    operands: list[int]
    called: list[int]
    fusion_kind: str
    target: str
    parameter: int
    tuple_index: int
    data: memoryview  # of the file; what follows lies in it
    metadata: Span | None
    dot: Span | None
    slices: list[Span]
    configured: Span | None
    precisions: Span | None

    @cached_property
    def about(self) -> dict[str, Any]:
        """Return where it comes from.

        `op_name`; `frame` of the stack frame index, counted from 1, or `file` and `line`; `kernel`, the name of the
        kernel that computes it where XLA compiled equal bodies once, else "".
        """
        return read(self.data, self.metadata, _METADATA)

    @property
    def starts(self) -> list[int]:
        """Return where a slice begins in each dimension."""
        return [read(self.data, span, _SLICE)["start"] for span in self.slices]

    @property
    def steps(self) -> list[int]:
        """Return the steps of a slice in each dimension."""
        return [read(self.data, span, _SLICE)["step"] for span in self.slices]

    @property
    def contracting(self) -> Sequence[int]:
        """Return the dimensions of a dot's first operand that it sums over."""
        return read(self.data, self.dot, _DOT)["lhs_contracting"]  # type: ignore[no-any-return]

    @property
    def precision(self) -> str:
        """Return the precision of a dot as the program asks for it; "": it does not."""
        given = read(self.data, self.precisions, _PRECISION)["operands"]
        return _PRECISIONS[max(given)] if given and max(given) < len(_PRECISIONS) else ""

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
    name: str
    instructions: tuple[HloInstruction, ...]
    root: int


class Frame(Struct, frozen=True):
    """One frame of a Python stack."""

    file: str
    function: str
    line: int


class HloModule(Struct, frozen=True, dict=True):
    """A module."""

    id: int
    name: str
    entry: int
    computations: dict[int, Computation]
    sequences: dict[int, tuple[int, ...]]  # of a computation's id: ids of its instructions as they are executed
    aliases: dict[Index, tuple[int, Index]]  # of a part of the result: the parameter whose memory it gets
    frames: tuple[tuple[Frame, int], ...]  # each with its caller's number, counted from 1
    places: dict[tuple[int, Index], tuple[int, int]]  # of what an instruction defines: allocation and offset

    @cached_property
    def instructions(self) -> dict[int, HloInstruction]:
        """Return all instructions by id."""
        return {
            instruction.id: instruction
            for computation in self.computations.values()
            for instruction in computation.instructions
        }

    @cached_property
    def users(self) -> dict[int, list[int]]:
        """Return of each instruction those that take it as an operand."""
        takers: dict[int, list[int]] = {}
        for instruction in self.instructions.values():
            for operand in dict.fromkeys(instruction.operands):
                takers.setdefault(operand, []).append(instruction.id)
        return takers

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

    @cached_property
    def parameters(self) -> dict[tuple[int, int], HloInstruction]:
        """Return the parameters of all computations, by theirs and their number."""
        return {
            (inner.computation, inner.parameter): inner
            for inner in self.instructions.values()
            if inner.opcode == "parameter"
        }

    def stack(self, instruction: HloInstruction) -> tuple[Frame, ...]:
        """Return the Python stack of an instruction, outermost first."""
        about = instruction.about
        called = self._called_from(about["frame"])
        return called or ((Frame(about["file"], "", about["line"]),) if about["file"] else ())

    def _called_from(self, number: int) -> tuple[Frame, ...]:
        known = self._stacks.get(number)
        if known is None:
            frames, at = list[Frame](), number
            while 0 < at <= len(self.frames) and len(frames) < _DEEPEST:
                frame, at = self.frames[at - 1]
                frames.append(frame)
            known = self._stacks[number] = tuple(reversed(frames))
        return known

    @cached_property
    def _stacks(self) -> dict[int, tuple[Frame, ...]]:
        return {}


def module_of(data: memoryview, span: Span) -> HloModule:
    """Return the module of an `HloProto`. Raises InputError where the bytes are none."""
    proto = read(data, span, _PROTO)
    fields = read(data, proto["module"], _MODULE)
    shapes: dict[bytes, Shape] = {}
    computations = [_computation(data, each, shapes) for each in fields["computations"]]
    return HloModule(
        id=fields["id"],
        name=fields["name"],
        entry=fields["entry"],
        computations={each.id: each for each in computations},
        sequences=_sequences(data, fields["schedule"]),
        aliases=_aliases(data, fields["aliases"]),
        frames=_frames(data, fields["frames"]),
        places=_places(data, proto["buffers"]),
    )


def _computation(data: memoryview, span: Span, shapes: dict[bytes, Shape]) -> Computation:
    fields = read(data, span, _COMPUTATION)
    own = fields["id"]
    instructions = tuple(_instruction(data, each, own, shapes) for each in fields["instructions"])
    return Computation(own, fields["name"], instructions, fields["root"])


def _instruction(data: memoryview, span: Span, computation: int, shapes: dict[bytes, Shape]) -> HloInstruction:
    fields = read(data, span, _INSTRUCTION)
    given = fields["shape"]
    written = b"" if given is None else data[given[0] : given[1]].tobytes()  # equal ones are read once
    if (shape := shapes.get(written)) is None:
        shape = shapes[written] = _shape(data, given)
    fields["shape"] = shape
    return HloInstruction(computation=computation, data=data, **fields)


def _shape(data: memoryview, span: Span | None, deep: int = 0) -> Shape:
    if span is None or deep > _DEEPEST:
        return Shape("", 0, (), ())
    fields = read(data, span, _SHAPE)
    if fields["type"] == _TUPLE:
        return Shape("", 0, (), (), tuple(_shape(data, each, deep + 1) for each in fields["members"]))
    dtype, bits = _DTYPES.get(fields["type"], ("", 0))
    layout = read(data, fields["layout"], _LAYOUT)
    dims = tuple(fields["dims"])
    if min(dims, default=0) < 0 or math.prod(dims) > _LARGEST:
        return Shape("", 0, (), ())
    return Shape(dtype, bits, dims, tuple(layout["minor_to_major"]))


def _entries(data: memoryview, span: Span | None) -> Iterator[Span]:
    yield from read(data, span, _ENTRIES)["entries"]


def _sequences(data: memoryview, span: Span | None) -> dict[int, tuple[int, ...]]:
    entries = (read(data, each, _ENTRY) for each in _entries(data, span))
    return {each["key"]: tuple(read(data, each["value"], _SEQUENCE)["ids"]) for each in entries}


def _aliases(data: memoryview, span: Span | None) -> dict[Index, tuple[int, Index]]:
    entries = (read(data, each, _ALIAS) for each in _entries(data, span))
    return {tuple(each["output"]): (each["parameter"], tuple(each["parameter_index"])) for each in entries}


def _frames(data: memoryview, span: Span | None) -> tuple[tuple[Frame, int], ...]:
    fields = read(data, span, _FRAMES)
    files, functions = ["", *fields["files"]], ["", *fields["functions"]]
    locations = [Frame("", "", 0)]
    for each in fields["locations"]:
        at = read(data, each, _LOCATION)
        locations.append(Frame(_at(files, at["file"]), _at(functions, at["function"]), at["line"]))
    frames = [read(data, each, _FRAME) for each in fields["frames"]]
    inside = range(len(locations))
    return tuple((locations[each["location"] if each["location"] in inside else 0], each["parent"]) for each in frames)


def _at(texts: list[str], number: int) -> str:
    return texts[number] if 0 <= number < len(texts) else ""


def _places(data: memoryview, span: Span | None) -> dict[tuple[int, Index], tuple[int, int]]:
    fields = read(data, span, _BUFFERS)
    defined = {}
    for each in fields["logical"]:
        logical = read(data, each, _LOGICAL)
        by = read(data, logical["defined"], _DEFINED)
        defined[logical["id"]] = (by["instruction"], tuple(by["index"]))
    places = {}
    for each in fields["allocations"]:
        allocation = read(data, each, _ALLOCATION)
        for part in allocation["assigned"]:
            assigned = read(data, part, _ASSIGNED)
            if assigned["logical"] in defined:
                places[defined[assigned["logical"]]] = (allocation["index"], assigned["offset"])
    return places
