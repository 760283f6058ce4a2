"""Which nodes share data, and whether what they do to it lets one kernel do both: pairs, before any group is made."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tracemine.columns import Array, numbers
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray
from tracemine.fusion.kernel import FINISH
from tracemine.fusion.nodes import FusionNodes, Meaning
from tracemine.fusion.record import REFUSALS, Refusal
from tracemine.fusion.roles import TAKES_CONSUMERS, TAKES_PRODUCERS, Role
from tracemine.timeline import Timeline

_SIBLINGS = frozenset({Role.POINTWISE, Role.ROW, Role.GATHER})
_NEXT_READERS = 2  # of one tensor, each is paired with so many of the following: groups chain the rest together
_LEAST_SHARED_BYTES = 16  # two readers of a number are no siblings
# A half (rotary embeddings, gated units) to a quarter (gates of a recurrent cell): a kernel that runs over the whole
# masks the rest. One slice of many, as loops over time take, needs a loop inside the kernel.
_LARGEST_SHARE = 4
ALLOWED = -1
_CODE = {refusal: code for code, refusal in enumerate(REFUSALS)}


class Pairs(Struct, frozen=True):
    """Two nodes that share data, the earlier first."""

    first: IntArray
    second: IntArray
    bytes: IntArray  # of memory traffic that one kernel for both would save; elements where dtypes are not recorded
    vertical: BoolArray  # the second reads what the first writes; else both read the same
    refused: IntArray  # position in REFUSALS, ALLOWED

    def where(self, chosen: BoolArray) -> Pairs:
        """Return some of the pairs."""
        return Pairs(*(getattr(self, f)[chosen] for f in ("first", "second", "bytes", "vertical", "refused")))


def pairs_of(timeline: Timeline, flow: Flow, nodes: FusionNodes, meanings: list[Meaning], call: IntArray) -> Pairs:
    """Return all pairs, producers with their consumers and readers of one tensor with the next ones."""
    vertical, horizontal = _vertical(timeline, flow, nodes, meanings, call), _horizontal(flow, nodes)
    return Pairs(
        *(
            np.concatenate((getattr(vertical, f), getattr(horizontal, f)))
            for f in ("first", "second", "bytes", "vertical", "refused")
        )
    )


def _vertical(timeline: Timeline, flow: Flow, nodes: FusionNodes, meanings: list[Meaning], call: IntArray) -> Pairs:
    edges = flow.edges
    producer, consumer = edges.producer, edges.consumer
    refused = np.full(len(producer), ALLOWED, np.int64)
    written = numbers(timeline.tensors.column("numel"), 0)[flow.writes.tensor_row][edges.write]
    by_position = whole_reads(timeline, flow, nodes, meanings, call)[edges.read]
    finishes = np.array([FINISH in steps for steps in nodes.steps], np.bool_)[nodes.steps_code]
    # In order of how much each says: the first that holds is the reason.
    for reason, holds in (
        (Refusal.LIBRARY, (nodes.role[producer] == Role.LIBRARY) | (nodes.role[consumer] == Role.LIBRARY)),
        (Refusal.PLACE, nodes.place[producer] != nodes.place[consumer]),
        (Refusal.SCANNED, nodes.role[producer] == Role.SCAN),
        (
            Refusal.WHOLE,
            ~np.isin(nodes.role[producer], [*map(int, TAKES_CONSUMERS)]) | by_position | finishes[producer],
        ),
        (Refusal.SLICE, written > _LARGEST_SHARE * np.maximum(nodes.size[consumer], 1)),
        (Refusal.RECOMPUTED, ~np.isin(nodes.role[consumer], [*map(int, TAKES_PRODUCERS)])),
    ):
        refused = np.where((refused == ALLOWED) & holds, _CODE[reason], refused)
    return Pairs(producer, consumer, 2 * edges.bytes, np.ones(len(producer), np.bool_), refused)


def whole_reads(
    timeline: Timeline, flow: Flow, nodes: FusionNodes, meanings: list[Meaning], call: IntArray
) -> BoolArray:
    """Return for each read whether its node reads it, or writes into it, at computed places."""
    position = numbers(timeline.tensors.column("position"), 0)[flow.reads.tensor_row]
    node = flow.reads.node
    table = np.array([(m.looked_up, m.target) for m in meanings] or [(-1, -1)], np.int64)
    found: BoolArray = np.zeros(len(node), np.bool_)
    if len(node):
        found = (table[call[node]] == position[:, None]).any(axis=1)
    return found


def _horizontal(flow: Flow, nodes: FusionNodes) -> Pairs:
    reads = flow.reads
    writer = np.full(len(reads.node), -1, np.int64)  # the last write that it reads: two contents of a place are two
    writer[flow.edges.read] = flow.edges.write
    fit = np.isin(nodes.role[reads.node], [*map(int, _SIBLINGS)]) & (reads.bytes >= _LEAST_SHARED_BYTES)
    fit &= (writer >= 0) | (reads.evidence == Evidence.PROVEN)  # else tensors from outside only look the same
    rows = np.flatnonzero(fit)
    columns: tuple[Array, ...] = (reads.node, writer, reads.end_byte, reads.begin_byte, reads.buffer)
    rows = rows[np.lexsort(tuple(column[rows] for column in columns))]
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for column in columns[1:]:
        same &= column[rows][1:] == column[rows][:-1]
    run = np.concatenate(([0], np.cumsum(~same))) if len(rows) else rows
    first, second, shared = [], [], []
    for step in range(1, _NEXT_READERS + 1):
        together = np.flatnonzero(run[step:] == run[:-step]) if len(rows) > step else np.zeros(0, np.int64)
        one, other = rows[together], rows[together + step]
        apart = reads.node[one] != reads.node[other]
        first.append(reads.node[one[apart]])
        second.append(reads.node[other[apart]])
        shared.append(reads.bytes[one[apart]])
    a, b, nbytes = np.concatenate(first), np.concatenate(second), np.concatenate(shared)
    refused = np.where(nodes.place[a] != nodes.place[b], _CODE[Refusal.PLACE], ALLOWED)
    pairs = Pairs(a, b, nbytes, np.zeros(len(a), np.bool_), refused)
    return pairs.where(refused == ALLOWED)
