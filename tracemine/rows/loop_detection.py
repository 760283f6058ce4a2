"""Loops of the program: stretches of a thread's launches in which the same operators repeat, and what iterations have
to do with each other: the columns `loop` and `loop_…`.

An entry is an outermost operator that launched something. Names alone have to repeat: the shapes of experts, boxes and
parameters differ from iteration to iteration. Of two iterations the later depends on the earlier where it reads what
that one wrote, by any path within the loop; adding to a sum counts as something else, as sums take their parts in any
order. A body may repeat with parts left out: what some iterations do only (`if`, `continue`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, get_args

import numpy as np
from msgspec import Struct

from tracemine.calls import NAME, SHAPES, calls_of
from tracemine.columns import codes, sorted_unique, unique_pairs
from tracemine.flow.record import Flow
from tracemine.ops import lookup
from tracemine.rows.ancestors import engine_of, nearest, outermost, taken
from tracemine.rows.arrow import categories, coded, rows_of
from tracemine.rows.graph import NodeGraph
from tracemine.rows.host import HostCalls, threads
from tracemine.rows.loop_parts import LoopIterations, ahead, apart
from tracemine.rows.loops import left_of, repeating
from tracemine.rows.table import Column, Flags, IntArray, Numbers, Rows, number
from tracemine.rows.uneven_loops import uneven
from tracemine.timeline import Timeline

Dependence = Literal["independent", "accumulates", "carried"]
Differs = Literal["weights", "slices", "tensors", "numbers"]
DEPENDENCES: Final = get_args(Dependence)
DIFFERS: Final = get_args(Differs)
LEAST_TURNS: Final = 4
_LONGEST_PERIOD: Final = 64
_LEAST_LAUNCHES: Final = 16  # of a loop: unrolled by hand there are fewer as a rule
_MOST_LOOPS: Final = 512  # some milliseconds each at most
_LEAST_UNEVEN: Final = 8  # iterations, where some leave out parts of their body, or it is one operator
_LONGER: Final = 1.5  # than the equal iterations among them
_MOST_NAMES, _MOST_ENTRIES = 6, 50_000  # that uneven iterations are looked for: of each step, and in all
# What adds to a sum, or keeps the largest, in whatever order.
_SUMS: Final = frozenset({
    "add", "add_", "addcmul", "addcmul_", "addmm", "baddbmm", "bitwise_or", "bitwise_or_", "__ior__", "index_add",
    "index_add_", "index_put_", "logical_or", "logical_or_", "maximum", "minimum", "scatter_add", "scatter_add_",
    "scatter_reduce_", "sub", "sub_",
})  # fmt: skip
# Which of the tensors that an operator reads is a weight, by its class; −1: the last.
_WEIGHT: Final = {"gemm": -1, "conv": 1, "embedding": 0, "norm": 1}
_LEAST_SLICE_BYTES: Final = 64  # fewer are numbers of a schedule


class DetectedLoop(Struct, frozen=True, kw_only=True):
    """A loop, and what its iterations have to do with each other."""

    turns: LoopIterations
    dependence: Dependence | None  # None: what some operator reads is not known
    waits: bool  # the host waits for the device in at least half of the iterations
    sizes: bool  # shapes differ from iteration to iteration
    differs: Differs | None  # None: not known
    ahead: tuple[IntArray, Differs | None] | None = None  # of entries that need no earlier iteration; None: none known


class Launches:
    """The outermost operators that launch, thread by thread and each in order of time."""

    def __init__(self, timeline: Timeline, activities: Rows, graph: NodeGraph, dataflow: Flow) -> None:
        ops = timeline.ops
        parent, is_op = rows_of(ops["parent_row"]), categories(ops["kind"]).among("op")
        op_row = rows_of(timeline.activities["op_row"])
        outer = taken(outermost(nearest(parent, is_op), parent), op_row)
        _, of_ops = threads(timeline)
        self.row = sorted_unique(outer[outer >= 0])
        begin = rows_of(ops["start_ns"]).astype(np.int64)
        self.row = self.row[np.lexsort((begin[self.row], of_ops[self.row]))]
        self.timeline, self.graph, self.begin_ns = timeline, graph, begin[self.row]
        self.end_ns, self.thread = self.begin_ns + rows_of(ops["dur_ns"])[self.row], of_ops[self.row]
        place = np.full(ops.num_rows + 1, -1, np.int64)
        place[self.row] = np.arange(len(self.row))
        place[-1] = -1
        self.of_activity = place[outer]
        self.of_node = self.of_activity[graph.first_activity]
        self.of_node[np.diff(graph.activity_begin) == 0] = -1
        calls = calls_of(timeline)
        self.name, self.shapes = calls.alike(self.row, NAME), calls.alike(self.row, NAME, SHAPES)
        names = categories(ops["name"])
        self.names = [names.values[code] for code in names.codes[self.row].tolist()]
        known = [lookup(name) for name in self.names]
        self.classes = [None if one is None else one.op_class for one in known]
        sums = [name.removeprefix("aten::") in _SUMS for name in self.names]
        self.sums = np.array(sums, np.bool_)
        self.writes_in_place = np.array([name.endswith("_") for name in self.names], np.bool_)
        self.launches = np.bincount(self.of_activity[self.of_activity >= 0], minlength=len(self.row))
        first = np.full(len(self.row) + 1, -1, np.int64)
        first[self.of_activity[::-1]] = np.arange(len(outer))[::-1]
        segment = number(activities, "segment", -1)[first[:-1]] if len(outer) else first[:-1]
        self.place, self.in_step = codes(self.thread, segment), segment > 0
        self.unknown = np.zeros(len(self.row) + 1, np.bool_)
        self.unknown[self.of_node[~graph.told]] = True
        consumer, producer = self.of_node[graph.consumer], self.of_node[graph.producer]
        both = (consumer >= 0) & (producer >= 0) & (consumer != producer)
        order = np.argsort(consumer[both], kind="stable")
        self.reader, self.writer = consumer[both][order], producer[both][order]
        by_writer = np.argsort(self.writer, kind="stable")
        self._written, self._read_by = self.writer[by_writer], self.reader[by_writer]
        self.of_write = np.append(self.of_node[dataflow.writes.node], -1)  # of each write, and of none
        owned = np.flatnonzero(self.of_node >= 0)
        self._nodes = owned[np.argsort(self.of_node[owned], kind="stable")]
        self.of_engine = engine_of(timeline)[self.row] >= 0

    def of_forward(self) -> tuple[IntArray, IntArray]:
        """Return the entry of each activity; of a backward pass, that of the operator that it differentiates. Of one
        that launched nothing, such as a view, the entries before it and behind it.
        """
        ops = self.timeline.ops
        parent, sequence = rows_of(ops["parent_row"]), rows_of(ops["sequence_number"])
        node = taken(engine_of(self.timeline), rows_of(self.timeline.activities["op_row"]))
        if not (node >= 0).any():
            return self.of_activity, self.of_activity
        place = np.full(ops.num_rows + 1, -1, np.int64)
        place[self.row] = np.arange(len(self.row))
        forward = np.flatnonzero((sequence >= 0) & (engine_of(self.timeline) < 0))
        outer = outermost(nearest(parent, categories(ops["kind"]).among("op")), parent)[forward]
        behind = np.where(place[outer] >= 0, place[outer], self._next(outer))
        before = np.where(place[outer] >= 0, behind, behind - 1)
        of = dict(zip(sequence[forward].tolist(), zip(before, behind, strict=True), strict=True))  # its last one counts
        of_node = np.array([of.get(number, (-1, -1)) for number in taken(sequence, node).tolist()], np.int64)
        first, last = np.where(node >= 0, of_node.T, self.of_activity)
        return first, last

    def _next(self, op: IntArray) -> IntArray:
        """Return the entry that follows an operator on its thread, or else on another."""
        ops, (_, of_ops) = self.timeline.ops, threads(self.timeline)
        begin = rows_of(ops["start_ns"]).astype(np.int64)
        found = np.zeros(len(op), np.int64)
        for thread in sorted_unique(self.thread).tolist():
            own = np.flatnonzero(self.thread == thread)
            at = of_ops[op] == thread
            found[at] = own[0] + np.searchsorted(self.begin_ns[own], begin[op[at]])
        return found

    def loops(self) -> Iterator[DetectedLoop]:
        """Yield the loops, none within another: of equal iterations those of few operators first, or of uneven ones
        where these are longer.
        """
        taken, found = np.full(len(self.row), -1, np.int64), list[DetectedLoop]()
        for period in range(1, _LONGEST_PERIOD + 1):
            for stretch in repeating(self.name, self.place, period, LEAST_TURNS):
                begin, end = left_of(taken, *stretch)
                if (
                    len(found) < _MOST_LOOPS
                    and end - begin >= LEAST_TURNS * period
                    and self._launch(begin, end, period)
                ):
                    loop = self._cut(begin, end, period)
                    taken[loop.turns.begin : loop.turns.end] = len(found)
                    found.append(loop)
        self._put_around(taken, found)
        for turns in self._uneven() if len(self.row) <= _MOST_ENTRIES else ():
            self._put_in_place(turns, taken, found)
        yield from (found[at] for at in sorted_unique(taken[taken >= 0]).tolist())

    def _put_in_place(self, turns: LoopIterations, taken: IntArray, found: list[DetectedLoop]) -> None:
        """Put a loop of uneven iterations in the place of those within it, where it is longer and they need it no less.

        taken: of each entry the place of its loop in `found`, -1 where it has none.
        """
        within = taken[turns.begin : turns.end]
        if len(turns.turn) < _LONGER * int((within >= 0).sum()) or not self._launch(turns.begin, turns.end, 2):
            return
        loop, places = self._judged(turns), sorted_unique(within[within >= 0])
        apart = [at for at in places.tolist() if found[at].dependence != "carried"]
        needed = loop.dependence == "carried" and 2 * int(np.isin(within, apart).sum()) > len(within)
        if loop.dependence is not None and not needed:
            _put(loop, taken, found)

    def _put_around(self, taken: IntArray, found: list[DetectedLoop]) -> None:
        """Put a loop whose iterations need nothing of each other in the place of those that run in each, one in an
        iteration, and whose own iterations do.
        """
        inner = [one.turns for one in sorted(found, key=lambda one: one.turns.begin) if one.dependence == "carried"]
        begins, sizes = np.array([(each.begin, len(each.turn)) for each in inner], np.int64).reshape(-1, 2).T
        apart = np.diff(begins)
        alike = (apart[1:] == apart[:-1]) & (sizes[2:] == sizes[:-2]) & (sizes[1:-1] == sizes[:-2])
        edges = np.flatnonzero(np.diff(alike, prepend=False, append=False)).reshape(-1, 2)
        for first, last in edges[np.diff(edges)[:, 0] >= LEAST_TURNS - 2].tolist():
            period, size, begin = int(apart[first]), int(sizes[first]), int(begins[first])
            around = max(begin - period + size, 0), int(begins[last + 1]) + period
            for at, end in repeating(self.name[slice(*around)], self.place[slice(*around)], period, LEAST_TURNS):
                loop = self._cut(around[0] + at, around[0] + end, period, max(begin - around[0] - at, 0) + 1)
                if loop.dependence in ("independent", "accumulates"):
                    _put(loop, taken, found)

    def _launch(self, begin: int, end: int, period: int) -> bool:
        least = _LEAST_UNEVEN if period == 1 else _LEAST_LAUNCHES
        return int(self.launches[begin:end].sum()) >= least and end - begin >= _LEAST_UNEVEN

    def _uneven(self) -> Iterator[LoopIterations]:
        """Yield stretches of iterations that leave out parts of their body, the longest first."""
        found = []
        edges = np.flatnonzero(np.diff(self.place, prepend=-1, append=-1))
        for begin, end in pairwise(edges.tolist()):
            names, counts = np.unique(self.name[begin:end], return_counts=True)
            often = names[counts >= _LEAST_UNEVEN]
            for name in often[np.argsort(-counts[counts >= _LEAST_UNEVEN], kind="stable")][:_MOST_NAMES].tolist():
                for first, turn, place in uneven(self.name[begin:end], name, _LEAST_UNEVEN, _LONGEST_PERIOD):
                    if len(turn) > int(turn[-1]) + 1 and (place != place[0]).any():
                        found.append(LoopIterations(begin + first, turn, place))
        yield from sorted(found, key=lambda each: -len(each.turn))

    def is_of_program(self, loop: DetectedLoop) -> bool:
        """Return whether a loop is part of what is to be done: no backward pass runs between its iterations, which
        would be split to save memory, and outside of steps something needs several iterations, which else are runs of
        one program.
        """
        turns = loop.turns
        begin, end = self.begin_ns[turns.begin], self.end_ns[turns.end - 1]
        engine = self.begin_ns[self.of_engine]
        if ((engine > begin) & (engine < end)).any():
            return False
        if self.in_step[turns.begin]:
            return True
        span = slice(*np.searchsorted(self._written, [turns.begin, turns.end]).tolist())
        behind = self._read_by[span] >= turns.end
        turn = turns.turn[self._written[span][behind] - turns.begin]
        pairs = unique_pairs(self._read_by[span][behind], turn)
        return bool(len(pairs[0])) and int(np.unique(pairs[0], return_counts=True)[1].max()) > 1

    def _cut(self, begin: int, end: int, period: int, places: int = _LONGEST_PERIOD) -> DetectedLoop:
        """Return the loop of equal iterations in a stretch, cut where no result goes from one to the next.

        places: how many of the first may be where an iteration begins.
        """
        best, spare = None, end - begin >= (LEAST_TURNS + 1) * period
        for first in range(begin, begin + min(period, places) if spare else begin + 1):
            at = np.arange((end - first) // period * period)
            turns = LoopIterations(first, at // period, at % period)
            carried, _ = self._crossing(turns)
            key = (len(carried[0]) > 0, -len(at), len(carried[0]), first)
            best = min(best or (key, turns, carried), (key, turns, carried), key=lambda one: one[0])
        assert best is not None  # noqa: S101 - a period has a first place
        (needed, *_), turns, carried = best
        within = apart(turns, *carried)
        if needed and within.count < turns.count and self._launch(within.begin, within.end, period):
            return self._judged(within)
        return self._judged(self._outer(turns) if needed else turns)

    def _outer(self, turns: LoopIterations) -> LoopIterations:
        """Return the loop around one whose results go from iteration to iteration but for every so many: a sum that
        begins anew. Where there is none, the iterations as they are.
        """
        reader, writer = self._between(turns)
        crossed = np.zeros(turns.count + 1, np.int64)
        np.add.at(crossed, turns.turn[writer] + 1, 1)
        np.add.at(crossed, turns.turn[reader] + 1, -1)
        begins = np.flatnonzero(np.cumsum(crossed)[:-1] == 0)
        many = int(begins[1]) if len(begins) > 1 else 0
        period = many * (int(turns.place.max()) + 1)
        if many < 2 or period > _LONGEST_PERIOD or len(begins) < LEAST_TURNS or (np.diff(begins) != many).any():
            return turns
        at = np.arange(turns.count // many * period)
        return LoopIterations(turns.begin, at // period, at % period)

    def _judged(self, turns: LoopIterations) -> DetectedLoop:
        """Return a stretch of iterations as a loop."""
        (carried, _), summed = self._crossing(turns)
        first, last = turns.begin, turns.end
        known = not self.unknown[first:last].any()
        dependence: Dependence = "carried" if len(carried) else "accumulates" if summed else "independent"
        shapes = len(unique_pairs(turns.place, self.shapes[first:last])[0])
        return DetectedLoop(
            turns=turns,
            dependence=dependence if known else None,
            waits=2 * self._waits(first, last) >= turns.count,
            sizes=shapes > len(sorted_unique(turns.place)),
            differs=self._differs(turns) if known else None,
            ahead=self._ahead(turns) if known and len(carried) else None,
        )

    def _ahead(self, turns: LoopIterations) -> tuple[IntArray, Differs | None] | None:
        """Return which entries need nothing of earlier iterations, and what differs there; None: none, or shapes do."""
        span = slice(turns.begin, turns.end)
        own = np.flatnonzero(ahead(turns, *self._between(turns), self.writes_in_place[span]))
        place = turns.place[own]
        if not len(own) or len(unique_pairs(place, self.shapes[span][own])[0]) > len(sorted_unique(place)):
            return None
        return own + turns.begin, self._differs(turns, set(place.tolist()))

    def _crossing(self, turns: LoopIterations) -> tuple[tuple[IntArray, IntArray], bool]:
        """Return what reads what an earlier iteration wrote, and that, without sums; and whether there are sums.

        Of a sum nothing else in the loop reads what it is up to then, and behind the loop is read the last alone.
        """
        reader, writer = self._between(turns)
        other = turns.turn[reader] != turns.turn[writer]
        place = turns.place[writer]
        same = (turns.place[reader] == place) & self.sums[reader + turns.begin]
        read = np.zeros(int(turns.place.max()) + 1, np.bool_)
        read[place[~same]] = True
        for each in sorted_unique(place[same & ~read[place]]).tolist():
            own = turns.begin + np.flatnonzero(turns.place == each)
            at = np.searchsorted(self._written, own), np.searchsorted(self._written, own, side="right")
            read[each] = sum(bool((self._read_by[a:b] >= turns.end).any()) for a, b in zip(*at, strict=True)) > 1
        sums = same & ~read[place]
        carried = other & ~sums
        return (reader[carried], writer[carried]), bool((other & sums).any())

    def _between(self, turns: LoopIterations) -> tuple[IntArray, IntArray]:
        """Return which of the entries read what which others wrote before, by their places in the stretch."""
        span = slice(*np.searchsorted(self.reader, [turns.begin, turns.end]).tolist())
        reader, writer = self.reader[span] - turns.begin, self.writer[span] - turns.begin
        inside = (writer >= 0) & (writer < reader)
        return reader[inside], writer[inside]

    def _waits(self, first: int, last: int) -> int:
        """Count the calls that wait for the device in a loop."""
        thread, moment = self._waiting
        begin, end = self.begin_ns[first], self.end_ns[last - 1]
        return int(((thread == self.thread[first]) & (moment >= begin) & (moment < end)).sum())

    @cached_property
    def _waiting(self) -> tuple[IntArray, IntArray]:
        calls = HostCalls.of(self.timeline, rows_of(self.timeline.activities["launch_row"]), threads(self.timeline)[0])
        return calls.thread[calls.blocks], calls.begin[calls.blocks]

    def _differs(self, turns: LoopIterations, places: Collection[int] | None = None) -> Differs | None:
        """Return what iterations, or these places of them, read of before the loop that differs; weights first."""
        found: set[Differs] = set()
        nodes = self._nodes[slice(*np.searchsorted(self.of_node[self._nodes], [turns.begin, turns.end]).tolist())]
        place = turns.place[self.of_node[nodes] - turns.begin]
        for each in range(int(turns.place.max()) + 1) if places is None else places:
            own, count = nodes[place == each], int((turns.place == each).sum())
            for column in own.reshape(count, -1).T if count > 1 and len(own) % count == 0 else ():
                self._compare(column, turns, found)
        return next((kind for kind in DIFFERS if kind in found), None)

    def _compare(self, nodes: IntArray, turns: LoopIterations, found: set[Differs]) -> None:
        """Add to `found` what these nodes, one an iteration, read that is not the same for all."""
        graph, count = self.graph, len(nodes)
        counts = graph.read_begin[nodes + 1] - graph.read_begin[nodes]
        if (counts != counts[0]).any():
            return
        weight = _WEIGHT.get(self.classes[int(self.of_node[nodes[0]])] or "")
        for at, entries in enumerate((graph.read_begin[nodes][:, None] + np.arange(counts[0])).T):
            by = self.of_write[graph.read_writer[entries]]
            if ((by >= turns.begin) & (by < turns.end)).any():
                continue  # made in the loop
            buffers, begins = sorted_unique(graph.read_buffer[entries]), sorted_unique(graph.read_first[entries])
            several = min(count, LEAST_TURNS)  # pairs have each of theirs several times
            if weight is not None and at == weight % counts[0] and len(buffers) > 1:
                found |= {"weights"} if len(buffers) == count else set()
            elif len(buffers) >= several:
                found.add("tensors")
            elif len(buffers) == 1 and len(begins) >= several:
                least = int((graph.read_last - graph.read_first)[entries].min())
                found.add("slices" if least >= _LEAST_SLICE_BYTES else "numbers")


def _put(loop: DetectedLoop, taken: IntArray, found: list[DetectedLoop]) -> None:
    """Put a loop in the place of those within it."""
    span = slice(loop.turns.begin, loop.turns.end)
    taken[np.isin(taken, taken[span][taken[span] >= 0])] = -1
    taken[span] = len(found)
    found.append(loop)


def loop_columns(timeline: Timeline, activities: Rows, dataflow: Flow | None) -> dict[str, Column]:
    """Return the columns `loop` and `loop_…`: of what a loop launches, and of what its backward pass does."""
    count = activities.count
    loop, turn = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    told: dict[str, IntArray] = {name: np.full(count, -1, np.int64) for name in ("dependence", "differs", "ahead")}
    flagged = {name: np.zeros(count, np.bool_) for name in ("waits", "sizes")}
    graph = activities.graph
    if dataflow is not None and graph is not None and len(graph.activity):
        launches = Launches(timeline, activities, graph, dataflow)
        first, at = launches.of_forward()
        for one in launches.loops():
            turns = one.turns
            if launches.of_engine[turns.begin] or not launches.is_of_program(one):
                continue
            rows = np.flatnonzero((first >= turns.begin) & (at < turns.end))
            loop[rows], turn[rows] = turns.begin, turns.turn[at[rows] - turns.begin]
            told["dependence"][rows] = -1 if one.dependence is None else DEPENDENCES.index(one.dependence)
            told["differs"][rows] = -1 if one.differs is None else DIFFERS.index(one.differs)
            flagged["waits"][rows], flagged["sizes"][rows] = one.waits, one.sizes
            if one.ahead is not None and one.ahead[1] is not None:
                told["ahead"][rows[np.isin(at[rows], one.ahead[0])]] = DIFFERS.index(one.ahead[1])
    return {
        "loop": Numbers(np.maximum(loop, 0), loop >= 0),
        "loop_turn": Numbers(np.maximum(turn, 0), turn >= 0),
        "loop_dependence": coded(DEPENDENCES, told["dependence"]),
        "loop_differs": coded(DIFFERS, told["differs"]),
        "loop_ahead": coded(DIFFERS, told["ahead"]),
        "loop_waits": Flags(flagged["waits"]),
        "loop_sizes": Flags(flagged["sizes"]),
    }
