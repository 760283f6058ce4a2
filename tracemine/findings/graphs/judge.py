"""The verdicts: what each way of launching less comes to, for the step and for what launches much in it.

Of a part that a graph cannot hold as a whole, they name the stretches that it can: those between what stops a capture.

What torch.compile replays as a CUDA graph returns memory of that graph. The next call takes it again, unless results
of the one before still wait for their backward pass: as torch's own rule is (torch/_inductor/cudagraph_trees.py). Where
the program marks where its steps begin, only the next step does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from tracemine.columns import sorted_unique
from tracemine.findings.accounting import Accounts
from tracemine.findings.graphs.blockers import ALLOCATED, derived_twice
from tracemine.findings.graphs.changes import differing
from tracemine.findings.graphs.kinds import GRAVITY, KINDS
from tracemine.findings.graphs.obstacles import Obstacles
from tracemine.findings.graphs.record import WAYS, Effect, Graphs, Obstacle, Span, SpanPart, WayName, WayOutcome
from tracemine.findings.graphs.savings import Unrecorded, graph_savings, with_savings
from tracemine.findings.graphs.spans import Program, SpanCandidate, candidates, lines_of
from tracemine.flow import Evidence
from tracemine.patterns import deferred
from tracemine.rows.ancestors import taken
from tracemine.rows.arrow import categories, rows_of
from tracemine.rows.captures import captured_graphs
from tracemine.rows.graph import NodeGraph
from tracemine.rows.host import named
from tracemine.rows.table import BoolArray, IntArray, Rows, flags
from tracemine.timeline import Timeline

_MOST_PARTS: Final = 8
_GENERATES: Final = deferred(r"(^|[/\\])transformers[/\\]generation[/\\]")
_SEVERAL: Final = 1.5  # calls a step
_TRAINED: Final = "the backward pass is in it: static inputs, gradients None before the capture, a warm-up before it"
_ALLOCATES: Final = "the driver gives memory in the step: run some steps before the capture"
_FEWEST: Final = 4  # launches: a graph of less costs as much as they do


def graphs_of(
    timeline: Timeline, activities: Rows, accounts: Accounts, obstacles: Obstacles, alone: Unrecorded | None = None
) -> Graphs:
    """Return what capturing would come to. alone: None where savings are not asked."""
    judge = _Judge(timeline, activities, accounts, obstacles)
    units = [(unit, judge.span(unit)) for unit in judge.units()]
    units = [(unit, span) for unit, span in units if unit.paths is None or span.calls >= judge.program.steps]
    stretches = [judge.stretches(unit) for unit, _ in units]
    parts = listed(judge.program, stretches[0])[:_MOST_PARTS]
    spans, listed_parts = [span for _, span in units], [part for part, _ in parts]
    if alone is not None:
        saved = graph_savings(alone, [*stretches, *(own for _, own in parts)])
        rows = [judge.program.activity[judge.member(unit)] for unit, _ in units]
        spans = [
            with_savings(span, own, saving, alone, trained=judge.trained(own))
            for span, own, saving in zip(spans, rows, saved, strict=False)
        ]
        listed_parts = [
            replace(part, saving_ns=saving) for part, saving in zip(listed_parts, saved[len(units) :], strict=True)
        ]
    marked = judge.program.steps if judge.program.marked else 0
    generates = any(map(_GENERATES.search, categories(timeline.stacks["file"]).values))
    return Graphs(step=spans[0], spans=tuple(spans[1:]), parts=tuple(listed_parts), generates=generates, steps=marked)


class _Judge:
    """One timeline, and all that was found in it."""

    def __init__(self, timeline: Timeline, activities: Rows, accounts: Accounts, found: Obstacles) -> None:
        self.timeline, self.activities = timeline, activities
        self.program = Program(timeline, activities, accounts)
        self.found = found.of((self.program.step_at(found.begin_ns) >= 0) & ~self._at_edges(found))
        self.replayed = flags(activities, "graph")
        self.capturing = captured_graphs(timeline)
        self.twice = derived_twice(timeline, self.program.engine >= 0)

    def _at_edges(self, found: Obstacles) -> BoolArray:
        """Return which waits for all of the device have no launch of their step before them, or none behind."""
        moment = self.program.launched_ns[self.program.activity]
        step, at = self.program.step_at(moment), np.searchsorted(moment, found.begin_ns)
        own = self.program.step_at(found.begin_ns)
        before, behind = np.append(step, -1)[at - 1], np.append(step, -1)[at]
        waits = np.array([*(kind == "synchronize" for kind in found.kind), False], np.bool_)[found.code]
        edges: BoolArray = waits & ((before != own) | (behind != own))
        return edges

    def units(self) -> Iterator[SpanCandidate]:
        """Yield the step, then what launches much in it."""
        every = [*candidates(self.program)]
        line = next((one.line for one in every if one.kind == "function" and one.share == 1), None)
        yield SpanCandidate("step", "step", line, self.program.step)
        yield from every

    def member(self, unit: SpanCandidate) -> BoolArray:
        """Return which of the program's activities a unit launches, backward as well."""
        rows = self.program.activity
        return np.ones(len(rows), np.bool_) if unit.paths is None else unit.paths[self.program.path[rows]]

    def met(self, unit: SpanCandidate) -> Obstacles:
        """Return what lies in a unit."""
        found = self.found
        if unit.paths is None:
            return found
        within = taken(unit.calls, taken(self.program.place, found.op_row)) >= 0
        return found.of(unit.paths[found.stack_row] | within)

    def trained(self, rows: IntArray) -> bool:
        """Return whether some of these activities are part of a backward pass."""
        return bool(self.program.backward[rows].any())

    def stretches(self, unit: SpanCandidate) -> list[IntArray]:
        """Return the activities of each stretch of a unit that one graph can hold."""
        rows = self.program.activity
        call = taken(unit.calls, taken(self.program.place, self.program.forward[rows]))
        back = self.program.backward[rows]
        if unit.paths is None:
            call, back = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        found = self.met(unit)
        stops = ["cuda_graph" in KINDS[kind].effects for kind in found.kind]
        stopping = found.of(np.array([*stops, False], np.bool_)[found.code])
        return stretches(self.program, self.member(unit), np.where(back, -2, call), stopping)

    def span(self, unit: SpanCandidate) -> Span:
        """Return the verdicts on a unit."""
        member, calls = self.member(unit), int(unit.calls.max(initial=-1)) + 1
        rows = self.program.activity[member]
        trained = self.trained(rows)
        obstacles = [*self.recorded(unit, rows), *self.of_calls(unit, calls, trained=trained)]
        notes = [_TRAINED] if trained and unit.paths is None else []
        api = self.timeline.api
        gives = named(categories(api["name"]), ALLOCATED) & (self.program.step_at(rows_of(api["start_ns"])) >= 0)
        if gives.any() and unit.paths is None:
            notes.append(_ALLOCATES)
        return Span(
            kind=unit.kind,
            name=unit.name,
            line=unit.line,
            calls=calls if self.program.rows.size else self.program.steps,
            launches=len(rows),
            share=round(len(rows) / max(len(member), 1), 4),
            ways=tuple(_way(name, obstacles, known=self.program.rows.size > 0) for name in WAYS),
            obstacles=tuple(sorted(obstacles, key=_gravity)),
            notes=tuple(notes),
        )

    def recorded(self, unit: SpanCandidate, rows: IntArray) -> Iterator[Obstacle]:
        """Yield what was recorded in a unit, by kind and line."""
        found = self.met(unit)
        most_replayed = 2 * int(self.replayed[rows].sum()) > len(rows)
        for code in sorted_unique(found.code).tolist():
            kind, what = found.kind[code], found.what[code]
            own = found.of(found.code == code)
            if kind == "replayed" and not most_replayed:
                continue
            for line, count in Counter(lines_of(self.timeline, own.stack_row)).most_common():
                yield _obstacle(kind, what, line, count)

    def of_calls(self, unit: SpanCandidate, calls: int, *, trained: bool) -> Iterator[Obstacle]:
        """Yield what depends on how the calls of a unit follow each other."""
        if self.capturing:
            yield _obstacle("captured", "", None, self.capturing)
        if self.twice and trained:
            yield _obstacle("derived_twice", "", unit.line, self.program.steps)
        differs = differing(self.program, unit.calls)
        if differs is not None:
            kind, what, row, count = differs
            (line,) = lines_of(self.timeline, rows_of(self.timeline.ops["stack_row"])[[row]])
            yield _obstacle(kind, what, line, count)
        graph, often = self.activities.graph, f"{calls / self.program.steps:,.0f}"
        several = unit.paths is not None and calls >= _SEVERAL * self.program.steps
        if graph is None or not len(graph.activity):
            if several:
                yield _obstacle("perhaps_several", often, unit.line, calls)
            return
        if several and len(overwritten(self.program, unit.calls, graph)):
            yield _obstacle("several_calls", often, unit.line, calls)
        proven = several | (graph.evidence == Evidence.PROVEN)  # of one call a step a guess is no obstacle
        kept = overwritten(self.program, unit.calls, replace(graph, passed=graph.passed & proven), by_step=True)
        made_by = self.program.forward[graph.first_activity[kept]]
        made_at = lines_of(self.timeline, taken(rows_of(self.timeline.ops["stack_row"]), made_by))
        for line, count in Counter(made_at).items():
            yield _obstacle("kept" if unit.paths is None else "read_later", "", line, count)


def _obstacle(kind: str, what: str, line: str | None, times: int) -> Obstacle:
    known = KINDS[kind]
    return Obstacle(kind=kind, says=known.says.format(what=what), line=line, times=times, effects=known.effects)


def _gravity(one: Obstacle) -> tuple[int, int, int]:
    """Return a sort key: the gravest first, then what is in the way of most, then what was met most often."""
    order = list(GRAVITY)
    return min((order.index(each) for each in one.effects.values()), default=len(order)), -len(one.effects), -one.times


def _way(name: WayName, obstacles: list[Obstacle], *, known: bool) -> WayOutcome:
    """Return what the gravest obstacle makes of a way. known: operators were recorded."""
    met: list[tuple[Effect, str]] = [(one.effects[name], one.kind) for one in obstacles if name in one.effects]
    order = list(GRAVITY)
    gravest = min(met, key=lambda pair: order.index(pair[0]), default=None)
    if gravest is None:
        return WayOutcome(
            way=name, outcome="works" if known else "unknown", effect=None if known else "not_known", by=None
        )
    return WayOutcome(way=name, outcome=GRAVITY[gravest[0]], effect=gravest[0], by=gravest[1])


def stretches(program: Program, member: BoolArray, call: IntArray, stops: Obstacles) -> list[IntArray]:
    """Return activities, in order of launch, that lie in one call of a span with no stop between them.

    member, call: of each of the program's activities, whether it is the span's, and in which call; stops: what ends a
    stretch, but for an optimizer's launches, which are in none.
    """
    moment = program.launched_ns[program.activity]
    barred = np.array([kind in ("optimizer", "replayed") for kind in stops.kind] + [False])[stops.code]
    cut = np.searchsorted(np.sort(stops.begin_ns[~barred]), moment, side="right")
    held = member & ~np.isin(moment, stops.begin_ns[barred])
    step = program.step_at(moment)
    edge = (np.diff(cut) != 0) | (np.diff(step) != 0) | (np.diff(call) != 0) | ~held[:-1] | ~held[1:]
    parts = np.split(np.arange(len(moment)), np.flatnonzero(edge) + 1)
    return [program.activity[part] for part in parts if len(part) >= _FEWEST and held[part].all()]


def listed(program: Program, parts: Sequence[IntArray]) -> list[tuple[SpanPart, list[IntArray]]]:
    """Return stretches by the lines that they begin and end at, most launches first."""
    ends = np.array([(part[0], part[-1]) for part in parts], np.int64).reshape(-1, 2)
    first, last = (lines_of(program.timeline, program.path[ends[:, side]]) for side in (0, 1))
    groups: dict[tuple[str | None, str | None], list[IntArray]] = {}
    for *lines, part in zip(first, last, parts, strict=True):
        groups.setdefault((lines[0], lines[1]), []).append(part)
    found = [
        (SpanPart(first=lines[0], last=lines[1], times=len(each), launches=sum(map(len, each))), each)
        for lines, each in groups.items()
    ]
    return sorted(found, key=lambda pair: -pair[0].launches)


def overwritten(program: Program, calls: IntArray, graph: NodeGraph, *, by_step: bool = False) -> IntArray:
    """Return the nodes of a span's calls whose results something reads after a later call took their memory.

    What is written in place, as parameters and a cache of fixed size are, lies in memory that no call takes.
    calls: of each forward operator the call of the span, −1: none; by_step: the program says where its steps begin.
    """
    if not (calls >= 0).any():
        return np.zeros(0, np.int64)
    numbers, first = np.unique(calls[calls >= 0], return_index=True)  # a device launches of some calls alone
    rows = program.rows[np.flatnonzero(calls >= 0)[first]]
    begin = program.op_begin[rows]
    node = graph.first_activity
    time, back = program.launched_ns[node], program.backward[node]
    call = np.where(node >= 0, taken(calls, taken(program.place, program.forward[node])), -1)
    own = np.where(call >= 0, np.searchsorted(numbers, call), -1)
    moments = np.sort(time[back & (own >= 0)])
    generation = program.step_at(begin) if by_step else _generations(begin, moments)
    at = np.where(back, generation[np.searchsorted(begin, time, side="right") - 1], taken(generation, own))
    made, read = graph.producer, graph.consumer
    inside = (own[made] >= 0) & graph.passed
    made, read = made[inside], read[inside]
    read_at = np.where((own[read] >= 0) & ~back[read], taken(generation, own[read]), -1)
    later = np.searchsorted(begin, time[read], side="right") - 1
    now = np.where(read_at >= 0, read_at, generation[later])
    return sorted_unique(made[(now > at[made]) & (time[read] >= 0)])


def _generations(begin: IntArray, backward: IntArray) -> IntArray:
    """Return of each call, in order, how often memory was taken anew up to it.

    backward: when something of the span's backward pass ran, in order. With one to come after it a call keeps memory.

    >>> _generations(np.array([1, 2, 9]), np.array([5])).tolist(), _generations(np.array([1, 2]), np.array([])).tolist()
    ([0, 0, 1], [0, 1])
    """
    generation = np.zeros(len(begin), np.int64)
    trained = len(backward) > 0
    for at in range(1, len(begin)):
        between = np.searchsorted(backward, (begin[at - 1], begin[at]))
        generation[at] = generation[at - 1] + (not trained or between[1] > between[0])
    return generation
