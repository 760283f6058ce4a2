"""Write modules of XLA as a profile holds them, in protobuf's wire format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.formats.xla.make import message, number, varint

_TYPES = {"pred": 1, "s8": 2, "s32": 4, "u8": 6, "f32": 11, "bf16": 16}
_TUPLE = 13


@dataclass(frozen=True)
class Shape:
    dtype: str
    dims: tuple[int, ...] = ()
    minor_to_major: tuple[int, ...] | None = None
    members: tuple[Shape, ...] = ()

    def proto(self) -> bytes:
        if self.dtype == "tuple":
            return number(2, _TUPLE) + b"".join(message(4, each.proto()) for each in self.members)
        order = range(len(self.dims) - 1, -1, -1) if self.minor_to_major is None else self.minor_to_major
        layout = message(5, packed(1, order))
        return number(2, _TYPES[self.dtype]) + packed(3, self.dims) + layout


def array(dtype: str, *dims: int, minor_to_major: tuple[int, ...] | None = None) -> Shape:
    return Shape(dtype, dims, minor_to_major)


def both(*members: Shape) -> Shape:
    return Shape("tuple", members=members)


def packed(of: int, values: Sequence[int] | range) -> bytes:
    return message(of, b"".join(varint(value) for value in values)) if len(values) else b""


@dataclass
class Op:
    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    kernel: str = ""
    target: str = ""
    fusion_kind: str = ""
    config: str = ""
    op_name: str = ""
    parameter: int = 0
    index: int = 0
    frame: int = 0
    contracting: tuple[int, ...] = ()
    slices: tuple[tuple[int, int, int], ...] = ()
    precision: int = -1
    literal: bytes = b""


@dataclass
class Made:
    """A module: computations by name, the first is the entry; of each its instructions, the last is its root."""

    name: str
    number: int
    computations: dict[str, list[Op]]
    schedule: dict[str, list[str]] = field(default_factory=dict)
    places: list[tuple[str, int]] = field(default_factory=list)  # of instructions: their allocation
    frames: list[tuple[str, str, int, int]] = field(default_factory=list)  # file, function, line, caller's number

    def proto(self) -> bytes:
        ids = {
            op.name: (at << 32) | place
            for at, ops in enumerate(self.computations.values(), 1)
            for place, op in enumerate(ops)
        }
        numbers = {name: at for at, name in enumerate(self.computations, 1)}
        body = message(1, self.name) + number(5, self.number) + number(6, 1)
        for name, ops in self.computations.items():
            inside = b"".join(message(2, _op(op, ids, numbers)) for op in ops)
            body += message(3, message(1, name) + inside + number(5, numbers[name]) + number(6, ids[ops[-1].name]))
        for name, order in self.schedule.items():
            sequence = packed(1, [ids[each] for each in order])
            body += message(7, message(1, number(1, numbers[name]) + message(2, sequence)))
        return message(1, body + self._frames()) + self._buffers(ids)

    def _frames(self) -> bytes:
        if not self.frames:
            return b""
        body = b""
        for file, function, _, _ in self.frames:
            body += message(1, file) + message(2, function)
        for at, (_, _, line, caller) in enumerate(self.frames, 1):
            body += message(3, number(1, at) + number(2, at) + number(3, line))
            body += message(4, number(1, at) + number(2, caller))
        return message(17, body)

    def _buffers(self, ids: dict[str, int]) -> bytes:
        body = b""
        for at, (name, _) in enumerate(self.places, 1):
            body += message(1, number(1, at) + number(2, 4) + message(3, number(4, ids[name])))
        for at, (_, allocation) in enumerate(self.places, 1):
            body += message(3, number(1, allocation) + message(9, number(1, at) + number(2, 0)))
        return message(3, body) if body else b""


def _op(op: Op, ids: dict[str, int], numbers: dict[str, int]) -> bytes:
    metadata = message(2, op.op_name) + message(12, op.kernel) + number(15, op.frame)
    body = message(1, op.name) + message(2, op.opcode) + message(3, op.shape.proto()) + message(7, metadata)
    body += message(8, op.literal) if op.literal else b""
    body += number(9, op.parameter) + message(11, op.fusion_kind) + number(13, op.index) + message(28, op.target)
    body += b"".join(message(17, number(1, a) + number(2, b) + number(3, c)) for a, b, c in op.slices)
    body += message(30, packed(1, op.contracting) + packed(2, op.contracting)) if op.contracting else b""
    body += number(35, ids[op.name]) + packed(36, [ids[name] for name in op.operands])
    body += packed(38, [numbers[name] for name in op.called]) + message(43, op.config)
    return body + (message(51, packed(1, [op.precision] * 2)) if op.precision >= 0 else b"")


def parameter(name: str, shape: Shape, position: int) -> Op:
    return Op(name, "parameter", shape, parameter=position)


def fused(name: str, shape: Shape, *operands: str, body: str, kernel: str = "", kind: str = "kLoop") -> Op:
    return Op(name, "fusion", shape, operands, (body,), kernel=kernel, fusion_kind=kind)


def blas(name: str, shape: Shape, *operands: str) -> Op:
    dims = '{"lhs_contracting_dimensions":["1"]}'
    gemm = f'{{"precision_config":{{"operand_precision":["DEFAULT"]}},"dot_dimension_numbers":{dims}}}'
    config = f'{{"gemm_backend_config":{gemm}}}'
    return Op(name, "custom-call", both(shape, array("u8", 256)), operands, target="__cublas$lt$matmul", config=config)


def element(name: str, shape: Shape, of: str, index: int) -> Op:
    return Op(name, "get-tuple-element", shape, (of,), index=index)


def simple(name: str, shape: Shape, *opcodes: str) -> list[Op]:
    """A fusion's body: a parameter, and one operation after the other."""
    ops = [parameter(f"{name}.given", shape, 0)]
    for at, opcode in enumerate(opcodes):
        ops.append(Op(f"{name}.{opcode}{at}", opcode, shape, (ops[-1].name,)))
    return ops
