"""Small programs of tensor operators as timelines with an execution trace's facts, for tests of dataflow.

    program = Program()
    x, y = program.tensor("x", 8), program.tensor("y", 8)
    program.call("aten::relu(Tensor self) -> Tensor", [x], [y])
    flow = program.flow()

Storages have names; the same name after an allocation is the same storage id used again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.timelines import Trace
from tracemine.flow import Flow, Source, flow
from tracemine.timeline import Timeline

EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"
RELU = "aten::relu(Tensor self) -> Tensor"
ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
COPY_ = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"


@dataclass(frozen=True)
class T:
    """A tensor in a storage, in elements of 4 bytes."""

    storage: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    offset: int = 0
    device: str = "cuda:0"

    def part(self, begin: int, count: int, stride: int = 1) -> T:
        """A view: `count` elements from `begin` on, `stride` apart."""
        return replace(self, shape=(count,), strides=(stride,), offset=self.offset + begin)


class Program:
    """Operators in the order in which they are called. Each takes 10 ns of the host; threads share one clock."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.now = 0
        self.ids = itertools.count(10)
        self.storages: dict[str, int] = {}
        self.around: dict[int, list[dict[str, Any]]] = {}
        self.names: list[str] = []
        self.step_row: dict[str, Any] | None = None

    def tensor(self, storage: str, *shape: int, device: str = "cuda:0") -> T:
        """A contiguous tensor at the front of a storage."""
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        return T(storage, shape, tuple(strides) if shape else (), device=device)

    def step(self) -> None:
        """A new step begins."""
        self.now += 10
        self.step_row = self.trace.step(self.now, 1_000_000)

    def call(
        self,
        schema: str,
        inputs: Sequence[T | Sequence[T] | None] = (),
        outputs: Sequence[T | Sequence[T]] = (),
        *,
        kernels: int = 1,
        tid: int = 1,
        joined: bool = True,
        concrete: Any = None,
    ) -> None:
        """One operator without others inside it. A schema without brackets is only a name."""
        with self.inside(schema, inputs, outputs, kernels=kernels, tid=tid, joined=joined, concrete=concrete):
            pass

    def allocate(self, tensor: T) -> None:
        """`aten::empty`."""
        self.call(EMPTY, [], [tensor], kernels=0)

    @contextmanager
    def inside(
        self,
        schema: str,
        inputs: Sequence[T | Sequence[T] | None] = (),
        outputs: Sequence[T | Sequence[T]] = (),
        *,
        kernels: int = 1,
        tid: int = 1,
        joined: bool = True,
        concrete: Any = None,
    ) -> Iterator[None]:
        """An operator; what is called meanwhile on its thread is inside it. Its kernels come after that."""
        self.now += 10
        stack = self.around.setdefault(tid, [])
        name = schema.partition("(")[0].partition(".")[0]
        op = self.trace.op(name, self.now, 0, tid=tid, concrete=concrete, parent_row=stack[-1] if stack else None)
        if joined:
            op["execution_node_id"] = next(self.ids)
            op["op_schema"] = schema if "(" in schema else None
            for is_output, side in ((False, inputs), (True, outputs)):
                for position, argument in enumerate(side):
                    for index, tensor in self._members(argument):
                        self._add(op, is_output, position, index, tensor)
        stack.append(op)
        yield
        stack.pop()
        for _ in range(kernels):
            self.now += 10
            self.trace.kernel(name, self.now, 5, op=op, step_row=self.step_row)
        self.now += 10
        op["dur_ns"] = self.now - op["start_ns"]

    def timeline(self) -> Timeline:
        """The timeline of the calls so far."""
        return self.trace.timeline()

    def flow(self) -> Flow:
        """Their dataflow."""
        return flow(self.timeline())

    def edges(self) -> set[tuple[str, str, str]]:
        """(operator that wrote, operator that read, storage): operators as `name` or, called again, `name#1` …"""
        timeline, found = self.timeline(), self.flow()
        names = self.labels(timeline, found)
        return {
            (names[producer], names[consumer], self._storage_of(timeline, found.reads.tensor_row[read]))
            for producer, consumer, read in zip(
                found.edges.producer.tolist(), found.edges.consumer.tolist(), found.edges.read.tolist(), strict=True
            )
        }

    def sources(self) -> dict[tuple[str, str], Source]:
        """(operator, storage) → where what it read of that came from."""
        timeline, found = self.timeline(), self.flow()
        names = self.labels(timeline, found)
        return {
            (names[node], self._storage_of(timeline, row)): Source(source)
            for node, row, source in zip(
                found.reads.node.tolist(), found.reads.tensor_row.tolist(), found.reads.source.tolist(), strict=True
            )
        }

    def labels(self, timeline: Timeline, found: Flow) -> list[str]:
        """A name for each node, without `aten::`."""
        ops = timeline.ops.column("name").to_pylist()
        seen: dict[str, int] = {}
        labels = []
        for row in found.nodes.op_row.tolist():
            name = ops[row].removeprefix("aten::")
            count = seen[name] = seen.get(name, -1) + 1
            labels.append(f"{name}#{count}" if count else name)
        return labels

    def _storage_of(self, timeline: Timeline, row: int) -> str:
        number = timeline.tensors.column("storage_id")[int(row)].as_py()
        return next(name for name, known in self.storages.items() if known == number)

    @staticmethod
    def _members(argument: T | Sequence[T] | None) -> list[tuple[int | None, T]]:
        if argument is None:
            return []
        return [(None, argument)] if isinstance(argument, T) else list(enumerate(argument))

    def _add(self, op: dict[str, Any], is_output: bool, position: int, index: int | None, tensor: T) -> None:
        numel = 1
        for size in tensor.shape:
            numel *= size
        self.trace.add(
            "tensors",
            op_row=op,
            is_output=is_output,
            position=position,
            list_index=index,
            tensor_id=0,
            storage_id=self.storages.setdefault(tensor.storage, len(self.storages) + 100),
            offset_elements=tensor.offset,
            numel=min(numel, 1 << 62),
            itemsize_bytes=4,
            device=tensor.device,
            dtype="float",
            shape=list(tensor.shape),
            strides=None if tensor.strides is None else list(tensor.strides),
        )
