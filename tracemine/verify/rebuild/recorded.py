"""What a trace says of single operator calls, asked for one node at a time: the ground that graphs are rebuilt on.

Profilers record nothing of a list of optional tensors. ATen's `index` looks at its source once more, with the indexed
axes replaced by those of the indices, which step over nothing (`restride_src` in TensorAdvancedIndexing.cpp), and then
reshapes each index (`reshape_indexer`): `as_strided` says which axes, and each `reshape` which tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from tracemine.calls import Call, calls_of
from tracemine.columns import MISSING, booleans, lists, numbers, string_ids
from tracemine.flow import may_read
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray, MayRead
from tracemine.fusion.liveness import lasting
from tracemine.ops import dtype
from tracemine.ops.infer.tensor import contiguous
from tracemine.timeline import Timeline
from tracemine.verify.rebuild.call_facts import (
    AUTOGRAD,
    REDUCTIONS,
    CallFacts,
    RecordedTensor,
    Reduced,
    outside,
    reduced,
)
from tracemine.verify.rebuild.view_recovery import Layout

INDEX, STRIDED, RESHAPE = "aten::index", "aten::as_strided", "aten::reshape"
# What else may be inside. A mask is turned into places first, and axes that are not side by side change their order.
INSIDE = frozenset({STRIDED, RESHAPE, "aten::expand", "aten::contiguous", "aten::empty", "aten::resize_"})


def first_axis(
    source: tuple[Sequence[int], Sequence[int]], strided: tuple[Sequence[int], Sequence[int]], indices: int
) -> int | None:
    """Return the first indexed axis; None where none leads from the source's shape and strides to those, or several do.

    >>> first_axis(((169, 12), (12, 1)), ((2401, 12), (0, 1)), 1)
    0
    >>> first_axis(((8, 512, 18, 64), (589824, 1152, 64, 1)), ((8, 512, 1, 64), (589824, 1152, 0, 1)), 1)
    2
    >>> first_axis(((8, 512), (512, 1)), ((8, 1, 1, 512), (0, 0, 0, 0)), 2)
    0
    >>> first_axis(((4, 8), (8, 1)), ((4, 8), (8, 1)), 1)
    """
    own, wanted = list(zip(*source, strict=True)), list(zip(*strided, strict=True))
    new = len(wanted) - len(own) + indices  # axes of the indices
    if new < 0 or not indices:
        return None
    found = [
        first
        for first in range(len(own) - indices + 1)
        if wanted[:first] == own[:first]
        and wanted[first + new :] == own[first + indices :]
        and not any(stride for _, stride in wanted[first : first + new])
    ]
    return found[0] if len(found) == 1 else None


_MOST_PARENTS = 8
_LONGEST_NAME = 16_384  # of a kernel; random numbers' have 5,000 characters, and what is cut is another name
_NUMBER_TYPES = ("double", "long int")  # of Python numbers where the schema has a tensor
_DROPPED = {("aten::argsort", "aten::sort"): 0}  # of an outer call and one within it, the result that is let go of


class Recorded:
    """A flow's tables, ready to be asked."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.timeline = flow.timeline
        ops, tensors = self.timeline.ops, self.timeline.tensors
        self._calls = calls_of(self.timeline)
        self._schemas = string_ids(ops.column("op_schema"))
        self._parent = numbers(ops.column("parent_row"), -1)
        self._op_row = numbers(tensors.column("op_row"))
        self._order = np.argsort(self._op_row, kind="stable")
        self._sorted = self._op_row[self._order]
        columns = ("position", "list_index", "storage_id", "offset_elements")
        self._numbers = {n: numbers(tensors.column(n), MISSING) for n in columns}
        self._is_output = booleans(tensors.column("is_output"))
        self._dtype, self._device = string_ids(tensors.column("dtype")), string_ids(tensors.column("device"))
        self._shape, self._strides = lists(tensors.column("shape")), lists(tensors.column("strides"))
        self.strides_told = self._strides_told()
        self._kernel = string_ids(self.timeline.activities.column("name"))
        reads, writes = flow.reads, flow.writes
        self.buffer_of = dict(zip(reads.tensor_row.tolist(), reads.buffer.tolist(), strict=True))
        self.buffer_of.update(zip(writes.tensor_row.tolist(), writes.buffer.tolist(), strict=True))
        self._write_order = np.argsort(writes.node, kind="stable")
        self._write_node = writes.node[self._write_order]

    def _strides_told(self) -> bool:
        """Return whether strides were recorded: profilers before PyTorch 2.4 leave all out, and they are guessed."""
        if self.timeline.meta.execution_trace is not None:
            return bool(self._strides[2].any())
        return not bool(self.timeline.ops.column("input_strides").null_count == self.timeline.ops.num_rows)

    @cached_property
    def lasting(self) -> Any:
        """For each write whether it may be wanted after its step."""
        return lasting(self.flow)

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        edges = self.flow.edges
        for write, consumer in zip(edges.write.tolist(), edges.consumer.tolist(), strict=True):
            found.setdefault(write, []).append(consumer)
        return found

    def facts(self, node: int) -> CallFacts:
        """Return what is known of a node's call."""
        owned = self.flow.nodes
        rows = owned.activity[owned.activity_begin[node] : owned.activity_begin[node + 1]]
        return self.call(int(owned.op_row[node]), rows.tolist(), node)

    def call(self, op_row: int, activities: Sequence[int], node: int = -1) -> CallFacts:
        """Return what is known of the call of one operator, which launched some activities. −1: it is no node."""
        begin, end = np.searchsorted(self._sorted, [op_row, op_row + 1]).tolist()
        seen = [self.seen(int(row)) for row in self._order[begin:end]]
        schema, call = self.schema(op_row), self._call(op_row)
        types = call.dtypes or ()
        texts = self._told(op_row, types)
        codes, names = self._kernel
        operator = call.name.partition(".")[0]
        inputs = self._inputs(seen)
        if operator == INDEX and len(inputs) == 1:
            inputs += self._indices(op_row, inputs[0])
        return CallFacts(
            node=node,
            op_row=op_row,
            operator=operator,
            overload=None if schema is None else schema.partition("(")[0].partition(".")[2],
            parents=self._parents(op_row),
            inputs=inputs,
            outputs=tuple(s for s in seen if self._is_output[s.row]),
            types=types,
            texts=texts,
            shapes=call.shapes or (),
            strides=call.strides or (),
            kernels=tuple(names[codes[row]] for row in activities if codes[row] >= 0),
            reduced=self._reduced(operator, op_row, inputs) if texts is None else None,
        )

    def _reduced(self, operator: str, op_row: int, inputs: Sequence[RecordedTensor]) -> Reduced | None:
        """Return what calls inside and after a reduction show about it."""
        if operator not in REDUCTIONS or len(inputs) != 1:
            return None
        parent = int(self._parent[op_row])
        around = self._call(parent).name if parent >= 0 else ""
        beside = self._inside(parent) if around.startswith(AUTOGRAD) else []
        after = next((row for row in beside if row > op_row), -1)
        inside = [near for row in self._inside(op_row) if (near := self._near(row)) is not None]
        return reduced(operator, inputs[0].layout.shape, inside, self._near(after) if after >= 0 else None, around)

    def _indices(self, op_row: int, source: RecordedTensor) -> tuple[RecordedTensor, ...]:
        """Return the index tensors of an `index`, as calls inside it read them; none where they do not."""
        inside = [(self._call(row).name, row) for row in self._inside(op_row)]
        read = [self._first(row) for name, row in inside if name == RESHAPE]
        strided = [self._strided(row) for name, row in inside if name == STRIDED]
        last = strided[-1] if strided and source.layout.is_known else None  # those before it are of indices
        if last is None or any(name not in INSIDE for name, _ in inside) or last[0] != source.layout.shape:
            return ()
        own = source.layout.shape, source.layout.strides
        first = first_axis(own, (last[1], last[2]), len(read)) if len(last[1]) == len(last[2]) else None
        if first is None or any(seen is None or not seen.layout.is_known for seen in read):
            return ()
        found = [replace(seen, position=1, member=first + k) for k, seen in enumerate(read) if seen is not None]
        return tuple(found)

    def _first(self, op_row: int) -> RecordedTensor | None:
        """Return the tensor that a call inside another takes first: whose memory it lies in nothing tells."""
        call = self._call(op_row)
        return outside(op_row, 0, call.shapes or (), call.strides or (), call.dtypes or ())

    def _strided(self, op_row: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the shape that an `as_strided` took, and the shape and strides that it gave."""
        call = self._call(op_row)
        shape, texts = call.shape(0), (call.values or ())[1:3]
        try:
            size, stride = (tuple(map(int, text.strip("[]").split(","))) if text != "[]" else () for text in texts)
        except ValueError:
            return None
        return None if shape is None else (shape, size, stride)

    @cached_property
    def _by_parent(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self._parent, kind="stable")
        return order, self._parent[order]

    def _inside(self, op_row: int) -> list[int]:
        """Return calls directly inside another, in their order."""
        order, parents = self._by_parent
        begin, end = np.searchsorted(parents, [op_row, op_row + 1]).tolist()
        rows: list[int] = order[begin:end].tolist()
        return rows

    def within(self, op_row: int) -> list[int]:
        """Return a call and all calls inside it."""
        found = [op_row]
        for row in found:  # grows as it goes
            found += self._inside(row)
        return found

    def _near(self, op_row: int) -> Call | None:
        """Return a call that shows the shape and the dtype of the first tensor that it took."""
        call = self._call(op_row)
        return None if call.shape(0) is None or not call.dtypes else call

    def _told(self, op_row: int, types: Sequence[str]) -> tuple[str, ...] | None:
        """Return arguments as texts. A number that became a tensor has its text in the operator's call around it."""
        texts, parent = self._call(op_row).values, int(self._parent[op_row])
        if texts is None or parent < 0 or self._call(parent).name != self._call(op_row).name:
            return texts
        around_types, around = self._call(parent).dtypes or (), self._call(parent).values or ()
        told = {k for k, kind in enumerate(around_types[: len(around)]) if kind == "Scalar"}
        numbers_ = {k for k, kind in enumerate(types) if kind in _NUMBER_TYPES} & told
        return tuple(around[k] if k in numbers_ and not text else text for k, text in enumerate(texts))

    def _inputs(self, seen: Sequence[RecordedTensor]) -> tuple[RecordedTensor, ...]:
        """Return what is overwritten unread has its result's buffer: the storage may have been another's before."""
        given = {(self.storage(s.row), s.layout): s.buffer for s in seen if self._is_output[s.row]}
        taken = (s for s in seen if not self._is_output[s.row])
        return tuple(
            replace(s, buffer=given.get((self.storage(s.row), s.layout), s.buffer)) if s.buffer[0] == "storage" else s
            for s in taken
        )

    def _parents(self, op_row: int) -> tuple[str, ...]:
        found: list[str] = []
        parent = int(self._parent[op_row])
        while parent >= 0 and len(found) < _MOST_PARENTS:
            name = self._call(parent).name
            if not name.startswith("aten::"):
                break
            found.append(name)
            parent = int(self._parent[parent])
        return tuple(found)

    def wanted(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Return writes that a node outside these reads, or that last: the node and the row of `tensors`.

        A first result without a consumer was made for a reason, and counts. As fusion.traffic counts what is written.
        """
        writes, inside = self.flow.writes, set(nodes)
        found: list[tuple[int, int]] = []
        for node in nodes:
            begin, end = np.searchsorted(self._write_node, [node, node + 1]).tolist()
            for write in self._write_order[begin:end].tolist():
                readers = self._readers.get(write, [])
                row = int(writes.tensor_row[write])
                guessed = not writes.fresh[write] and self._guesses
                lasts = bool(self.lasting[write]) and not (guessed and readers)
                unread = not readers and int(self._numbers["position"][row]) == 0
                others = (*readers, *self._may_read(write))
                if lasts or unread or any(reader not in inside for reader in others):
                    found.append((node, row))
        return found

    def let_go(self, nodes: Sequence[int]) -> frozenset[int]:
        """Return rows of `tensors`, of writes that only these nodes read, or that the call around drops."""
        inside = set(nodes)
        rows = self.flow.writes.tensor_row
        found: set[int] = set()
        for node in nodes:
            facts = self.facts(node)
            dropped = {_DROPPED.get((around, facts.operator)) for around in facts.parents}
            found |= {seen.row for seen in facts.outputs if seen.position in dropped and seen.row >= 0}
            begin, end = np.searchsorted(self._write_node, [node, node + 1]).tolist()
            for write in self._write_order[begin:end].tolist():
                readers = self._readers.get(write)
                if readers and inside.issuperset(readers):
                    found.add(int(rows[write]))
        return frozenset(found)

    @cached_property
    def _guesses(self) -> bool:
        """Return whether tensors were inferred: then nothing tells when memory is let go of."""
        return self.timeline.meta.execution_trace is None

    @cached_property
    def _guessed_reads(self) -> MayRead:
        return may_read(self.flow)

    @cached_property
    def _guessers(self) -> dict[int, list[int]]:
        """By storage the nodes that may read it: it is a guess what they read."""
        found: dict[int, list[int]] = {}
        for storage, node in zip(*(each.tolist() for each in self._guessed_reads), strict=True):
            found.setdefault(storage, []).append(node)
        return found

    def _may_read(self, write: int) -> list[int]:
        """Return nodes that may read a write, and run after it."""
        writes = self.flow.writes
        node = int(writes.node[write])
        return [one for one in self._guessers.get(self.storage(int(writes.tensor_row[write])), []) if one > node]

    def evidence(self, nodes: Sequence[int]) -> str:
        """Return the evidence of the weakest read among nodes that decides what they compute.

        Those are reads of what another of them wrote, and guesses that may be such. A guess between other tensors
        decides nothing: each is an input of its own.
        """
        edges, reads = self.flow.edges, self.flow.reads
        members: IntArray = np.array(sorted(nodes), np.int64)
        inside = np.isin(edges.producer, members) & np.isin(edges.consumer, members)
        weakest = int(reads.evidence[edges.read[inside]].min(initial=int(Evidence.PROVEN)))
        if weakest > Evidence.ADJACENT and self._guess_inside(members):
            weakest = int(Evidence.ADJACENT)
        return Evidence(weakest).name.lower()

    def _guess_inside(self, members: IntArray) -> bool:
        """Return whether a member that guesses may read what one of them wrote."""
        flow = self.flow
        guessing = np.unique(flow.reads.node[np.isin(flow.reads.node, members) & self._guessed])
        if not len(guessing):
            return False
        storage, reader = self._guessed_reads
        alike = storage[np.isin(reader, guessing)]
        rows = flow.writes.tensor_row[np.isin(flow.writes.node, members)]
        return bool(np.isin(alike, self._numbers["storage_id"][rows]).any())

    @cached_property
    def _guessed(self) -> BoolArray:
        """For each read whether it is a guess what it read."""
        guessed: BoolArray = self.flow.reads.evidence == Evidence.ADJACENT
        return guessed

    @cached_property
    def _own(self) -> frozenset[int]:
        """Return rows of `tensors` that were read by guess: as a graph's input each may be another tensor."""
        return frozenset(self.flow.reads.tensor_row[self._guessed].tolist())

    def storage(self, row: int) -> int:
        """Return the storage id of one row of `tensors`."""
        return int(self._numbers["storage_id"][row])

    def schema(self, op_row: int) -> str | None:
        """Return the schema of an operator, as recorded."""
        codes, schemas = self._schemas
        return schemas[codes[op_row]] if codes[op_row] >= 0 else None

    def seen(self, row: int) -> RecordedTensor:
        """Return one row of `tensors`."""
        storage = int(self._numbers["storage_id"][row])
        buffer = self.buffer_of.get(row)
        codes, names = self._dtype
        devices, titles = self._device
        text = names[codes[row]] if codes[row] >= 0 else ""
        shape, strides = _row(self._shape, row) or (), _row(self._strides, row) or ()
        guessed = not self.strides_told and bool(shape)
        return RecordedTensor(
            row=row,
            position=int(self._numbers["position"][row]),
            member=-1 if (m := int(self._numbers["list_index"][row])) == MISSING else m,
            buffer=("guess", row)
            if row in self._own
            else ("storage", storage)
            if buffer is None
            else ("buffer", buffer),
            layout=Layout(
                int(self._numbers["offset_elements"][row]), shape, contiguous(shape) if guessed else strides, guessed
            ),
            dtype=dtype(text),
            on_host=devices[row] >= 0 and titles[devices[row]].startswith("cpu"),
        )

    def _call(self, op_row: int) -> Call:
        return self._calls[int(self._calls.number[op_row])]


def _row(column: tuple[Any, Any, Any], row: int) -> tuple[int, ...] | None:
    values, begin, present = column
    return tuple(values[begin[row] : begin[row + 1]].tolist()) if present[row] else None


def kernels_of(timeline: Timeline, activities: Sequence[int]) -> list[tuple[str, list[int] | None]]:
    """Name and grid of each activity."""
    codes, names = string_ids(timeline.activities.column("name"))
    grids = timeline.activities.column("grid").take(list(activities)).to_pylist()
    return [(names[codes[row]][:_LONGEST_NAME], grid) for row, grid in zip(activities, grids, strict=True)]
