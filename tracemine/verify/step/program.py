"""A recorded step as plain records: calls in order, and the memory that they read and write. Needs no torch.

Tensors are named by where they lie: a buffer (a storage, counted anew when it is allocated anew), offset, shape,
strides and dtype. So aliasing is as recorded, and it stays right when calls are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tracemine.codegen.graph import LiteralArg
from tracemine.ops import Overload, overload_of
from tracemine.verdicts.verdict import Left
from tracemine.verify.rebuild.view_recovery import Layout

LEAST_SHARE = 0.8  # of the step's GPU time: a program that replays less is refused


class TensorRef(msgspec.Struct, frozen=True):
    """A tensor, by where it lies. Offset and strides in elements."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def layout(self) -> Layout:
        """Return where in its buffer it lies."""
        return Layout(self.offset, self.shape, self.strides)


# A list has None where an optional tensor is not given; a literal is all that is no tensor.
Argument = TensorRef | tuple[TensorRef | None, ...] | LiteralArg | None


class Buffer(msgspec.Struct, kw_only=True):
    """Memory. From outside the step: a parameter, an input, what an earlier step left; else a call makes it."""

    outside: bool
    on_host: bool
    elements: int  # from its begin to the last element that is touched
    itemsize: int
    below: int | None = None  # it holds indices, each in [0, below)
    positive: bool = False  # a variance, a counter: what a root or a division is taken of


class StepCall(msgspec.Struct, frozen=True, kw_only=True):
    """One ATen call: a value for each argument of the schema, and what it gave."""

    operator: str
    overload: str
    arguments: tuple[Argument, ...]
    outputs: tuple[tuple[int, int, TensorRef], ...]  # position, member of a list (−1: no list), where it lies
    writes: tuple[TensorRef, ...]  # that it took and writes in place
    makes: tuple[int, ...]  # buffers that are new
    activities: tuple[int, ...]  # rows of `activities` that it launched
    nodes: tuple[int, ...]
    draws: bool  # random numbers

    @property
    def schema(self) -> Overload:
        """Its overload in the operator table."""
        found = overload_of(self.operator, self.overload)
        assert found is not None  # noqa: S101  (calls.py takes only such)
        return found

    @property
    def reads(self) -> Iterator[TensorRef]:
        """Generate tensors that it takes, those that it overwrites included."""
        for value in self.arguments:
            if isinstance(value, TensorRef):
                yield value
            elif isinstance(value, tuple):
                yield from (v for v in value if v is not None)

    @property
    def is_view(self) -> bool:
        """Return whether it only looks at memory: it launches, writes and makes nothing."""
        return not (self.activities or self.writes or self.makes)


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A step. Durations are the recorded ones, of its kernels, copies and sets."""

    step: str  # its name in the trace; "" where the trace has no steps, and all of it is taken for one
    buffers: tuple[Buffer, ...]
    calls: tuple[StepCall, ...]
    live: tuple[TensorRef, ...]  # what is left at its end: state that was written, and what no call read
    left: tuple[Left, ...]
    gpu_ns: int  # of the step
    replayed_ns: int  # of what the calls launched
    launches: int
    replayed_launches: int
    assumptions: tuple[str, ...]

    @property
    def share(self) -> float:
        """Of the step's GPU time, what is replayed."""
        return self.replayed_ns / self.gpu_ns if self.gpu_ns else 0.0
