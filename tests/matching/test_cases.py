"""cases.md: how a table becomes rows, what counts as passing, and what a broken table says."""

# ruff: noqa: E501 — one error a line: the list is read as a table

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.matching.conftest import RuleMaker
from tracemine.errors import RuleError
from tracemine.matching import Rule
from tracemine.matching.cases import read_cases, run_cases
from tracemine.rows.table import Numbers, category, flags, numbers_of

RULE = """pattern = "mm bias? act"
[define]
mm = { op = "gemm" }
bias = { op = "add", gap_ns.lt = 20_000 }
act = { op = ["gelu", "silu"], graph = false }
"""

CASES = """# What is found

Prose above and between is for people. | Not a table.

## Bias and GELU follow the GEMM on its stream

| stream | op   | gap_ns | expect |
|-------:|------|--------|--------|
| 7      | gemm | 900    | mm     |
| 8      | copy | 1      |        |
| 7      | add  | 1_100  | bias   |
| 7      | gelu |        | act    |

The next is not.

## Near miss: the add comes too late

| op   | gap_ns | graph | name   | expect |
|------|--------|-------|--------|--------|
| gemm | 0      |       | a\\|b  |        |
| add  | 20000  | true  |        |        |
| gelu | 0      | false |        |        |

## Known miss: another name of the activation

| op       | expect |
|----------|--------|
| gemm     | mm     |
| gelu_new | act    |
"""


@pytest.fixture
def with_cases(rule: RuleMaker) -> Callable[..., Rule]:
    def make(cases: str, body: str = RULE) -> Rule:
        loaded = rule(body)
        (loaded.folder / "cases.md").write_text(cases, "utf-8")
        return loaded

    return make


def test_cases_that_agree_pass_and_a_known_miss_passes_by_failing(with_cases: Callable[..., Rule]) -> None:
    results = run_cases(with_cases(CASES))
    assert [(result.heading, result.where.line, result.known_miss, result.problems) for result in results] == [
        ("Bias and GELU follow the GEMM on its stream", 5, False, ()),
        ("Near miss: the add comes too late", 16, False, ()),
        ("Known miss: another name of the activation", 24, True, ()),
    ]


def test_the_day_a_known_miss_passes_the_result_says_so(with_cases: Callable[..., Rule]) -> None:
    (result,) = run_cases(with_cases("## Known miss: x\n\n|op|expect|\n|-|-|\n|gemm|mm|\n|gelu|act|\n"))
    assert result.problems == ("it passes now: take 'Known miss:' off its heading",)


def test_what_was_bound_otherwise_is_said_row_by_row(with_cases: Callable[..., Rule]) -> None:
    (result,) = run_cases(with_cases("## x\n\n|op|expect|\n|-|-|\n|gemm|mm|\n|add|bias|\n|gelu||\n|gelu|act|\n"))
    assert not result.passed
    assert result.problems == (
        "row 1: expected mm, found nothing",
        "row 2: expected bias, found nothing",
        "row 4: expected act, found nothing",
    )


def test_blank_cells_are_null_and_absent_columns_stand_on_one_stream_in_order(with_cases: Callable[..., Rule]) -> None:
    case = read_cases(with_cases(CASES))[0]
    columns = case.rows.columns
    assert list(columns) == ["stream", "op", "gap_ns", "name", "dur_ns", "bytes", "graph", "start_ns", "device"]
    gap = columns["gap_ns"]
    assert isinstance(gap, Numbers)
    assert gap.valid is not None
    assert gap.values[gap.valid].tolist() == [900, 1, 1100]
    assert numbers_of(case.rows, "start_ns").values.tolist() == [0, 1, 2, 3]
    assert numbers_of(case.rows, "device").values.tolist() == [0, 0, 0, 0]
    assert numbers_of(case.rows, "device").valid is None
    unknown = numbers_of(case.rows, "bytes").valid
    assert unknown is not None
    assert unknown.tolist() == [False] * 4
    assert category(case.rows, "name").codes.tolist() == [-1] * 4
    assert flags(case.rows, "graph").tolist() == [False] * 4
    assert read_cases(with_cases(CASES))[1].rows.columns["name"].values == ("a|b",)


def test_a_row_of_two_overlapping_matches_expects_both_variables(with_cases: Callable[..., Rule]) -> None:
    body = 'after_match = "skip to next row"\npattern = "a b"\n[define]\na = { op = "x" }\nb = { dur_ns = 1 }\n'
    cases = "## x\n\n|op|dur_ns|expect|\n|-|-|-|\n|x|1|a|\n|x|1|a, b|\n|x|1|b|\n"
    assert run_cases(with_cases(cases, body))[0].passed


def test_a_rule_without_cases_has_none(rule: RuleMaker) -> None:
    assert run_cases(rule(RULE)) == ()


@pytest.mark.parametrize(
    ("cases", "text"),
    [
        ("|op|expect|\n|-|-|\n|gemm|mm|", ":1: this table has no heading"),
        ("## x\n\nprose\n\n## y\n\n|op|expect|\n|-|-|\n|a||", ":1: 'x' has no table"),
        ("## x\n", ":1: 'x' has no table"),
        ("## x\n|op|expect|\n|gemm|mm|\n|gelu|act|", ":2: this is no table\n  hint: a table is a line of columns, a line of |---|, and a line a row"),
        ("## x\n|op|\n|-|\n|gemm|", ":2: the last column is 'op'; it must be 'expect'"),
        ("## x\n|opp|expect|\n|-|-|\n|gemm|mm|", ":2: the rows have no column 'opp'\n  hint: did you mean op?"),
        ("## x\n|op|op|expect|\n|-|-|-|\n|a|a||", ":2: the column 'op' is there twice"),
        ("## x\n|op|expect|\n|-|-|\n|gemm|", ":4: this row has 1 cells, the table 2 columns"),
        ("## x\n|op|expect|\n|-|-|\n|gemm|m|", ":4: expect: 'm' is not defined\n  hint: define names: mm, bias, act"),
        ("## x\n|dur_ns|expect|\n|-|-|\n|1.5||", ":4: dur_ns: '1.5' is not an integer"),
        ("## x\n|dur_ns|expect|\n|-|-|\n|9223372036854775808||", ":4: dur_ns: '9223372036854775808' does not fit in 64 bits"),
        ("## x\n|graph|expect|\n|-|-|\n|yes||", ":4: graph: 'yes' is neither true nor false"),
    ],
)  # fmt: skip
def test_a_broken_table_is_said_with_its_line(
    with_cases: Callable[..., Rule], tmp_path: Path, cases: str, text: str
) -> None:
    with pytest.raises(RuleError) as error:
        read_cases(with_cases(cases))
    assert str(error.value) == f"{tmp_path}/epilogue/cases.md{text}"
