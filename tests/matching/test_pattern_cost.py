"""A stranger's trace must not make a rule run for hours: what could is refused, what is accepted stays linear."""

from __future__ import annotations

import time

import pytest

from tests.matching.conftest import RuleMaker, make_rows
from tracemine.errors import RuleError
from tracemine.matching import find

BOTH = 'a = { dur_ns.lt = 5 }\nb = { gap_ns.lt = 5 }\nc = { op = "add" }\n'  # a row can be all of them
APART = 'a = { op = "gemm" }\nb = { op = "gelu" }\nc = { op = "add" }\n'  # no row can be two of them
HOSTILE_ROWS = 100_000
CPU_SECONDS = 5.0  # about 1 s on the machine that this was written on; quadratic time would be minutes


def define(pattern: str, tests: str, after_match: str = "skip past last row") -> str:
    used = [line for line in tests.splitlines() if line[0] in pattern]
    return f'after_match = "{after_match}"\npattern = "{pattern}"\n[define]\n' + "\n".join(used)


@pytest.mark.parametrize(
    ("pattern", "tests", "step"),
    [
        ("a+ b", BOTH, "column 1: a+"),
        ("a* b+ c", BOTH, "column 1: a*"),
        ("a+ b+ c", BOTH, "column 1: a+"),
        ("c a+ b", BOTH, "column 3: a+"),
        ("a{1,65} b", BOTH, "column 1: a{1,65}"),
        ("a{1,65} b", APART, "column 1: a{1,65}"),  # bounded, so it may start inside its run
        ("a+ b a", APART, "column 1: a+"),  # the last row may stand inside the next run
        ("a a+ b", APART, "column 3: a+"),
        ("c (a+ | b) c", BOTH, "column 4: a+"),
    ],
)
def test_a_repetition_that_could_be_scanned_from_each_of_its_rows_is_refused(
    rule: RuleMaker, pattern: str, tests: str, step: str
) -> None:
    with pytest.raises(
        RuleError, match="would be scanned again from each of its rows\n  hint: bound it to at most 64"
    ) as e:
        rule(define(pattern, tests))
    assert e.value.message.startswith(step)


def test_too_many_ways_to_divide_the_same_rows_are_refused(rule: RuleMaker) -> None:
    with pytest.raises(RuleError) as error:
        rule(define("a{1,20} b{1,20} a{1,20} c", BOTH))
    assert error.value.message == "the pattern has 8,000 ways to divide the rows from one start; at most 256 are tried"


def test_groups_inside_each_other_have_a_limit(rule: RuleMaker) -> None:
    with pytest.raises(RuleError, match="column 52: more than 50 groups inside each other"):
        rule(define("(" * 5000 + "a" + ")" * 5000, APART))


@pytest.mark.parametrize(
    ("pattern", "many"),
    [("a+", "any number of"), ("a{1,64} b{1,64} a{1,64} b{1,65}", "257")],
    ids=["unbounded", "long"],
)
def test_matches_that_overlap_must_be_short(rule: RuleMaker, pattern: str, many: str) -> None:
    with pytest.raises(RuleError, match=f"matches may overlap and one may have {many} rows"):
        rule(define(pattern, APART, "skip to next row"))


@pytest.mark.parametrize(
    ("pattern", "tests"),
    [
        ("a+", BOTH),
        ("a{4,} b? c?", BOTH),
        ("a{1000,}", BOTH),
        ("a+ b", APART),
        ("a* b+ c", APART),
        ("(a+ b | b+ a?) c", APART),
        ("c a+ b", APART),
        ("c a{1,1000} b", APART),
        ("a{1,64} c", BOTH),
        ("a{1,16} b{1,16} c", BOTH),
        ("a{1,8} b{1,8} (a | b) (a | b) c", BOTH),
    ],
)
@pytest.mark.parametrize("op", ["gemm", "gelu", "nothing", None], ids=["all gemm", "all gelu", "all other", "mixed"])
def test_what_is_accepted_takes_linear_time_on_hostile_rows(
    rule: RuleMaker, pattern: str, tests: str, op: str | None
) -> None:
    loaded = rule(define(pattern, tests))
    ops = ["gemm", "gemm", "gelu", "nothing"] * (HOSTILE_ROWS // 4) if op is None else [op] * HOSTILE_ROWS
    rows = make_rows(op=ops, dur_ns=[1] * HOSTILE_ROWS, gap_ns=[1] * HOSTILE_ROWS)
    start = time.process_time()
    find(loaded, rows)
    assert time.process_time() - start < CPU_SECONDS


def test_a_regular_expression_looks_at_the_first_4096_characters_of_a_text(rule: RuleMaker) -> None:
    loaded = rule('pattern = "a{2,}"\n[define]\na = { name.re = "k.*b" }\n')
    begun = time.process_time()
    rows = make_rows(
        name=["k" * 1_000_000, "k" * 4095 + "b", "k" + "x" * 4094 + "b" + "x" * 1_000_000, "k" * 4096 + "b"]
    )
    assert [match.rows for match in find(loaded, rows)] == [(1, 2)]
    assert time.process_time() - begun < CPU_SECONDS
