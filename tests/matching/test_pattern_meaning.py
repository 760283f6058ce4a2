"""The engine against a matcher that tries every parse in SQL's order of preference and knows no regular expression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st

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


quantifiers = st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{2,}", "{1,2}", "{0,3}", "{0,70}", "{1,80}", "{3,}"])
steps = st.builds(lambda name, quantifier: name + quantifier, st.sampled_from(VARIABLES), quantifiers)
patterns = st.recursive(
    steps,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda options: "(" + " | ".join(options) + ")"),
        inner.map(lambda one: f"({one} |)"),
    ),
    max_leaves=6,
)

# Variables as tests on `op` alone exclude each other; tests on `dur_ns` and `gap_ns` overlap with everything else.
OPS = ("gemm", "add", "gelu", "copy")
tests = st.one_of(
    st.lists(st.sampled_from(OPS), min_size=1, max_size=2, unique=True).map(
        lambda ops: (ColumnTest("op", "is", tuple(ops)),)
    ),
    st.sampled_from(OPS).map(lambda op: (ColumnTest("op", "is", (op,)),)),
    st.integers(1, 3).map(lambda limit: (ColumnTest("dur_ns", "lt", (limit,)),)),
    st.integers(1, 3).map(lambda limit: (ColumnTest("dur_ns", "gte", (limit,)),)),
    st.tuples(st.sampled_from(OPS), st.integers(1, 3)).map(
        lambda both: (ColumnTest("op", "is", (both[0],)), ColumnTest("gap_ns", "lt", (both[1],)))
    ),
)
rows_strategy = st.lists(
    st.tuples(
        st.one_of(st.none(), st.sampled_from(OPS)),
        st.integers(0, 3),
        st.one_of(st.none(), st.integers(0, 3)),
        st.sampled_from((7, 7, 7, 8)),
    ),
    min_size=1,
    max_size=24,
)


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


@settings(max_examples=600)
@given(
    pattern=patterns,
    define=st.tuples(*(tests for _ in VARIABLES)),
    values=rows_strategy,
    after_match=st.sampled_from((SKIP_PAST_LAST_ROW, SKIP_PAST_LAST_ROW, SKIP_TO_NEXT_ROW)),
)
def test_matches_are_those_of_a_matcher_that_tries_every_parse(
    pattern: str, define: tuple[tuple[ColumnTest, ...], ...], values: list[tuple[Any, ...]], after_match: str
) -> None:
    defined = dict(zip(VARIABLES, define, strict=True))
    # What is refused as it is, too costly or matching nothing, is tried with small counts and a mandatory row.
    attempts = (pattern, bounded(pattern), f"a {bounded(pattern)}")
    rule = next(filter(None, (make_rule(attempt, defined, after_match) for attempt in attempts)), None)
    if rule is None:
        reject()
    check_against_brute_force(rule, values)


# Four variables of which no row satisfies two, so that unbounded repetitions may open a pattern or stand inside it.
APART: dict[str, tuple[ColumnTest, ...]] = {
    name: (ColumnTest("op", "is", (op,)),) for name, op in zip(VARIABLES, OPS, strict=True)
}
runs = st.lists(st.tuples(st.sampled_from((*OPS, None)), st.integers(1, 4)), min_size=1, max_size=8)
open_steps = st.builds(
    lambda name, quantifier: name + quantifier,
    st.sampled_from(VARIABLES),
    st.sampled_from(["", "", "+", "*", "{2,}", "?"]),
)
open_patterns = st.one_of(
    st.lists(open_steps, min_size=2, max_size=4).map(" ".join),
    st.tuples(open_steps, open_steps, open_steps, open_steps).map(lambda four: "({} {} | {}) {}".format(*four)),
    st.tuples(open_steps, open_steps, open_steps, open_steps).map(lambda four: "{} ({} {} | {})".format(*four)),
)


@settings(max_examples=600)
@given(pattern=open_patterns, runs=runs)
def test_unbounded_repetitions_match_as_if_every_parse_were_tried(
    pattern: str, runs: list[tuple[str | None, int]]
) -> None:
    rule = make_rule(pattern, APART, SKIP_PAST_LAST_ROW)
    if rule is None:
        reject()
    check_against_brute_force(rule, [(op, 0, None, 7) for op, count in runs for _ in range(count)])


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
    assert as_found(find(rule, rows)) == expected
