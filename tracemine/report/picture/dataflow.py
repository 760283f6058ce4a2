"""Dataflow of a finding, as it is drawn: the operators of one occurrence, and the tensors between them and around."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.columns import numbers
from tracemine.findings.record import Finding
from tracemine.flow import Evidence
from tracemine.flow.record import BoolArray, Flow, IntArray
from tracemine.fusion.liveness import lasting
from tracemine.ops import dtype
from tracemine.timeline import Timeline

_MOST_BOXES = 24
_MOST_TENSORS = 12  # into or out of one operator


class Box(Struct, frozen=True):
    """An operator and the kernels that it launched, in a finding's occurrence."""

    name: str
    activities: tuple[int, ...]  # rows of `activities`
    ns: int


class DrawnTensor(Struct, frozen=True, kw_only=True):
    """A tensor that one operator makes and another takes. Null end: outside of the finding."""

    producer: int | None  # position in the boxes
    consumer: int | None
    shape: tuple[int, ...] | None  # null: not recorded
    dtype: str | None
    bytes: int | None
    evidence: str | None  # of where it comes from; null: what a finding makes, or comes from outside


class DataflowPicture(Struct, frozen=True, kw_only=True):
    """Dataflow of a finding's first occurrence."""

    boxes: tuple[Box, ...]
    tensors: tuple[DrawnTensor, ...]  # inside, then into the boxes, then out of them
    boxes_left_out: int  # behind those that are drawn


def dataflow_of(timeline: Timeline, flow: Flow, findings: Iterable[Finding]) -> dict[str, DataflowPicture]:
    """Return what is drawn of each finding whose operators' reads and writes are known.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/chain")
    >>> drawn = dataflow_of(analysis.timeline, analysis.dataflow, mined(analysis).findings)
    >>> [(len(one.boxes), len(one.tensors)) for one in drawn.values()]
    [(4, 6)]
    """
    if not len(flow.nodes):
        return {}
    within = _Within(timeline, flow)
    drawn = {
        finding.fingerprint: within.drawn(finding.activities[0])
        for finding in findings
        if finding.on_gpu and finding.activities
    }
    return {fingerprint: each for fingerprint, each in drawn.items() if each is not None}


class _Within:
    """Reads, writes and edges of a flow by node, to be looked up for one occurrence after another."""

    def __init__(self, timeline: Timeline, flow: Flow) -> None:
        self.timeline, self.flow = timeline, flow
        self.dur = numbers(timeline.activities.column("dur_ns"))
        self.op_name = timeline.ops.column("name")

    @cached_property
    def _edges(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.flow.edges.consumer, kind="stable")
        return order, self.flow.edges.consumer[order]

    @cached_property
    def _written(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.flow.writes.node, kind="stable")
        return order, self.flow.writes.node[order]

    @cached_property
    def _lasts(self) -> BoolArray:
        return lasting(self.flow)

    @cached_property
    def _readers(self) -> tuple[IntArray, IntArray]:
        """Return the edges in the order of what was written, and that."""
        order = np.argsort(self.flow.edges.write, kind="stable")
        return order, self.flow.edges.write[order]

    def drawn(self, rows: Sequence[int]) -> DataflowPicture | None:
        """Return what is drawn of one occurrence; None where an operator's reads and writes are not known."""
        nodes = self.flow.activity_node[np.array(rows, np.int64)]
        known = len(nodes) and (nodes >= 0).all() and self.flow.nodes.known[nodes].all()
        if not known:
            return None
        members = list(dict.fromkeys(nodes.tolist()))
        place = {node: at for at, node in enumerate(members[:_MOST_BOXES])}
        boxes = [self._box(node, [row for row, of in zip(rows, nodes, strict=True) if of == node]) for node in place]
        inside, taken = self._inside(place)
        return DataflowPicture(
            boxes=tuple(boxes),
            tensors=(*inside, *self._into(place, taken), *self._out_of(place, set(members))),
            boxes_left_out=len(members) - len(boxes),
        )

    def _box(self, node: int, rows: Sequence[int]) -> Box:
        name = self.op_name[int(self.flow.nodes.op_row[node])].as_py()
        return Box(name, tuple(rows), int(self.dur[list(rows)].sum()))

    def _inside(self, place: dict[int, int]) -> tuple[list[DrawnTensor], set[int]]:
        """Return the tensors between the boxes, each once for each pair, and the reads that they are."""
        found: dict[tuple[int, int, int], DrawnTensor] = {}
        taken = set()
        order, consumers = self._edges
        for node, at in place.items():
            for edge in order[slice(*np.searchsorted(consumers, (node, node + 1)))].tolist():
                producer, read = int(self.flow.edges.producer[edge]), int(self.flow.edges.read[edge])
                if producer in place and producer != node:
                    taken.add(read)
                    key = (place[producer], at, int(self.flow.reads.buffer[read]))
                    evidence = Evidence(int(self.flow.reads.evidence[read])).name.lower()
                    row, count = int(self.flow.reads.tensor_row[read]), int(self.flow.edges.bytes[edge])
                    found.setdefault(key, self._tensor(row, count, key[0], at, evidence))
        return list(found.values()), taken

    def _into(self, place: dict[int, int], taken: set[int]) -> list[DrawnTensor]:
        """Return what the boxes read that no other of them wrote, a buffer once for each box."""
        found = []
        for node, at in place.items():
            reads = range(*np.searchsorted(self.flow.reads.node, (node, node + 1)).tolist())
            buffers: dict[int, DrawnTensor] = {}
            for read in reads:
                if read not in taken:
                    row, count = int(self.flow.reads.tensor_row[read]), int(self.flow.reads.bytes[read])
                    buffers.setdefault(int(self.flow.reads.buffer[read]), self._tensor(row, count, None, at, None))
            found += list(buffers.values())[:_MOST_TENSORS]
        return found

    def _out_of(self, place: dict[int, int], members: set[int]) -> list[DrawnTensor]:
        """Return the live-outs: what others than the members read, or what may be wanted after the step."""
        found = []
        order, written_by = self._written
        for node, at in place.items():
            buffers: dict[int, DrawnTensor] = {}
            for write in order[slice(*np.searchsorted(written_by, (node, node + 1)))].tolist():
                if self._lives(write, members):
                    row, count = int(self.flow.writes.tensor_row[write]), int(self.flow.writes.bytes[write])
                    buffers.setdefault(int(self.flow.writes.buffer[write]), self._tensor(row, count, at, None, None))
            found += list(buffers.values())[:_MOST_TENSORS]
        return found

    def _lives(self, write: int, members: set[int]) -> bool:
        order, written = self._readers
        readers = self.flow.edges.consumer[order[slice(*np.searchsorted(written, (write, write + 1)))]].tolist()
        return bool(self._lasts[write]) or any(reader not in members for reader in readers)

    def _tensor(
        self, row: int, count: int, producer: int | None, consumer: int | None, evidence: str | None
    ) -> DrawnTensor:
        table: pa.Table = self.flow.timeline.tensors
        shape, recorded, itemsize = (table.column(name)[row].as_py() for name in ("shape", "dtype", "itemsize_bytes"))
        return DrawnTensor(
            producer=producer,
            consumer=consumer,
            shape=None if shape is None else tuple(shape),
            dtype=None if recorded is None else dtype(recorded) or recorded,
            bytes=None if itemsize is None else count,
            evidence=evidence,
        )
