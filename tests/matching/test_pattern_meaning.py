"""The engine against a matcher that tries every parse in SQL's order of preference and knows no regular expression."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.matching.conftest import make_rows
from tracemine.errors import Location
from tracemine.matching import Matches, find
from tracemine.matching.define import exclusive
from tracemine.matching.pattern import Node, PatternError, Step, checked, parse, variables
from tracemine.matching.rule import SKIP_PAST_LAST_ROW, SKIP_TO_NEXT_ROW, ColumnTest, Rule
from tracemine.rows.table import Categories

VARIABLES = ("a", "b", "c", "d")


def parses(node: Node, rows: Sequence[set[str]], at: int) -> Iterator[list[str]]:
    """Every way to match from row `at`, the preferred one first: the variable bound to each row."""
    if isinstance(node, Step):
        yield from repeated(node, rows, at, 0)
    elif node.one_of:
        for option in node.parts:
            yield from parses(option, rows, at)
    else:
        yield from in_turn(node.parts, rows, at)


def repeated(step: Step, rows: Sequence[set[str]], at: int, taken: int) -> Iterator[list[str]]:
    if (step.high is None or taken < step.high) and at < len(rows) and step.variable in rows[at]:
        for rest in repeated(step, rows, at + 1, taken + 1):
            yield [step.variable, *rest]
    if taken >= step.low:
        yield []


def in_turn(parts: Sequence[Node], rows: Sequence[set[str]], at: int) -> Iterator[list[str]]:
    if not parts:
        yield []
        return
    for start in parses(parts[0], rows, at):
        for rest in in_turn(parts[1:], rows, at + len(start)):
            yield [*start, *rest]


def brute_force(node: Node, rows: Sequence[set[str]], *, overlapping: bool) -> list[tuple[int, list[str]]]:
    found, at = [], 0
    while at < len(rows):
        parse_found = next(parses(node, rows, at), None)
        if parse_found is not None:
            found.append((at, parse_found))
        at += 1 if parse_found is None or overlapping else len(parse_found)
    return found


QUANTIFIERS = ("", "", "", "?", "*", "+", "{2}", "{2,}", "{1,2}", "{0,3}", "{0,70}", "{1,80}", "{3,}")


def patterns(draw: random.Random, leaves: int = 6) -> str:
    """Text of a pattern with some steps at most, which may be refused."""
    if leaves == 1 or draw.random() < 1 / 4:
        return draw.choice(VARIABLES) + draw.choice(QUANTIFIERS)
    parts = draw.randint(1, min(leaves, 4))
    inner = [patterns(draw, leaves // parts) for _ in range(parts)]
    return draw.choice((" ".join(inner), f"({' | '.join(inner)})", f"({inner[0]} |)"))


# Variables as tests on `op` alone exclude each other; tests on `dur_ns` and `gap_ns` overlap with everything else.
OPS = ("gemm", "add", "gelu", "copy")


def one_definition(draw: random.Random) -> tuple[ColumnTest, ...]:
    op, limit = draw.choice(OPS), draw.randint(1, 3)
    return draw.choice(
        (
            (ColumnTest("op", "is", tuple(draw.sample(OPS, draw.randint(1, 2)))),),
            (ColumnTest("op", "is", (op,)),),
            (ColumnTest("dur_ns", "lt", (limit,)),),
            (ColumnTest("dur_ns", "gte", (limit,)),),
            (ColumnTest("op", "is", (op,)), ColumnTest("gap_ns", "lt", (limit,))),
        )
    )


def some_rows(draw: random.Random) -> list[tuple[Any, ...]]:
    """Rows of op, dur_ns, gap_ns and stream."""

    def perhaps(value: object) -> object:
        return draw.choice((None, value))

    return [
        (perhaps(draw.choice(OPS)), draw.randint(0, 3), perhaps(draw.randint(0, 3)), draw.choice((7, 7, 7, 8)))
        for _ in range(draw.randint(1, 24))
    ]


def bounded(pattern: str) -> str:
    for many, few in (("*", "{0,3}"), ("+", "{1,3}"), ("{2,}", "{2,4}"), ("{3,}", "{3,4}"), ("70", "5"), ("80", "5")):
        pattern = pattern.replace(many, few)
    return pattern


def passes(test: ColumnTest, row: dict[str, object]) -> bool:
    value = row[test.column]
    if value is None:
        return False
    if test.relation == "is":
        return value in test.values
    limit = test.values[0]
    return value < limit if test.relation == "lt" else value >= limit  # type: ignore[operator]


def make_rule(pattern: str, define: dict[str, tuple[ColumnTest, ...]], after_match: str) -> Rule | None:
    try:
        tree = parse(pattern)
        used = variables(tree)
        compiled = checked(
            tree,
            text=pattern,
            exclusive=lambda one, other: exclusive(define[one], define[other]),
            overlapping_matches=after_match == SKIP_TO_NEXT_ROW,
        )
    except PatternError:
        return None
    return Rule(
        id="random",
        title="t",
        task=None,
        status="stable",
        what="w",
        why="y",
        fix="f",
        rows="activities",
        priority=1,
        saving="fuse",
        group_by=(),
        partition_by=("stream",),
        order_by=("start_ns",),
        pattern=compiled,
        after_match=after_match,
        define={name: tests for name, tests in define.items() if name in used},
        measures=(),
        where=Location("random/rule.toml"),
    )


def as_found(matches: Matches) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    return [(match.rows, match.variables) for match in matches]


def test_matches_are_those_of_a_matcher_that_tries_every_parse() -> None:
    draw, tried = random.Random(0), 0
    while tried < 600:
        pattern, defined = patterns(draw), {name: one_definition(draw) for name in VARIABLES}
        after_match = draw.choice((SKIP_PAST_LAST_ROW, SKIP_PAST_LAST_ROW, SKIP_TO_NEXT_ROW))
        # What is refused as it is, too costly or matching nothing, is tried with small counts and a mandatory row.
        attempts = (pattern, bounded(pattern), f"a {bounded(pattern)}")
        rules = (make_rule(attempt, defined, after_match) for attempt in attempts)
        if rule := next(filter(None, rules), None):
            check_against_brute_force(rule, some_rows(draw))
            tried += 1


# Four variables of which no row satisfies two, so that unbounded repetitions may open a pattern or stand inside it.
APART: dict[str, tuple[ColumnTest, ...]] = {
    name: (ColumnTest("op", "is", (op,)),) for name, op in zip(VARIABLES, OPS, strict=True)
}


def test_unbounded_repetitions_match_as_if_every_parse_were_tried() -> None:
    draw, tried = random.Random(0), 0
    while tried < 600:
        steps = [draw.choice(VARIABLES) + draw.choice(("", "", "+", "*", "{2,}", "?")) for _ in range(4)]
        apart = ("({} {} | {}) {}".format(*steps), "{} ({} {} | {})".format(*steps))
        pattern = draw.choice((" ".join(steps[: draw.randint(2, 4)]), *apart))
        runs = [(draw.choice((*OPS, None)), draw.randint(1, 4)) for _ in range(draw.randint(1, 8))]
        if rule := make_rule(pattern, APART, SKIP_PAST_LAST_ROW):
            check_against_brute_force(rule, [(op, 0, None, 7) for op, count in runs for _ in range(count)])
            tried += 1


def check_against_brute_force(rule: Rule, values: Sequence[tuple[Any, ...]]) -> None:
    names = ("op", "dur_ns", "gap_ns", "stream")
    records = [dict(zip(names, value, strict=True)) for value in values]
    columns = {name: [record[name] for record in records] for name in names}
    rows = make_rows("activities", **columns)
    if all(record["op"] is None for record in records):  # a column of nulls alone has no type to guess from
        rows.columns["op"] = Categories(np.full(len(values), -1, np.int32), ())

    assert rule.pattern is not None
    expected = []
    for stream in sorted({record["stream"] for record in records}):
        numbers = [number for number, record in enumerate(records) if record["stream"] == stream]
        sets = [
            {name for name, tests_ in rule.define.items() if all(passes(test, records[number]) for test in tests_)}
            for number in numbers
        ]
        for start, bound in brute_force(rule.pattern.tree, sets, overlapping=rule.overlapping_matches):
            expected.append((tuple(numbers[start : start + len(bound)]), tuple(bound)))
    assert as_found(find(rule, rows)) == expected, rule.pattern.text
