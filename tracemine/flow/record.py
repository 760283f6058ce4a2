"""Hold dataflow as arrays: nodes, what they read and write, and def-use edges between them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from tracemine.flow.period import Period
from tracemine.timeline import Timeline

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Source(IntEnum):
    """Where what a node read came from."""

    WRITTEN = 0  # by the nodes that its edges name
    OUTSIDE = 1  # from before the recording: a parameter, an input, a cache
    PARTLY_OUTSIDE = 2  # some of it by the nodes that its edges name, the rest from before the recording
    HOLE = 3  # allocated during the recording, and not seen written
    PARTLY_HOLE = 4  # as HOLE, but the nodes that its edges name wrote some of it
    UNCERTAIN = 5  # an operator that does not say what it writes may have written it, or too many did


class Evidence(IntEnum):
    """How sure it is where what a node read came from, weakest first."""

    ADJACENT = 0  # a guess: the likeliest of several
    CONSISTENT = 1  # the one candidate that fits by shape, dtype, stride and order
    PROVEN = 2  # recorded: the storages have names


# All that is read is accounted for.
RESOLVED = (Source.WRITTEN, Source.OUTSIDE, Source.PARTLY_OUTSIDE)


class Nodes(Struct, frozen=True, kw_only=True):
    """What does the work: an operator with all activities that it, or an operator inside it, launched.

    In the order in which they begin, over all threads of a part (`order.parts`). Node i owns the activities
    `activity[activity_begin[i]:activity_begin[i + 1]]`.
    """

    op_row: IntArray  # row of `ops`: the outermost of the node's operators
    step_row: IntArray  # row of `steps`, −1 outside every step
    known: BoolArray  # whether the execution trace has it; what an unknown node reads and writes is unknown
    activity: IntArray  # rows of `activities`
    activity_begin: IntArray

    def __len__(self) -> int:
        return len(self.op_row)


class Reads(Struct, frozen=True, kw_only=True):
    """One tensor that a node reads, by node and position. Bytes are counted in its buffer: a storage, counted anew
    when it is allocated anew. What lies between begin and end need not all belong to a tensor with strides.
    """

    node: IntArray
    tensor_row: IntArray  # row of `tensors`: an input of the node's operator or of one inside it
    buffer: IntArray
    begin_byte: IntArray
    end_byte: IntArray
    bytes: IntArray  # of distinct elements: what stride 0 repeats counts once
    source: npt.NDArray[np.int8]  # Source
    evidence: npt.NDArray[np.int8]  # Evidence of the source, and so of the edges that end here

    @property
    def resolved(self) -> BoolArray:
        """Whether all that is read is known to come from a node or from outside."""
        return np.isin(self.source, RESOLVED)


class Writes(Struct, frozen=True, kw_only=True):
    """One tensor that a node writes, in the order of writing; begin, end and bytes as in `Reads`."""

    node: IntArray
    tensor_row: IntArray  # row of `tensors`: an output, or an input that is written in place
    buffer: IntArray
    begin_byte: IntArray
    end_byte: IntArray
    bytes: IntArray
    fresh: BoolArray  # a new buffer's first content; else written in place or through out=
    made: BoolArray  # its buffer was allocated during the recording
    gone_node: IntArray  # the first node that no longer finds it (overwritten, or memory used again); −1: never gone
    live_out: BoolArray  # still there at the end of its step, or of the recording: it may be wanted later

    def __len__(self) -> int:
        return len(self.node)


class Edges(Struct, frozen=True, kw_only=True):
    """One read of what a node wrote, and a later one reads; by read, in the order of writing."""

    write: IntArray  # position in Writes
    read: IntArray  # position in Reads
    producer: IntArray  # node
    consumer: IntArray  # node
    bytes: IntArray  # of the read that lie in the write, at most


def _none() -> IntArray:
    return np.zeros(0, np.int64)


# Storages that a node may read, each one that looks right, and the node: which of them it reads is a guess.
MayRead = tuple[IntArray, IntArray]


class Flow(Struct, frozen=True, kw_only=True):
    """Def-use edges between operators. Where neither tensors nor shapes were recorded there are no nodes.

    A `tensor_row` is a row of `timeline.tensors`; inferred ones are stored nowhere.

    `order_before[i]` must run before `order_after[i]` though no data goes from the one to the other: the later one
    overwrites what the earlier one reads or writes.
    """

    timeline: Timeline  # the one given, or where it has no dataflow, that with inferred tensors and schemas
    nodes: Nodes
    reads: Reads
    writes: Writes
    edges: Edges
    order_before: IntArray
    order_after: IntArray
    activity_node: IntArray  # for each activity its node, −1: none owns it
    # The same of pairs that may be such, or not: it is a guess what the later one reads or writes.
    perhaps_before: IntArray = field(default_factory=_none)
    perhaps_after: IntArray = field(default_factory=_none)
    inferred_from: Timeline | None = None  # the one given, where its dataflow was inferred
    shortened: Flow | None = None  # what it was copied from, where steps are equal: that without most of them
    period: Period | None = None  # and which those are

    @property
    def read_by_others(self) -> BoolArray:
        """For each write, whether another node reads it."""
        read = np.zeros(len(self.writes), np.bool_)
        read[self.edges.write] = True
        return read
