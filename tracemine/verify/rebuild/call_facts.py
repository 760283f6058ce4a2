"""What a trace says of one operator call: its tensors, types and texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tracemine.calls.call import Extents, sizes
from tracemine.ops import dtype
from tracemine.ops.infer.tensor import contiguous
from tracemine.verify.rebuild.axes import Reduced
from tracemine.verify.rebuild.view_recovery import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTensor:
    """One tensor that an operator took or gave. `buffer`: a storage, counted anew when it is allocated anew."""

    row: int  # of `tensors`; −1: of none
    position: int
    member: int  # of a list; −1: no list
    buffer: tuple[str, int]
    layout: Layout
    dtype: str | None
    on_host: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """One operator call of a node."""

    node: int
    op_row: int
    operator: str
    overload: str | None  # None: the operator's schema is not known
    parents: tuple[str, ...]  # the ATen operators around it, innermost first
    inputs: tuple[RecordedTensor, ...]
    outputs: tuple[RecordedTensor, ...]
    types: tuple[str, ...]  # as recorded, one an argument
    texts: tuple[str, ...] | None
    shapes: tuple[Extents, ...]  # as recorded, one an argument
    strides: tuple[Extents, ...]
    kernels: tuple[str, ...]  # names
    reduced: Reduced | None = None  # of a reduction whose arguments were not recorded


def from_outside(facts: CallFacts, place: int) -> RecordedTensor | None:
    """Return a tensor argument of which nothing tells where it comes from, by what the call recorded of it."""
    return outside(facts.op_row, place, facts.shapes, facts.strides, facts.types)


def outside(
    op_row: int, place: int, shapes: Sequence[Extents], all_strides: Sequence[Extents], types: Sequence[str]
) -> RecordedTensor | None:
    guessed = not all_strides
    if place >= min(len(types), len(shapes), len(shapes if guessed else all_strides)):
        return None
    shape, name = sizes(shapes[place]), dtype(types[place])
    if name is None or shape is None:
        return None
    strides = contiguous(shape) if guessed else sizes(all_strides[place])
    if strides is None or len(shape) != len(strides):
        return None
    layout = Layout(0, shape, strides, guessed and bool(shape))
    own = ("call", op_row * 256 + place)
    return RecordedTensor(row=-1, position=place, member=-1, buffer=own, layout=layout, dtype=name, on_host=False)


def with_result(facts: CallFacts) -> CallFacts:
    """Return the call with its result where only the shape is known: new memory without gaps, and no known consumer."""
    told = facts.reduced
    if told is None or facts.outputs:
        return facts
    guessed = bool(told.shape) and any(seen.layout.guessed for seen in facts.inputs)
    layout = Layout(0, told.shape, contiguous(told.shape), guessed)
    own = ("result", facts.op_row)
    given = RecordedTensor(row=-1, position=0, member=-1, buffer=own, layout=layout, dtype=told.dtype, on_host=False)
    return replace(facts, outputs=(given,))
