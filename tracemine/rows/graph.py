"""Def-use edges among a row set's operators, as arrays: what graph patterns are matched against.

A vertex is a node of the dataflow: an operator with the activities that it launched. Views launch is_tensor, so what is
read through them is read directly. An edge goes from a node to one that wrote what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tracemine.calls import Call, calls_of
from tracemine.columns import booleans, codes, examples, lists, numbers, sorted_unique, string_ids
from tracemine.flow.record import RESOLVED, BoolArray, Evidence, Flow, IntArray, Source
from tracemine.fusion.barriers import unowned
from tracemine.fusion.liveness import lasting
from tracemine.ops.dtypes import dtype as canonical_dtype
from tracemine.ops.infer.arguments import MISFITS
from tracemine.rows.graph_guesses import guesses, in_backward

MOST_AXES: Final = 8  # a shape with more is not known
_NEVER_TAKEN: Final = 0.2  # of what was made before the last step: so much that is never gone, and memory tells nothing
_EMPTY: Final = ("aten::empty", "aten::new_empty")
NO_AXIS: Final = np.iinfo(np.int64).min


class NodeTensors(Struct, frozen=True, kw_only=True, dict=True):
    """The first tensors that each node's operator takes and gives: `of["in0"][node]` is an entry below.

    Equal tensors share an entry. The last entry is that of none, −1: its rank and dtype are not known.
    """

    of: dict[str, IntArray]
    shape: IntArray  # [entries, MOST_AXES], the sizes at the end; −1 in front of them
    rank: IntArray  # −1: not known
    strides: IntArray  # as shape
    has_strides: BoolArray
    dtype: IntArray  # position in dtypes, −1: not known
    dtypes: tuple[str, ...]
    axes_of: Callable[[], IntArray]

    @cached_property
    def axis(self) -> IntArray:
        """Return of each node the one axis along which it works, from the end; NO_AXIS: none, or not known."""
        return self.axes_of()


class NodeGraph(Struct, frozen=True, kw_only=True, dict=True):
    """The operators of a trace, in the order in which they begin, and the def-use edges between them.

    Node i has the activities `activity[activity_begin[i]:activity_begin[i + 1]]`.
    """

    activity: IntArray
    activity_begin: IntArray
    activity_node: IntArray  # for each activity its node, −1: none owns it
    known: BoolArray  # of each node whether anybody says what it reads and writes
    told: BoolArray  # and whether all that it reads is known without a guess
    # One entry a pair of nodes, by consumer and then producer.
    consumer: IntArray
    producer: IntArray
    evidence: npt.NDArray[np.int8]  # flow.Evidence
    usable: BoolArray  # else something unknown may have written over it: it reads, perhaps
    passed: BoolArray  # what is read was allocated in the recording: no parameter, or what else is written in place
    # What each node reads: node i has the entries read_begin[i]:read_begin[i + 1].
    read_begin: IntArray
    read_buffer: IntArray
    read_writer: IntArray  # number of the last write that it reads, −1: what is read comes from outside
    read_first: IntArray  # bytes of the buffer, from … to
    read_last: IntArray
    read_evidence: npt.NDArray[np.int8]
    tensors_of: Callable[[], NodeTensors]
    liveness_of: Callable[[], tuple[BoolArray, bool]]
    guesses_of: Callable[[], Mapping[int, Sequence[int]]] = dict
    backward_of: Callable[[], frozenset[int]] = frozenset

    def __len__(self) -> int:
        return len(self.known)

    @cached_property
    def first_activity(self) -> IntArray:
        """The first activity of each node; any of a node that has none. There is one at least."""
        return self.activity[np.minimum(self.activity_begin[:-1], len(self.activity) - 1)]

    def any_of(self, flags: BoolArray) -> BoolArray:
        """Return for each node whether one of its activities has a flag."""
        return self._over_activities(flags, np.logical_or)

    def all_of(self, flags: BoolArray) -> BoolArray:
        """Return for each node whether all its activities have a flag."""
        return self._over_activities(flags, np.logical_and)

    def _over_activities(self, flags: BoolArray, combine: np.ufunc) -> BoolArray:
        found: BoolArray = flags[self.first_activity]
        nodes, activity, begin = self._several
        if len(nodes):
            found[nodes] = combine.reduceat(flags[activity], begin)
        return found

    @cached_property
    def _several(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the nodes with more activities than one, those activities, and where each node's begin: few."""
        count = np.diff(self.activity_begin)
        nodes = np.flatnonzero(count > 1)
        activity = self.activity[np.repeat(count > 1, count)]
        return nodes, activity, np.append(0, np.cumsum(count[nodes]))[:-1]

    @cached_property
    def keys(self) -> IntArray:
        """Return a number for each pair of nodes, in order: `key(consumer, producer)`."""
        return self.key(self.consumer, self.producer)

    def key(self, consumer: IntArray, producer: IntArray) -> IntArray:
        """Return the number that an edge between two nodes would have among `keys`."""
        return consumer * len(self) + producer

    @cached_property
    def by_producer(self) -> IntArray:
        """Return the pairs in order of the producer, then of the consumer."""
        return np.argsort(self.producer, kind="stable")

    @cached_property
    def tensors(self) -> NodeTensors:
        """Return what its operators take and give; made when it is first asked for."""
        return self.tensors_of()

    @cached_property
    def live_out(self) -> BoolArray:
        """Return whether each node's result may have a consumer that no edge names: after its step, or unknown."""
        return self._liveness[0]

    @cached_property
    def guesses(self) -> Mapping[int, Sequence[int]]:
        """Return, by node, those that may have to run after it where it is a guess what they read or write."""
        return self.guesses_of()

    @cached_property
    def backward(self) -> frozenset[int]:
        """Return the nodes that run in a backward pass."""
        return self.backward_of()

    def readers(self, node: int) -> list[int]:
        """Return the nodes that read what a node wrote."""
        begin, end = np.searchsorted(self._producers, (node, node + 1))
        found: list[int] = self.consumer[self.by_producer[begin:end]].tolist()
        return found

    def producers(self, node: int) -> list[int]:
        """Return the nodes that wrote what a node reads."""
        begin, end = self.consumer.searchsorted((node, node + 1)).tolist()
        found: list[int] = self.producer[begin:end].tolist()
        return found

    @cached_property
    def _producers(self) -> IntArray:
        return self.producer[self.by_producer]

    @property
    def lifetimes_known(self) -> bool:
        """Return whether recorded memory tells how long results are there; else they go with their last consumer."""
        return self._liveness[1]

    @cached_property
    def _liveness(self) -> tuple[BoolArray, bool]:
        return self.liveness_of()


def graph_of(flow: Flow) -> NodeGraph | None:
    """Return the graph of a trace's dataflow; None where there is none.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> graph_of(flow(Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto")))) is None
    True
    """
    nodes, reads, edges = flow.nodes, flow.reads, flow.edges
    if not len(nodes):
        return None
    count = len(nodes)
    writer = np.full(len(reads.node), -1, np.int64)
    np.maximum.at(writer, edges.read, edges.write)
    guessed = ~reads.resolved | (reads.evidence < Evidence.CONSISTENT)
    told = nodes.known.copy()
    told[reads.node[guessed]] = False
    # What comes from outside looks the same where it is inferred, and not known to be the same.
    evidence = np.where((writer < 0) & (reads.evidence < Evidence.PROVEN), Evidence.ADJACENT, reads.evidence)
    consumer, producer, weakest, usable, passed = _pairs(flow, count)
    return NodeGraph(
        activity=nodes.activity,
        activity_begin=nodes.activity_begin,
        activity_node=flow.activity_node,
        known=nodes.known,
        told=told,
        consumer=consumer,
        producer=producer,
        evidence=weakest,
        usable=usable,
        passed=passed,
        read_begin=np.searchsorted(reads.node, np.arange(count + 1)),
        read_buffer=reads.buffer,
        read_writer=writer,
        read_first=reads.begin_byte,
        read_last=reads.end_byte,
        read_evidence=evidence.astype(np.int8),
        tensors_of=lambda: _tensors(flow),
        liveness_of=lambda: _liveness(flow),
        guesses_of=lambda: guesses(flow),
        backward_of=lambda: in_backward(flow),
    )


def _pairs(flow: Flow, count: int) -> tuple[IntArray, IntArray, npt.NDArray[np.int8], BoolArray, BoolArray]:
    """Return each pair of nodes once, with the best evidence of the reads that make it one."""
    edges, reads = flow.edges, flow.reads
    usable = np.isin(reads.source[edges.read], (*RESOLVED, Source.PARTLY_HOLE))
    evidence = reads.evidence[edges.read].astype(np.int64)
    key = edges.consumer * count + edges.producer
    worse = np.where(usable, 0, len(Evidence)) + len(Evidence) - 1 - evidence  # the best of a pair stands first
    order = np.argsort(key * (2 * len(Evidence)) + worse, kind="stable")
    begins = np.flatnonzero(np.concatenate(([True], key[order][1:] != key[order][:-1]))[: len(order)])
    first = order[begins]
    made = (flow.writes.made | flow.writes.fresh)[edges.write][order]
    passed = np.logical_or.reduceat(made, begins) if len(begins) else made
    return edges.consumer[first], edges.producer[first], evidence[first].astype(np.int8), usable[first], passed


def _liveness(flow: Flow) -> tuple[BoolArray, bool]:
    """Return which results are live-out of their step, or may be read unrecorded; and whether memory tells.

    A kernel that no operator owns, a graph's replay and an operator without a schema may read whatever is there. Where
    memory is not used again, that a result is there says nothing: what was made in the recording and read is then taken
    to go with its last consumer, as where no memory was recorded.
    """
    flow = replace(flow, writes=replace(flow.writes, fresh=flow.writes.fresh | _into_empty(flow)))
    nodes, writes = flow.nodes, flow.writes
    count = len(nodes)
    passing = np.isin(writes.buffer, writes.buffer[writes.fresh]) & flow.read_by_others
    told = _memory_is_used_again(flow, passing)
    live, gone = lasting(flow), writes.gone_node
    if not told:
        reader = np.full(len(writes), -1)
        np.maximum.at(reader, flow.edges.write, flow.edges.consumer)
        live, gone = writes.live_out & ~passing, np.where(passing, reader + 1, gone)
    step = np.maximum.accumulate(nodes.step_row)
    end = np.searchsorted(step, step, "right")
    last = np.where(gone < 0, end[writes.node], np.minimum(gone, end[writes.node]))
    silent = np.concatenate(([0], np.cumsum(~nodes.known)))  # of each node how many stand before it
    launched = np.zeros(count + 2, np.int64)
    launched[unowned(flow.timeline, flow) + 1] = 1
    launched = np.cumsum(launched)  # of each node and behind it, how often something ran up to right before it
    between = silent[last] - silent[writes.node + 1] + launched[last + 1] - launched[writes.node + 1]
    found = np.zeros(count, np.bool_)
    found[writes.node[live | (between > 0)]] = True
    return found, told and bool((flow.reads.evidence == Evidence.PROVEN).any())


def _into_empty(flow: Flow) -> BoolArray:
    """Return the writes that fill what `empty` gave during the recording, as a cast does: new results like others."""
    tensors, ops = flow.timeline.tensors, flow.timeline.ops
    names, texts = string_ids(ops.column("name"))
    empties = np.array([*(text.startswith(_EMPTY) for text in texts), False], np.bool_)[np.append(names, -1)]
    op_row = numbers(tensors.column("op_row"), -1)
    op_row = np.where((op_row >= 0) & (op_row < ops.num_rows), op_row, -1)
    storage = numbers(tensors.column("storage_id"))
    given = sorted_unique(storage[booleans(tensors.column("is_output")) & empties[op_row]])
    found: BoolArray = np.isin(storage[flow.writes.tensor_row], given)
    return found


def _memory_is_used_again(flow: Flow, passing: BoolArray) -> bool:
    """Return whether memory of earlier steps is used again, as a GPU's caching allocator does.

    In recordings of GPUs all of it is; where memory comes from elsewhere a third and more is not.
    """
    step = np.maximum.accumulate(flow.nodes.step_row)
    early = passing & (step[flow.writes.node] < step[-1])
    return not early.any() or float((flow.writes.gone_node[early] < 0).mean()) < _NEVER_TAKEN


def _tensors(flow: Flow) -> NodeTensors:
    """Return what the operators of the nodes take and give; equal steps have the tensors of one of them."""
    if flow.shortened is None or flow.period is None:
        return _all_tensors(flow)
    found, own = _all_tensors(flow.shortened), flow.period.nodes.copied_from()
    of = {place: entry[own] for place, entry in found.of.items()}
    return replace(found, of=of, axes_of=lambda: _axes(flow))  # numbers among arguments may differ from step to step


def _all_tensors(flow: Flow) -> NodeTensors:
    """Return what the operators of the nodes take and give, from the timeline's tensors."""
    table, nodes = flow.timeline.tensors, flow.nodes
    node_of = np.full(flow.timeline.ops.num_rows + 1, -1, np.int64)
    node_of[nodes.op_row] = np.arange(len(nodes))
    op_row = numbers(table.column("op_row"), -1)
    node = node_of[np.where((op_row >= 0) & (op_row < len(node_of) - 1), op_row, -1)]
    chosen = np.flatnonzero(node >= 0)
    given, position = booleans(table.column("is_output"))[chosen], numbers(table.column("position"), 0)[chosen]
    order = np.lexsort((np.arange(len(chosen)), position, given, node[chosen]))
    chosen, given, position = chosen[order], given[order], position[order]
    owner = node[chosen]
    new = np.ones(len(chosen), np.bool_)  # of a list, the first member
    new[1:] = (owner[1:] != owner[:-1]) | (given[1:] != given[:-1]) | (position[1:] != position[:-1])
    chosen, given, owner = chosen[new], given[new], owner[new]
    side = owner * 2 + given
    turn = np.arange(len(side)) - np.searchsorted(side, side)
    of = {}
    for place, (is_output, number) in {"in0": (0, 0), "in1": (0, 1), "in2": (0, 2), "out": (1, 0)}.items():
        of[place] = np.full(len(nodes), -1, np.int64)
        here = np.flatnonzero((given == is_output) & (turn == number))
        of[place][owner[here]] = here
    ids, names = string_ids(table.column("dtype"))
    ids = ids[chosen]
    both = [_from_the_end(*lists(table.column(name)), chosen) for name in ("shape", "strides")]
    entry = codes(ids, *both[0], *both[1])
    example = examples(entry)
    (shape, rank), (strides, stride_rank) = (_right(*columns, entries=example) for columns in both)
    dtypes = tuple(dict.fromkeys(canonical_dtype(name) or name for name in names))
    recode = np.array([*(dtypes.index(canonical_dtype(name) or name) for name in names), -1], np.int64)
    return NodeTensors(
        of={place: np.append(entry, -1)[at] for place, at in of.items()},
        shape=shape,
        rank=rank,
        strides=strides,
        has_strides=(stride_rank == rank) & (rank >= 0),
        dtype=recode[np.append(ids[example], -1)],
        dtypes=dtypes,
        axes_of=lambda: _axes(flow),
    )


def _from_the_end(values: IntArray, ends: IntArray, present: BoolArray, rows: IntArray) -> list[IntArray]:
    """Return the lengths of lists, then their last entries, those before, and so on; −1 where there is none, or where
    a list is too long.
    """
    end = ends[1:][rows]
    length = np.where(present[rows], np.diff(ends)[rows], -1)
    length[length > MOST_AXES] = -1
    found = [length]
    for back in range(1, int(length.max(initial=0)) + 1):
        here = np.flatnonzero(length >= back)
        column = np.full(len(rows), -1, np.int64)
        column[here] = values[end[here] - back]
        found.append(column)
    return found


def _right(length: IntArray, *sizes: IntArray, entries: IntArray) -> tuple[IntArray, IntArray]:
    """Return these lists as a matrix, aligned to the right, and their lengths; a row of −1 for none comes last.

    length, sizes: as `_from_the_end` gives them.
    """
    found = np.full((len(entries) + 1, MOST_AXES), -1, np.int64)
    for back, column in enumerate(sizes, 1):
        found[:-1, -back] = column[entries]
    return found, np.append(length[entries], -1)


def _axes(flow: Flow) -> IntArray:
    """Return the one axis along which each node works, from the end; each distinct call is looked at once."""
    return calls_of(flow.timeline).spread(flow.nodes.op_row, _axis, NO_AXIS)


def _axis(call: Call) -> int:
    """Return the one axis of a call, from the end.

    >>> _axis(Call("aten::_softmax", ((2, 4, 8), (), ()), ("float", "Scalar", "Scalar"), None, ("", "2", "False")))
    -1
    """
    given = call.arguments
    if given is None or call.values is None:
        return NO_AXIS
    try:
        dims = given.integers("dim") if "dim" in given else None
    except MISFITS:
        return NO_AXIS
    rank = len((call.members(0) or (call.shape(0) or (),))[0])
    if dims is None or len(dims) != 1 or not -rank <= dims[0] < rank:
        return NO_AXIS
    return dims[0] - rank if dims[0] >= 0 else dims[0]
