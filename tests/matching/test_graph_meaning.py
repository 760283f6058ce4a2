"""Graph patterns against a matcher that tries every way, one node after another, and knows no array."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tracemine.flow.record import Evidence
from tracemine.matching import graph_match, shared
from tracemine.matching.graph_cases import graph_of_table
from tracemine.matching.graph_match import find_in_graph
from tracemine.matching.graph_parse import parse_graph
from tracemine.matching.graph_pattern import Comparison, GraphPattern, SameInput, Segment
from tracemine.matching.pattern import PatternError
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import NodeGraph
from tracemine.rows.table import Categories, Column, IntArray, Numbers, Rows

OPS = ("x", "y", "z")
OFTEN = ("x", "y", "x", "y", "z")
LABELS = {
    "x": (ColumnTest("op", "is", ("x",)),),
    "y": (ColumnTest("op", "is", ("y",)),),
    "xy": (ColumnTest("op", "is", ("x", "y")),),
    "long": (ColumnTest("op", "is", ("x", "z")), ColumnTest("dur_ns", "gt", (1,))),
}
SIZES = (None, 4, 8)


@dataclass(frozen=True)
class Node:
    """One operator: of each activity its op, duration and stream; what it reads: nodes before it, or −1 and −2."""

    activities: tuple[tuple[str, int, int], ...]
    reads: tuple[int, ...]
    size: int | None
    kept: bool
    guessed: bool
    unknown: bool


def programs(draw: random.Random) -> list[Node]:
    nodes = list[Node]()
    for number in range(draw.randint(3, 10)):
        activities = [
            (draw.choice(OFTEN), draw.randint(1, 2), 8 if draw.random() < 1 / 20 else 7)
            for _ in range(2 if draw.random() < 1 / 8 else 1)
        ]
        least = (-2, max(number - 3, -2))  # any before it, or one of the last three
        reads = [draw.randint(draw.choice(least), number - 1) for _ in range(draw.randint(min(number, 1), 3))]
        nodes.append(
            Node(
                activities=tuple(activities),
                reads=tuple(reads),
                size=draw.choice(SIZES),
                kept=draw.random() < 1 / 4,
                guessed=draw.random() < 1 / 3,
                unknown=draw.random() < 1 / 16,
            )
        )
    return nodes


def patterns(draw: random.Random) -> str:
    """Text of a pattern that may be refused."""
    names = ["a", "b", "c", "d"][: draw.choice((2, 2, 3, 3, 4))]
    seen, groups, paths = set[str](), list[str](), list[str]()

    def labels() -> str:
        return "|".join(dict.fromkeys(draw.choices(("x", "y", "xy", "xy", "long"), k=draw.randint(1, 2))))

    def vertex(name: str) -> str:
        again = name in seen
        seen.add(name)
        return f"({name})" if again else f"({name} IS {labels()})"

    def edge() -> str:
        return draw.choice(("-[reads]->", "<-[reads]-"))

    def counted() -> str:
        low, high = sorted((draw.randint(0, 2), draw.randint(1, 2)))
        inside = f":{labels()}"
        if draw.random() < 1 / 2:
            groups.append(f"g{len(groups)}")
            inside = f"{groups[-1]} IS {labels()}"
        return f"{edge()}{{{low},{high}}}({inside})"

    def rarely() -> bool:
        return draw.random() < 1 / 4

    for one, other in [*pairwise(names), *([(names[0], names[-1])] if rarely() else [])]:
        between = "".join(counted() for _ in range(draw.choice((0, 0, 1, 1, 2))))
        paths.append(vertex(one) + between + edge() + vertex(other))
    if draw.random() < 1 / 2:
        paths.append(vertex(draw.choice(names)) + counted())
    tests = []
    if rarely():
        tests.append(f"SAME INPUT ({draw.choice(names)}, {draw.choice(names)})")
    if rarely():
        sign = draw.choice(("=", "<>", "<", ">="))
        tests.append(f"{draw.choice(names)}.out_shape[-1] {sign} {draw.choice(('4', 'a.in0_shape[0]'))}")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    only = f" ONLY READER ({draw.choice([*names, *groups])})" if rarely() else ""
    return ", ".join(paths) + where + only


# --- every way, one after another ------------------------------------------------------------------------------------


def brute_force(pattern: GraphPattern, nodes: Sequence[Node]) -> list[tuple[dict[Any, int], int]]:
    """Matches in the order in which they are taken, each with its evidence."""
    found = [each for each in assignments(pattern, nodes, list(pattern.segments), {}) if holds(pattern, nodes, each)]

    def preference(binding: dict[Any, int]) -> tuple[Any, ...]:
        ordered = sorted(binding.values())
        vertices = [binding[name] for name in pattern.vertices]
        slots = [binding.get((g, k), -1) for g, group in enumerate(pattern.groups) for k in range(group.high)]
        return ordered[0], -len(ordered), ordered, vertices, slots

    taken, used = [], set[int]()
    for binding in sorted(found, key=preference):
        if used.isdisjoint(binding.values()):
            used |= set(binding.values())
            taken.append((binding, evidence(pattern, nodes, binding)))
    return taken


def assignments(
    pattern: GraphPattern, nodes: Sequence[Node], segments: list[Segment], bound: dict[Any, int]
) -> Iterator[dict[Any, int]]:
    if not segments:
        yield bound
        return
    segment, rest = segments[0], segments[1:]
    first = [bound[segment.first]] if segment.first in bound else range(len(nodes))
    group = pattern.segments.index(segment)
    number = sum(len(each.groups) for each in pattern.segments[:group])
    for at in first:
        if segment.first in bound or (can_be(pattern, nodes, segment.first, at) and at not in bound.values()):
            for one in along(pattern, nodes, segment, number, {**bound, segment.first: at}, at, 0):
                yield from assignments(pattern, nodes, rest, one)


def along(
    pattern: GraphPattern,
    nodes: Sequence[Node],
    segment: Segment,
    number: int,
    bound: dict[Any, int],
    at: int,
    turn: int,
) -> Iterator[dict[Any, int]]:
    """Every way through the groups from `turn` on, and to the end."""
    if turn == len(segment.groups):
        if segment.last is None:
            yield bound
            return
        for node in range(len(nodes)):
            if not linked(nodes, at, node, segment.reads):
                continue
            if segment.last in bound:
                fits = bound[segment.last] == node
            else:
                fits = node not in bound.values() and can_be(pattern, nodes, segment.last, node)
            if fits:
                yield {**bound, segment.last: node}
        return
    group = segment.groups[turn]

    def passed(bound: dict[Any, int], at: int, count: int) -> Iterator[dict[Any, int]]:
        if count >= group.low:
            yield from along(pattern, nodes, segment, number, bound, at, turn + 1)
        if count < group.high:
            for node in range(len(nodes)):
                fits = any(has(nodes, node, label, all) for label in group.labels)
                if fits and linked(nodes, at, node, group.reads) and node not in bound.values():
                    yield from passed({**bound, (number + turn, count): node}, node, count + 1)

    yield from passed(bound, at, 0)


def linked(nodes: Sequence[Node], one: int, other: int, reads: bool) -> bool:
    consumer, producer = (one, other) if reads else (other, one)
    same = {stream for node in (one, other) for _, _, stream in nodes[node].activities}
    return producer in nodes[consumer].reads and len(same) == 1


def has(nodes: Sequence[Node], node: int, label: str, how: Any) -> bool:
    streams = {stream for _, _, stream in nodes[node].activities}
    known = not nodes[node].unknown and len(streams) == 1
    return known and how(passes(label, op, dur) for op, dur, _ in nodes[node].activities)


def passes(label: str, op: str, dur: int) -> bool:
    value = {"op": op, "dur_ns": dur}
    return all(
        value[test.column] in test.values if test.relation == "is" else dur > test.values[0]  # type: ignore[operator]
        for test in LABELS[label]
    )


def can_be(pattern: GraphPattern, nodes: Sequence[Node], name: str, node: int) -> bool:
    return any(has(nodes, node, label, any) for label in pattern.vertices[name])


def holds(pattern: GraphPattern, nodes: Sequence[Node], bound: dict[Any, int]) -> bool:
    for test in pattern.where:
        if isinstance(test, SameInput):
            if not set(nodes[bound[test.one]].reads) & set(nodes[bound[test.other]].reads):
                return False
        elif not compares(test, nodes, bound):
            return False
    for name in pattern.only_reader:
        own = [node for slot, node in bound.items() if slot == name or called(pattern, slot) == name]
        for node in own:
            readers = {reader for reader, each in enumerate(nodes) if node in each.reads}
            if nodes[node].kept or not readers <= set(bound.values()):
                return False
    return True


def called(pattern: GraphPattern, slot: Any) -> str | None:
    return pattern.groups[slot[0]].name if isinstance(slot, tuple) else None


def compares(test: Comparison, nodes: Sequence[Node], bound: dict[Any, int]) -> bool:
    values = []
    for side in (test.left, test.right):
        if side.name is None:
            values.append(side.value)
        elif side.column == "out_shape":
            values.append(nodes[bound[side.name]].size)
        else:
            reads = nodes[bound[side.name]].reads
            values.append(nodes[reads[0]].size if reads and reads[0] >= 0 else None)
    one, other = values
    if one is None or other is None:
        return False
    return {"=": one == other, "<>": one != other, "<": one < other, ">=": one >= other}[test.sign]  # type: ignore[operator]


def evidence(pattern: GraphPattern, nodes: Sequence[Node], bound: dict[Any, int]) -> int:
    """The weakest of the edges on the ways that the match took, and of what is read alike."""
    consumers = set[int]()
    number = 0
    for segment in pattern.segments:
        at = bound[segment.first]
        for group in segment.groups:
            turn = 0
            while (number, turn) in bound:
                node = bound[number, turn]
                consumers.add(at if group.reads else node)
                at, turn = node, turn + 1
            number += 1
        if segment.last is not None:
            consumers.add(at if segment.reads else bound[segment.last])
    for test in pattern.where:
        if isinstance(test, SameInput):
            consumers |= {bound[test.one], bound[test.other]}
    return min(Evidence.ADJACENT if nodes[node].guessed else Evidence.PROVEN for node in consumers)


# --- the same by the engine ------------------------------------------------------------------------------------------


def rows_of(nodes: Sequence[Node]) -> Rows:
    activities = [(node, *activity) for node, each in enumerate(nodes) for activity in each.activities]
    owner, ops, durs, streams = zip(*activities, strict=True)
    where: Any = None  # no error is looked for
    cells = {
        "node": [(where, f"n{number}") for number in range(len(nodes))],
        "reads": [(where, ",".join(f"n{r}" if r >= 0 else f"outside{-r}" for r in each.reads)) for each in nodes],
        "out_shape": [(where, "" if each.size is None else f"[{each.size}]") for each in nodes],
    }
    for flag in ("kept", "guessed", "unknown"):
        cells[flag] = [(where, str(getattr(each, flag)).lower()) for each in nodes]
    table = graph_of_table(cells, len(nodes))
    fields = {name: getattr(table, name) for name in NodeGraph.__struct_fields__}
    fields |= {
        "activity": np.arange(len(owner)),
        "activity_begin": np.searchsorted(owner, np.arange(len(nodes) + 1)),
        "activity_node": np.array(owner),
    }
    columns: dict[str, Column] = {
        "op": Categories(np.array([OPS.index(op) for op in ops], np.int32), OPS),
        "dur_ns": Numbers(np.array(durs)),
        "stream": Numbers(np.array(streams)),
    }
    return Rows("activities", len(owner), columns, NodeGraph(**fields))


def shown(pattern: GraphPattern, nodes: Sequence[Node], binding: dict[Any, int]) -> list[tuple[int, str]]:
    """Each activity of a match with what it is called."""
    names = {}
    for slot, node in binding.items():
        if isinstance(slot, tuple):
            group = pattern.groups[slot[0]]
            names[node] = group.name or next(label for label in group.labels if has(nodes, node, label, all))
        else:
            names[node] = slot
    owner = [node for node, each in enumerate(nodes) for _ in each.activities]
    return [(row, names[node]) for row, node in enumerate(owner) if node in names]


def compared(count: int) -> None:
    """Compare on as many pairs of a pattern, one that is not refused, and a graph."""
    draw = random.Random(0)
    while count:
        text, nodes = patterns(draw), programs(draw)
        count -= check_against_brute_force(text, nodes)


def test_matches_are_those_of_a_matcher_that_tries_every_way() -> None:
    compared(600)


def check_against_brute_force(text: str, nodes: Sequence[Node]) -> bool:
    """Compare the engine with `brute_force`; return whether a pattern can be: others are refused."""
    try:
        pattern = parse_graph(text, tuple(LABELS))
    except PatternError:
        return False
    if len(set(pattern.segments)) < len(pattern.segments):  # a segment is found by what it says: two alike are one
        return False
    found = find_in_graph(pattern, LABELS, rows_of(nodes), ("stream",))
    assert found.left_out == 0
    names = pattern.variables
    engine = [
        (
            list(zip(found.rows[a:b].tolist(), [names[code] for code in found.variables[a:b].tolist()], strict=True)),
            int(sure),
        )
        for (a, b), sure in zip(pairwise(found.offsets.tolist()), found.evidence, strict=True)
    ]
    assert engine == [(shown(pattern, nodes, binding), sure) for binding, sure in brute_force(pattern, nodes)], text
    return True


def _forgets_that_nodes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_match._Partial, "columns", lambda self: [])


def _takes_matches_that_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_match, "disjoint", lambda bound, count: np.arange(len(bound)))


def _lets_others_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_match._Search, "_read_by_no_other", lambda self, partial: partial)


def _forgets_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def places(rows: Rows, graph: NodeGraph, partition_by: Sequence[str]) -> IntArray:
        return np.zeros(len(graph), np.int64)

    monkeypatch.setattr(shared, "places_of", places)


@pytest.mark.parametrize(
    "fault", [_forgets_that_nodes_differ, _takes_matches_that_overlap, _lets_others_read, _forgets_partitions]
)
def test_a_planted_fault_makes_the_comparison_fail(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        compared(600)


def test_a_segment_that_leads_to_more_ways_than_are_followed_is_left_out_and_counted() -> None:
    readers = graph_match.WAYS + 1
    nodes = [Node((("x", 1, 7),), (), None, False, False, False)]
    nodes += [Node((("y", 1, 7),), (0,), None, False, False, False)] * readers
    pattern = parse_graph("(a IS x)<-[reads]-(b IS y)", tuple(LABELS))
    found = find_in_graph(pattern, LABELS, rows_of(nodes), ("stream",))
    assert (len(found.offsets) - 1, found.left_out) == (0, 1)
    found = find_in_graph(pattern, LABELS, rows_of(nodes[:-1]), ("stream",))
    assert (found.rows.tolist(), found.left_out) == ([0, 1], 0)
