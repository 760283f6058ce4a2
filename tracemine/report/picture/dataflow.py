"""Dataflow of a finding, as it is drawn: the operators of one occurrence, and the tensors between them and around."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tracemine.columns import numbers
from tracemine.findings.record import Finding
from tracemine.flow import Evidence
from tracemine.flow.record import Flow, IntArray, Reads, Writes
from tracemine.fusion.liveness import lasting
from tracemine.ops import dtype
from tracemine.timeline import Timeline

_MOST_BOXES = 24
_MOST_TENSORS = 12  # into or out of one operator
_Ends = tuple[int | None, int | None]  # a tensor's producer and consumer


class Box(Struct, frozen=True):
    """An operator of a finding's occurrence, and the time of the kernels that it launched."""

    name: str
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
    every = ((one.fingerprint, within.drawn(one.activities[0])) for one in findings if one.on_gpu and one.activities)
    return {fingerprint: drawn for fingerprint, drawn in every if drawn is not None}


def _finder(keys: IntArray) -> Callable[[int], list[int]]:
    """Return what finds the rows that have a key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    return lambda key: order[slice(*np.searchsorted(ordered, (key, key + 1)))].tolist()


class _Within:
    """Reads, writes and edges of a flow by node, to be looked up for one occurrence after another."""

    def __init__(self, timeline: Timeline, flow: Flow) -> None:
        self.flow, self.lasts = flow, lasting(flow)
        self.dur, self.op_name = numbers(timeline.activities.column("dur_ns")), timeline.ops.column("name")
        self.edges_to, self.edges_of_write = _finder(flow.edges.consumer), _finder(flow.edges.write)
        self.reads_of, self.writes_of = _finder(flow.reads.node), _finder(flow.writes.node)

    def drawn(self, rows: Sequence[int]) -> DataflowPicture | None:
        """Return what is drawn of one occurrence; None where an operator's reads and writes are not known."""
        nodes = self.flow.activity_node[np.array(rows, np.int64)]
        if not len(nodes) or (nodes < 0).any() or not self.flow.nodes.known[nodes].all():
            return None
        kernels = np.array(rows)
        members = list(dict.fromkeys(nodes.tolist()))
        place = {node: at for at, node in enumerate(members[:_MOST_BOXES])}
        inside = [edge for node in place for edge in self._edges_to(node, place)]
        taken = {int(self.flow.edges.read[edge]) for edge in inside}
        into = {node: [read for read in self.reads_of(node) if read not in taken] for node in place}
        out_of = {node: [write for write in self.writes_of(node) if self._lives(write, members)] for node in place}
        return DataflowPicture(
            boxes=tuple(
                Box(
                    self.op_name[int(self.flow.nodes.op_row[node])].as_py(), int(self.dur[kernels[nodes == node]].sum())
                )
                for node in place
            ),
            tensors=(
                *self._between(inside, place),
                *self._beside(self.flow.reads, into, lambda node: (None, place[node])),
                *self._beside(self.flow.writes, out_of, lambda node: (place[node], None)),
            ),
            boxes_left_out=len(members) - len(place),
        )

    def _edges_to(self, node: int, place: Mapping[int, int]) -> list[int]:
        """Return the edges from another box."""
        producer = self.flow.edges.producer
        return [edge for edge in self.edges_to(node) if (of := int(producer[edge])) in place and of != node]

    def _between(self, inside: Iterable[int], place: Mapping[int, int]) -> Iterable[DrawnTensor]:
        """Return the tensors between the boxes, each once for each pair."""
        edges, reads = self.flow.edges, self.flow.reads
        found: dict[tuple[int, int, int], DrawnTensor] = {}
        for edge in inside:
            read, ends = edges.read[edge], (place[int(edges.producer[edge])], place[int(edges.consumer[edge])])
            evidence = Evidence(int(reads.evidence[read])).name.lower()
            tensor = self._tensor(reads.tensor_row[read], edges.bytes[edge], ends, evidence)
            found.setdefault((*ends, int(reads.buffer[read])), tensor)
        return found.values()

    def _beside(
        self, uses: Reads | Writes, of: Mapping[int, Sequence[int]], ends: Callable[[int], _Ends]
    ) -> Iterator[DrawnTensor]:
        """Yield what goes into each box from elsewhere, or out of it: a buffer once for each box."""
        for node, rows in of.items():
            first = {int(uses.buffer[row]): row for row in reversed(rows)}
            for row in sorted(first.values())[:_MOST_TENSORS]:
                yield self._tensor(uses.tensor_row[row], uses.bytes[row], ends(node))

    def _lives(self, write: int, members: Sequence[int]) -> bool:
        """Return whether others than the members read it, or it may be wanted after the step."""
        readers = self.flow.edges.consumer[self.edges_of_write(write)]
        return bool(self.lasts[write] or (~np.isin(readers, members)).any())

    def _tensor(self, row: int, count: int, ends: _Ends, evidence: str | None = None) -> DrawnTensor:
        table = self.flow.timeline.tensors
        shape, recorded, itemsize = (
            table.column(name)[int(row)].as_py() for name in ("shape", "dtype", "itemsize_bytes")
        )
        return DrawnTensor(
            producer=ends[0],
            consumer=ends[1],
            shape=None if shape is None else tuple(shape),
            dtype=None if recorded is None else dtype(recorded) or recorded,
            bytes=None if itemsize is None else int(count),
            evidence=evidence,
        )
