"""cases.md → worked examples of a rule: headings, prose and tables of rows, and whether the engine agrees.

    ## Bias and GELU follow the GEMM on its stream

    | stream | op   | dur_ns | expect |
    |--------|------|--------|--------|
    | 7      | gemm | 120000 | mm     |
    | 7      | copy | 2000   |        |

The last column says which variable must bind the row; blank: no match may touch it; `a, b`: matches overlap and both
do. A blank cell is null. Of a column that is not in the table every row is null, but partition_by columns are all
equal and order_by columns count the rows from 0, so that rows stand on one stream in the order of the table. Flags are
`true` or `false`, false where blank or absent. A heading that begins `Known miss:` holds what ought to be bound and is
expected to fail.

A table with a column `reads` is a small graph, for `match`: a line an operator, in the order in which they run.

    | node  | reads    | operation | out_shape | expect  |
    |-------|----------|-----------|-----------|---------|
    | qk    | q, k     | bmm       | [8,64,64] | product |
    | scale | qk       | mul       | [8,64,64] |         |

`reads` names nodes above, in the order of the arguments, or tensors from outside. Of an input that is a node's result
the shape, dtype and layout are that result's, unless a column such as `in0_shape` says otherwise: what lies in between
is a view. `kept`: the result is live-out; `guessed`: what it reads is a guess; `unknown`: what it reads and writes is
not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tracemine.errors import InputError, Location, RuleError
from tracemine.files import read_file
from tracemine.matching.graph_cases import GRAPH_CELLS, READS, graph_of_table
from tracemine.matching.match import find
from tracemine.matching.nearest import nearest
from tracemine.matching.rule import Rule
from tracemine.rows.table import Categories, Column, Flags, Numbers, Rows

KNOWN_MISS: Final = "Known miss:"
_EXPECT: Final = "expect"
_CASES_SIZE_LIMIT: Final = 1 << 24  # bytes of a cases.md
_FLAGS: Final = {"true": True, "false": False, "": False}


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One table of cases.md: its heading, and for each row the variables that must bind it."""

    heading: str
    where: Location
    columns: tuple[str, ...]
    rows: Rows
    expected: tuple[frozenset[str], ...]

    @property
    def known_miss(self) -> bool:
        """Whether the case is expected to fail."""
        return self.heading.startswith(KNOWN_MISS)

    @property
    def matching(self) -> bool:
        """Whether the rule must match in it; otherwise it is a near miss."""
        return any(self.expected)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What the engine made of one case; `problems` is empty where it did what it should, known misses included."""

    rule: str
    heading: str
    where: Location
    known_miss: bool
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong with it."""
        return not self.problems


def run_cases(rule: Rule) -> tuple[CaseResult, ...]:
    """Return every case of a rule, in the order of the file. Raises RuleError for a file that cannot be read."""
    return tuple(run_case(rule, case) for case in read_cases(rule))


def run_case(rule: Rule, case: RuleCase) -> CaseResult:
    """Run one case: return what bound each row and what should have."""
    matches = find(rule, case.rows)
    bound: list[set[str]] = [set() for _ in case.expected]
    for match in matches:
        for row, variable in zip(match.rows, match.variables, strict=True):
            bound[row].add(variable)
    differences = tuple(
        f"row {number}: expected {_names(expected)}, found {_names(found)}"
        for number, (expected, found) in enumerate(zip(case.expected, bound, strict=True), 1)
        if expected != found
    )
    if case.known_miss:
        now_passes = f"it passes now: take {KNOWN_MISS!r} off its heading"
        return CaseResult(rule.id, case.heading, case.where, True, () if differences else (now_passes,))
    return CaseResult(rule.id, case.heading, case.where, False, differences)


def _names(variables: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(variables)) or "nothing"


def read_cases(rule: Rule) -> tuple[RuleCase, ...]:
    """Return the cases of a rule; none where there is no cases.md. Raises RuleError naming the line."""
    path = rule.folder / "cases.md"
    if not path.exists():
        return ()
    try:
        content = read_file(path, _CASES_SIZE_LIMIT).decode()
    except InputError as error:
        raise RuleError(error.message, where=error.where, hint=error.hint) from None
    except UnicodeDecodeError:
        raise RuleError("the file is not UTF-8", where=Location(str(path))) from None
    return tuple(
        _case(rule, Location(str(path), line), heading, table) for line, heading, table in _tables(path, content)
    )


# --- Markdown --------------------------------------------------------------------------------------------------------

_Table = list[tuple[int, list[str]]]  # line and cells


def _tables(path: Path, content: str) -> Iterator[tuple[int, str, _Table]]:
    """Yield the line of each heading with a table, its text, and its table; text around them is for people."""
    heading, heading_line = "", 0
    table: _Table = []
    fenced = False
    for number, raw in enumerate([*content.splitlines(), ""], 1):
        line = raw.strip()
        if line.startswith("```"):
            fenced = not fenced
        if line.startswith("|") and not fenced:
            if not heading:
                raise RuleError("this table has no heading", where=Location(str(path), number))
            table.append((number, _cells(line)))
            continue
        if table:
            yield heading_line, heading, table
            table, heading = [], ""
        if line.startswith("## ") and not fenced:
            if heading:
                raise RuleError(f"{heading!r} has no table", where=Location(str(path), heading_line))
            heading, heading_line = line[3:].strip(), number
    if heading:
        raise RuleError(f"{heading!r} has no table", where=Location(str(path), heading_line))


def _cells(line: str) -> list[str]:
    inner = line.removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


# --- cells to rows ---------------------------------------------------------------------------------------------------


def _case(rule: Rule, where: Location, heading: str, table: _Table) -> RuleCase:
    names = table[0][1]
    is_graph = READS in names
    kinds = {column.name: column.kind for column in rule.docs} | (GRAPH_CELLS if is_graph else {})
    _check_head(where, table, kinds)
    body = table[2:]
    given = {
        name: [(Location(where.path, line, name), cells[at]) for line, cells in body]
        for at, name in enumerate(names[:-1])
    }
    columns = {name: _column(kinds[name], cells) for name, cells in given.items() if name not in GRAPH_CELLS}
    for name, kind in kinds.items():
        if name not in columns and name not in GRAPH_CELLS:
            columns[name] = _absent(kind, len(body), name in rule.partition_by, name in rule.order_by)
    expected = tuple(_expected(rule, Location(where.path, line, _EXPECT), cells[-1]) for line, cells in body)
    nodes = {name: cells for name, cells in given.items() if name in GRAPH_CELLS}
    graph = graph_of_table(nodes, len(body)) if is_graph else None
    return RuleCase(heading, where, tuple(names[:-1]), Rows(rule.rows, len(body), columns, graph), expected)


def _check_head(where: Location, table: _Table, kinds: Mapping[str, str]) -> None:
    """Raise RuleError where a table is none, or its columns are not those of the rows."""
    line, names = table[0]
    if len(table) < 3 or not all(re.fullmatch(r":?-+:?", cell) for cell in table[1][1]):
        raise RuleError(
            "this is no table",
            where=Location(where.path, line),
            hint="a table is a line of columns, a line of |---|, and a line a row",
        )
    if names[-1] != _EXPECT:
        raise RuleError(f"the last column is {names[-1]!r}; it must be {_EXPECT!r}", where=Location(where.path, line))
    for name in names[:-1]:
        if name not in kinds:
            raise RuleError(
                f"the rows have no column {name!r}", where=Location(where.path, line), hint=nearest(name, kinds)
            )
        if names.count(name) > 1:
            raise RuleError(f"the column {name!r} is there twice", where=Location(where.path, line))
    for line, cells in table[2:]:
        if len(cells) != len(names):
            raise RuleError(
                f"this row has {len(cells)} cells, the table {len(names)} columns", where=Location(where.path, line)
            )


def _expected(rule: Rule, where: Location, cell: str) -> frozenset[str]:
    variables = frozenset(part.strip() for part in cell.split(",")) if cell else frozenset()
    for variable in variables:
        if variable not in rule.variables:
            raise RuleError(
                f"{variable!r} is not defined", where=where, hint=f"define names: {', '.join(rule.variables)}"
            )
    return variables


def _integer(where: Location, cell: str) -> int:
    try:
        found = int(cell)
    except ValueError:
        raise RuleError(f"{cell!r} is not an integer", where=where) from None
    if abs(found) >= 1 << 63:
        raise RuleError(f"{cell!r} does not fit in 64 bits", where=where)
    return found


def _column(kind: str, cells: Sequence[tuple[Location, str]]) -> Column:
    if kind == "categories":
        return _categories([cell or None for _, cell in cells])
    if kind == "flags":
        for where, cell in cells:
            if cell not in _FLAGS:
                raise RuleError(f"{cell!r} is neither true nor false", where=where)
        return Flags(np.array([_FLAGS[cell] for _, cell in cells], np.bool_))
    numbers = [_integer(where, cell or "0") for where, cell in cells]
    valid = np.array([cell != "" for _, cell in cells], np.bool_)
    return Numbers(np.array(numbers, np.int64), None if valid.all() else valid)


def _absent(kind: str, count: int, partitions: bool, orders: bool) -> Column:
    if kind == "categories":
        return _categories(["same" if partitions else None] * count)
    if kind == "flags":
        return Flags(np.zeros(count, np.bool_))
    if orders:
        return Numbers(np.arange(count, dtype=np.int64))
    return Numbers(np.zeros(count, np.int64), None if partitions else np.zeros(count, np.bool_))


def _categories(values: Sequence[str | None]) -> Categories:
    code: Mapping[str, int] = {value: at for at, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
    return Categories(np.array([-1 if value is None else code[value] for value in values], np.int32), tuple(code))
