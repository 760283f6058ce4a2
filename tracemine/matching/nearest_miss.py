"""Why a rule does not match: what it would match with one of its conditions left out, and what was there instead.

Each condition is left out in turn and the rule is matched again, by the same engine: a test of a variable, a test of
WHERE, ONLY READER, and that all rows of a match lie in one partition. So a near miss is a match but for one condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from tracemine.matching.define import column_holds, exclusive
from tracemine.matching.graph_pattern import SameInput, Test
from tracemine.matching.match import find
from tracemine.matching.pattern import PatternError, checked
from tracemine.matching.rule import ColumnTest, Match, Matches, Rule
from tracemine.rows.table import BoolArray, Categories, Flags, Rows


@dataclass(frozen=True, slots=True)
class NearMiss:
    """What a rule would match without one condition."""

    variable: str | None  # whose test it is; None: it is about several
    condition: str  # as a rule file writes it, nearly
    matches: int  # how many there would be
    first: Match  # the longest of them, the first of several
    values: tuple[str, ...]  # what the rows of the variable have instead, each once; "null": not recorded


@dataclass(frozen=True, slots=True)
class Why:
    """How far a rule comes in a trace."""

    rule: Rule
    rows: int  # of its row set
    matches: int
    satisfied: dict[str, int]  # how many rows pass all tests of each variable
    graph_known: bool  # whether dataflow is known of any row
    misses: tuple[NearMiss, ...]  # the longest match first; none where the rule matches


def why(rule: Rule, rows: Rows) -> Why:
    """Match a rule, and where it matches nothing, find out which condition alone is in the way. Errors as `find`."""
    count = len(find(rule, rows))
    misses = () if count else tuple(sorted(_near_misses(rule, rows), key=_nearness))
    satisfied = {name: int(_passed(tests, rows).sum()) for name, tests in rule.define.items()}
    graph_known = rows.graph is not None and len(rows.graph) > 0
    return Why(rule, rows.count, count, satisfied, graph_known, misses)


def _nearness(miss: NearMiss) -> tuple[int, int]:
    return -len(miss.first.rows), -miss.matches


def _near_misses(rule: Rule, rows: Rows) -> Iterator[NearMiss]:
    for variable, tests in rule.define.items():
        for at, test in enumerate(tests):
            relaxed = _without_test(rule, variable, (*tests[:at], *tests[at + 1 :]))
            if relaxed is not None:
                yield from _miss(relaxed, rows, variable, test)
    for condition, relaxed in _without_structure(rule):
        yield from _miss(relaxed, rows, None, condition)


def _miss(relaxed: Rule, rows: Rows, variable: str | None, condition: ColumnTest | str) -> Iterator[NearMiss]:
    found = find(relaxed, rows)
    if not len(found):
        return
    first = _longest(found)
    values: tuple[str, ...] = ()
    if variable is not None and isinstance(condition, ColumnTest):
        values = _instead(relaxed, rows, variable, condition, first)
        condition = f"{variable}.{condition}"
    yield NearMiss(variable, str(condition), len(found), first, values)


def _longest(found: Matches) -> Match:
    return found[int(np.argmax(np.diff(found.offsets)))]


def _without_test(rule: Rule, variable: str, tests: tuple[ColumnTest, ...]) -> Rule | None:
    """Return the rule with fewer tests of a variable; None where its pattern would not be linear in the rows.

    Graphs without that variable match nothing, as before.
    """
    define = {**rule.define, variable: tests}
    match = tuple(g for g in rule.match if any(variable in labels for labels in g.vertices.values())) or rule.match
    pattern = rule.pattern
    if pattern is not None:
        try:
            pattern = checked(
                pattern.tree,
                text=pattern.text,
                exclusive=lambda one, other: exclusive(define[one], define[other]),
                overlapping_matches=rule.overlapping_matches,
            )
        except PatternError:
            if not rule.match:
                return None
            pattern = None
    return replace(rule, define=define, pattern=pattern, match=match, measures=())


def _without_structure(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield the rule without a test of WHERE, without ONLY READER, and without partitions."""
    for graph in rule.match:  # the others match nothing, as before
        for at, test in enumerate(graph.where):
            fewer = replace(graph, where=(*graph.where[:at], *graph.where[at + 1 :]))
            yield f"WHERE {_where_text(test)}", replace(rule, match=(fewer,), measures=())
        if graph.only_reader:
            fewer = replace(graph, only_reader=())
            names = ", ".join(graph.only_reader)
            yield f"ONLY READER ({names})", replace(rule, match=(fewer,), measures=())
    for name in rule.partition_by:
        rest = tuple(other for other in rule.partition_by if other != name)
        yield f"all rows of one {name}", replace(rule, partition_by=rest)


def _where_text(test: Test) -> str:
    if isinstance(test, SameInput):
        return f"SAME INPUT ({test.one}, {test.other})"
    return f"{test.left} {test.sign} {test.right}"


def _instead(relaxed: Rule, rows: Rows, variable: str, test: ColumnTest, match: Match) -> tuple[str, ...]:
    """Return what rows have that a test is about and that fail it: those bound by a name with this label."""
    bound = _names_of(relaxed, variable)
    passed = _passed((test,), rows)
    at = [row for row, name in zip(match.rows, match.variables, strict=True) if name in bound and not passed[row]]
    return tuple(dict.fromkeys(_value(rows, test.column, row) for row in at))


def _names_of(rule: Rule, variable: str) -> set[str]:
    """Return the names that a match gives to rows with a label: its own, and those of `(name IS label)`."""
    vertices = (vertex for graph in rule.match for vertex in graph.vertices.items())
    return {variable, *(name for name, labels in vertices if variable in labels)}


def _passed(tests: Sequence[ColumnTest], rows: Rows) -> BoolArray:
    passed = np.ones(rows.count, np.bool_)
    for test in tests:
        passed &= column_holds(test, rows.columns[test.column], slice(0, rows.count))
    return passed


def _value(rows: Rows, name: str, row: int) -> str:
    column = rows.columns[name]
    if isinstance(column, Categories):
        code = int(column.codes[row])
        return "null" if code < 0 else column.values[code]
    if not isinstance(column, Flags) and column.valid is not None and not column.valid[row]:
        return "null"
    return str(column.values[row]).lower() if isinstance(column, Flags) else str(column.values[row])
