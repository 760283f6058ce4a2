"""Which nodes compute in every step what they have computed in the step before, as compilers number values.

A value's number identifies an operator, all its arguments, and the numbers of what it reads; a tensor from outside that
nothing writes during the recording is a value of its own. What has one number is one value. A number that every step
has is computed anew in every step. Where one of these is not known, there is no number.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from tracemine.calls import Call, calls_of
from tracemine.columns import codes, is_among, numbers, ranges, sorted_unique, string_codes, string_ids, unique_pairs
from tracemine.flow.effects import effects
from tracemine.flow.record import BoolArray, Evidence, Flow, IntArray, Source
from tracemine.ops.facts import base_name

# What gives the same for the same arguments; random numbers, collectives, reads of the host and other libraries do not.
_REPEATS: Final = frozenset(
    (
        *("pointwise", "copy", "fill", "reduction", "norm", "softmax", "gather", "scatter", "embedding", "scan"),
        *("sort", "pool", "resample", "quantize", "gemm", "conv", "fft", "linalg"),
    )
)
_INDEXED: Final = frozenset({"gather", "scatter", "embedding"})  # lists of indices have no recorded shapes
# A number that Python passes as a tensor is not recorded. A whole one that is added to constants or compared with them
# may be a place that moves on by one in each step; what scales, and a decimal one, is taken to be the same.
_SCALES: Final = frozenset({"mul", "div", "true_divide", "floor_divide", "pow"})
_DECIMAL, _WHOLE = "double", "long int"
_COUNTER: Final = re.compile(r"_\d+(?=\.|$)")  # of a module among those of its class
_PLAIN: Final = ("Scalar", "ScalarList")
_MOST_READ, _MOST_LEVELS = 32, 256  # pieces that one node reads; nodes one behind the other. Real ones stay far below


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a node, in a recording of two steps or more."""

    value: IntArray  # equal ones compute the same, and every step computes it; −1: not known to be so
    marks: IntArray  # its own and those of all that it is computed from
    evidence: npt.NDArray[np.int8]  # Evidence of the weakest read that it rests on
    assumed: BoolArray  # it rests on a number that was not recorded

    @property
    def known(self) -> BoolArray:
        return self.value >= 0


class MayRepeat(msgspec.Struct, frozen=True, kw_only=True):
    """One entry a node, before any has a value."""

    may: BoolArray  # whether it may have one
    calls: IntArray  # equal ones call the same operator with the same arguments; −1: not all of them are known
    assumed: BoolArray  # it takes a number that was not recorded
    shifts: BoolArray  # and may shift a place by it
    whole: BoolArray  # one of those is an integer


def may_repeat(flow: Flow, silent: IntArray) -> MayRepeat | None:
    """Return which nodes may compute the same in every step; None where no node is known to begin with.

    `silent`: before each node how much has run whose writes are unknown.

    >>> from tracemine.flow import flow
    >>> from tracemine.timeline import Meta, Timeline
    >>> empty = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))
    >>> may_repeat(flow(empty), np.zeros(0, np.int64)) is None
    True
    """
    first = np.bincount(flow.edges.consumer, minlength=len(flow.nodes)) == 0
    may = (flow.nodes.step_row >= 0) & _accounted(flow, silent) & _makes_new(flow) & ~_placed_by_host(flow)
    if not (may & first).any():
        return None
    calls, assumed, shifts, whole = _calls(flow, may)
    may &= calls >= 0
    found = MayRepeat(may=may, calls=calls, assumed=assumed, shifts=shifts, whole=whole)
    return found if (may & first).any() else None


def repeated(flow: Flow, marks: IntArray, known: MayRepeat, without: BoolArray, beside: int = 0) -> Repeated:
    """Return the nodes that compute the same in every step.

    `marks`: bits of each node that rests on more than constants, which go to all that is computed from it. `beside`:
    bits that constants may have too. `without`: nodes that are not looked at.
    """
    count, edges, reads = len(flow.nodes), flow.edges, flow.reads
    steps, step = np.unique(flow.nodes.step_row, return_inverse=True)
    calls, shifts, may = known.calls, known.shifts, known.may & ~without
    evidence = np.full(count, Evidence.PROVEN, np.int8)
    np.minimum.at(evidence, reads.node, reads.evidence.astype(np.int8))
    value = np.full(count + 1, -1)  # the last one is that of none
    found = Repeated(value=value[:-1], marks=marks.copy(), evidence=evidence, assumed=known.assumed.copy())
    within = steps >= 0
    atoms = _Atoms.of(flow, may)
    may &= atoms.count <= _MOST_READ
    pending = np.bincount(edges.consumer, minlength=count)
    by_producer = np.argsort(edges.producer, kind="stable")
    begin = np.searchsorted(edges.producer[by_producer], np.arange(count + 1))
    ready = np.flatnonzero(may & (pending == 0)) if within.sum() > 1 else np.zeros(0, np.int64)
    used = 0
    for _ in range(_MOST_LEVELS):
        if not len(ready):
            break
        number = atoms.numbered(ready, calls, value)
        kept = _in_every_step(number, step[ready], int(within.sum()))
        kept &= ~shifts[ready] | (found.marks[ready] & ~beside != 0)
        ready = ready[kept]
        found.value[ready] = number[kept] + used
        used += int(number.max(initial=-1)) + 1
        out = by_producer[ranges(begin[ready], begin[ready + 1] - begin[ready])]
        producer, consumer = edges.producer[out], edges.consumer[out]
        np.subtract.at(pending, consumer, 1)
        np.bitwise_or.at(found.marks, consumer, found.marks[producer])
        np.minimum.at(found.evidence, consumer, found.evidence[producer])
        np.logical_or.at(found.assumed, consumer, found.assumed[producer])
        ready = sorted_unique(consumer[(pending[consumer] == 0) & may[consumer]])
    return found


def again(flow: Flow, known: MayRepeat, without: BoolArray, least: int) -> IntArray:
    """Return of each node the first one of its step that computed the same, itself where it is the first of `least` or
    more; −1: of no such. `without`: nodes that are not looked at. A decimal number that was not recorded is taken to be
    the same where each of them is called by another module of one class: a loop's rounds may each have their own. So
    are constants: a loop's rounds may fill what they write into.
    """
    kind, module = _modules(flow)
    may, step = known.may & ~without & ~(known.assumed & known.whole), flow.nodes.step_row
    atoms = _Atoms.of(flow, may)
    by_module = known.assumed | (atoms.count == 0)
    may &= ~by_module | (module >= 0)
    first = np.append(np.arange(len(may)), -1)
    found, edges = np.zeros(len(may), np.bool_), flow.edges
    fresh = may & (atoms.count <= _MOST_READ)
    for _ in range(_MOST_LEVELS):
        rows = np.flatnonzero(fresh)
        guessed = by_module[rows]
        number = codes(atoms.numbered(rows, known.calls, first), step[rows], np.where(guessed, kind[rows], -1))
        _, begin, of, often = np.unique(number, return_index=True, return_inverse=True, return_counts=True)
        modules, _ = unique_pairs(of, module[rows])
        enough = (often[of] >= least) & (~guessed | (np.bincount(modules)[of] == often[of]))
        if not enough.any():
            break
        same = rows[enough]
        first[same], found[same] = rows[begin[of]][enough], True
        fresh = np.zeros(len(may), np.bool_)
        fresh[edges.consumer[np.isin(edges.producer, same)]] = True
        fresh &= may & ~found & (atoms.count <= _MOST_READ)
    return np.where(found, first[:-1], -1)


def _modules(flow: Flow) -> tuple[IntArray, IntArray]:
    """Return of each node the classes of the modules around it, and which modules these are; −1: none."""
    module, paths = string_ids(flow.timeline.ops.column("module"))
    own = module[flow.nodes.op_row]
    kinds = {path: at for at, path in enumerate(dict.fromkeys(_COUNTER.sub("", path) for path in paths))}
    return np.array([*(kinds[_COUNTER.sub("", path)] for path in paths), -1], np.int64)[own], own


def untouched(flow: Flow, known: BoolArray, silent: IntArray) -> BoolArray:
    """Of `known` nodes those whose results nothing changes that is none of them: what they give could be kept.

    A tensor of zeros into which something else is added up has to be filled in every step, and so has what is read
    before all has been written into it. `silent`: as above; what runs while a result is still to be read may change it.
    """
    writes, kept = flow.writes, known.copy()
    changing = sorted_unique(np.append(_given_away(flow, silent), _read_before_it_is_done(flow)))
    changed = np.zeros(int(writes.buffer.max(initial=-1)) + 1, np.bool_)
    changed[changing] = True
    for _ in range(_MOST_LEVELS):
        changed[writes.buffer[~kept[writes.node]]] = True
        again = kept.copy()
        again[writes.node[changed[writes.buffer]]] = False
        if (again == kept).all():
            return kept
        kept = again
    return np.zeros(len(kept), np.bool_)


def _given_away(flow: Flow, silent: IntArray) -> IntArray:
    """Buffers that something has which may write whatever it takes, or that are to be read after something ran of which
    it is unknown what it writes."""
    writes, edges = flow.writes, flow.edges
    schema, schemas = string_ids(flow.timeline.ops.column("op_schema"))
    mute = np.array([*(effects(text).mute for text in schemas), False], np.bool_)[schema[flow.nodes.op_row]]
    last = writes.node.copy()
    np.maximum.at(last, edges.write, edges.consumer)
    given = writes.buffer[edges.write[mute[edges.consumer]]]
    return sorted_unique(np.append(given, writes.buffer[silent[last] != silent[writes.node]]))


def _read_before_it_is_done(flow: Flow) -> IntArray:
    """Return buffers that are read and written into after that."""
    writes, reads, edges = flow.writes, flow.reads, flow.edges
    last = np.full(int(max(writes.buffer.max(initial=-1), reads.buffer.max(initial=-1))) + 1, -1)
    np.maximum.at(last, writes.buffer, writes.node)
    reader, buffer = edges.consumer, reads.buffer[edges.read]
    width = len(last)
    in_place = is_among(reader * width + buffer, writes.node * width + writes.buffer)
    return sorted_unique(buffer[(reader < last[buffer]) & ~in_place])


# --- what may be numbered --------------------------------------------------------------------------------------------


def _calls(flow: Flow, may: BoolArray) -> tuple[IntArray, BoolArray, BoolArray, BoolArray]:
    """A code for the operator and arguments of each node that may be numbered, −1 where they are not all known; which
    rest on a number that was not recorded; and of these which may shift a place by it, and which is a whole one."""
    timeline, inferred = flow.timeline, bool((flow.reads.evidence < Evidence.PROVEN).any())
    calls, called = calls_of(timeline).distinct(flow.nodes.op_row[may])
    told = [_told(call, inferred) for call in calls]
    code = np.full(len(may), -1)
    code[may] = np.where(np.array(told, np.bool_)[called], called, -1)
    assumed, shifts, whole, from_host = _host_operands(flow)
    kind, kinds = string_ids(timeline.activities.column("kind"))
    direction, directions = string_ids(timeline.activities.column("copy_kind"))
    copies = np.array([*(name == "memcpy" for name in kinds), False], np.bool_)[kind]
    copies &= ~np.array([*(name == "DtoD" for name in directions), False], np.bool_)[direction]
    from_host[flow.activity_node[copies & (flow.activity_node >= 0)]] = True
    return np.where(from_host, -1, code), assumed, shifts, whole


def _told(call: Call, inferred: bool) -> bool:
    """Whether a call gives the same each time that it reads the same, and all its arguments were recorded."""
    operator, sizes, types, given = call.operator, call.shapes, call.dtypes, call.values
    if operator is None or operator.op_class not in _REPEATS or (inferred and operator.op_class in _INDEXED):
        return False
    if sizes is None or types is None or given is None or not len(sizes) == len(types) == len(given):
        return False
    if any(kind in _PLAIN and not value for kind, value in zip(types, given, strict=True)):
        return False
    # Without an execution trace a number that was passed as a tensor looks like a tensor without axes.
    return not inferred or not any(
        kind not in ("", *_PLAIN) and size == () for kind, size in zip(types, sizes, strict=True)
    )


def _host_operands(flow: Flow) -> tuple[BoolArray, BoolArray, BoolArray, BoolArray]:
    """Of each node whether it takes a number that was not recorded, whether that is a whole one that does not scale, or
    a whole one, and whether it takes anything else that lies on the host."""
    table, nodes = flow.timeline.tensors, flow.nodes
    node_of = np.full(flow.timeline.ops.num_rows + 1, -1, np.int64)
    node_of[nodes.op_row] = np.arange(len(nodes))
    device, devices = string_codes(table.column("device"))
    rows = np.flatnonzero(np.array([*(name.startswith("cpu") for name in devices), False], np.bool_)[device])
    op_row = numbers(table.column("op_row"), -1)[rows]
    node = node_of[np.where((op_row >= 0) & (op_row < len(node_of) - 1), op_row, -1)]
    node, rows = node[node >= 0], rows[node >= 0]
    kind, kinds = string_ids(table.column("dtype"))
    decimal, whole = (np.array([*(name == wanted for name in kinds), False], np.bool_) for wanted in (_DECIMAL, _WHOLE))
    name, names = string_ids(flow.timeline.ops.column("name"))
    scales = np.array([*(base_name(text) in _SCALES for text in names), False], np.bool_)
    number = (numbers(table.column("numel"), 0)[rows] == 1) & (decimal | whole)[kind[rows]]
    assumed, shifts, some_whole, other = np.zeros((4, len(nodes)), np.bool_)
    assumed[node[number]], other[node[~number]] = True, True
    some_whole[node[number & whole[kind[rows]]]] = True
    shifts[node[number & whole[kind[rows]] & ~scales[name[nodes.op_row[node]]]]] = True
    return assumed, shifts, some_whole, other


def _accounted(flow: Flow, silent: IntArray) -> BoolArray:
    """Nodes of which it is known whence all comes that they read: from nodes, with nothing unknown in between, or from
    outside, out of what nothing writes."""
    nodes, reads, writes, edges = flow.nodes, flow.reads, flow.writes, flow.edges
    oldest = reads.node.copy()
    np.minimum.at(oldest, edges.read, edges.producer)
    outside = np.isin(reads.source, (Source.OUTSIDE, Source.PARTLY_OUTSIDE))
    written = np.isin(reads.buffer, writes.buffer)
    sure = reads.resolved & (reads.evidence >= Evidence.CONSISTENT) & (silent[oldest] == silent[reads.node])
    sure &= ~outside | (~written & (reads.evidence == Evidence.PROVEN) & (silent[reads.node] == 0))
    found = nodes.known.copy()
    found[reads.node[~sure]] = False
    return found


def _makes_new(flow: Flow) -> BoolArray:
    """Return nodes that write only what was allocated in their own step: what lies elsewhere others may keep."""
    writes, step = flow.writes, flow.nodes.step_row
    first = np.full(int(writes.buffer.max(initial=-1)) + 1, len(flow.nodes))
    np.minimum.at(first, writes.buffer, writes.node)
    found = np.ones(len(flow.nodes), np.bool_)
    found[writes.node[~writes.made | (step[first[writes.buffer]] != step[writes.node])]] = False
    return found


def _placed_by_host(flow: Flow) -> BoolArray:
    """Return nodes that take of a tensor into a part of which is written once the host has fetched something in their
    step: which part that is may rest on what was fetched, and be another one in another step.
    """
    nodes, reads, writes = flow.nodes, flow.reads, flow.writes
    after = _after_fetch(flow)
    size = np.zeros(int(max(writes.buffer.max(initial=-1), reads.buffer.max(initial=-1))) + 1, np.int64)
    np.maximum.at(size, writes.buffer, writes.end_byte)
    part = (writes.begin_byte > 0) | (writes.end_byte < size[writes.buffer])
    chosen = np.zeros(len(size), np.bool_)
    chosen[writes.buffer[part & after[writes.node]]] = True
    found = np.zeros(len(nodes), np.bool_)
    found[writes.node[chosen[writes.buffer]]] = True
    found[reads.node[chosen[reads.buffer]]] = True
    return found & after


def _after_fetch(flow: Flow) -> BoolArray:
    """Return nodes before which, in their step, something was copied from the device to the host."""
    kind, kinds = string_ids(flow.timeline.activities.column("copy_kind"))
    fetches = np.array([*(name == "DtoH" for name in kinds), False], np.bool_)[kind] & (flow.activity_node >= 0)
    step = np.unique(flow.nodes.step_row, return_inverse=True)[1].reshape(-1)
    first = np.full(int(step.max(initial=-1)) + 1, len(step))
    np.minimum.at(first, step[flow.activity_node[fetches]], flow.activity_node[fetches])
    after: BoolArray = np.arange(len(step)) > first[step]
    return after


# --- numbers ---------------------------------------------------------------------------------------------------------


class _Atoms(msgspec.Struct, frozen=True):
    """What each node reads, piece by piece: a tensor from outside, or a part of what a node wrote."""

    begin: IntArray  # node i has the pieces begin[i]:begin[i] + count[i]
    count: IntArray
    place: IntArray  # a code for the bytes, and which argument they are; one more for none
    producer: IntArray  # −1: from outside, or none

    @staticmethod
    def of(flow: Flow, may: BoolArray) -> _Atoms:
        """Return the pieces of the nodes that may be numbered."""
        reads, writes, edges = flow.reads, flow.writes, flow.edges
        alone = np.flatnonzero(np.bincount(edges.read, minlength=len(reads.node)) == 0)
        read = np.concatenate((alone, edges.read))
        edge = np.concatenate((np.full(len(alone), -1), np.arange(len(edges.read))))
        order = np.lexsort((edge, read))
        order = order[may[reads.node[read[order]]]]
        read, edge = read[order], edge[order]
        node = reads.node[read]  # ascending, as reads are
        write = np.append(edges.write, -1)[edge]
        there = edge >= 0
        of_writes = (_turns(writes.node), writes.begin_byte, writes.end_byte)
        own = [np.where(there, np.append(column, -1)[write], -1) for column in of_writes]
        place = codes(
            np.where(there, -1, reads.buffer[read]),
            reads.begin_byte[read],
            reads.end_byte[read],
            read - np.searchsorted(reads.node, node),
            *own,
        )
        begin = np.searchsorted(node, np.arange(len(may) + 1))
        producer = np.append(edges.producer, -1)[edge]
        return _Atoms(begin[:-1], np.diff(begin), np.append(place, -1), np.append(producer, -1))

    def numbered(self, nodes: IntArray, calls: IntArray, value: IntArray) -> IntArray:
        """A number for each node: equal ones have equal calls, and read equal values at equal places. `value` has one
        more for none."""
        begin, count = self.begin[nodes], self.count[nodes]
        number = codes(calls[nodes], count)
        for turn in range(int(count.max(initial=0))):
            at = np.where(count > turn, begin + turn, -1)
            number = codes(number, self.place[at], value[self.producer[at]])
        return number


def _turns(of: IntArray) -> IntArray:
    """Return how many equal ones stand before each.

    >>> _turns(np.array([3, 5, 3])).tolist()
    [0, 0, 1]
    """
    order = np.argsort(of, kind="stable")
    found = np.empty(len(of), np.int64)
    found[order] = np.arange(len(of)) - np.searchsorted(of[order], of[order])
    return found


def _in_every_step(number: IntArray, step: IntArray, steps: int) -> BoolArray:
    """Return whether each number occurs in so many steps."""
    if not len(number):
        return np.zeros(0, np.bool_)
    width = int(step.max()) + 1
    occurs = np.bincount(sorted_unique(number * width + step) // width)
    found: BoolArray = occurs[number] == steps
    return found
