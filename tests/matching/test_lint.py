"""Each check of lint sees what it is for, and a good rule has no problem."""

# ruff: noqa: E501 — one problem a line: the list is read as a table

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.matching.conftest import HEAD, RuleMaker
from tracemine.matching.lint import CHECKS, lint

RULE = """references = ["https://docs.nvidia.com/cutlass/"]
pattern = "mm act"
[define]
mm = { op = "gemm" }
act = { op = "gelu" }
"""
CALL = """references = ["https://docs.nvidia.com/cutlass/"]
pattern = "mm"
[define]
mm = { op = "aten::mm" }
"""
ADVICE = """
[[advice]]
when = { amd = true }
text = "Use another."
"""
CASES = """## Found

| op   | expect |
|------|--------|
| gemm | mm     |
| gelu | act    |

## Near miss: alone

| op   | expect |
|------|--------|
| gelu |        |
"""

Problems = Callable[..., list[str]]


@pytest.fixture
def problems(rule: RuleMaker) -> Problems:
    def make(body: str = RULE, cases: str | None = CASES, head: str = HEAD) -> list[str]:
        loaded = rule(body, head=head)
        if cases is not None:
            (loaded.folder / "cases.md").write_text(cases, "utf-8")
        return [str(problem).removeprefix(f"{loaded.folder}/") for problem in lint(loaded)]

    return make


def test_a_good_rule_has_no_problem(problems: Problems) -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"cases": CASES[CASES.index("## Near") :]}, "cases.md: no case shows what the rule finds [a_case_matches]"),
        ({"cases": CASES[: CASES.index("## Near")]}, "cases.md: no case shows what looks similar and is not found: a table whose expect column is blank [a_case_is_a_near_miss]"),
        ({"cases": CASES.replace("| act ", "|     ")}, "cases.md: Found: row 2: expected nothing, found act [every_case_passes]"),
        ({"cases": CASES.replace("| act ", "|     ")}, "rule.toml:11: define.act: no case expects 'act' [every_variable_is_shown]"),
        ({"body": RULE.replace('"gelu"', '"TODO"')}, "rule.toml:11: define.act: 'act' has a TODO [nothing_is_left_to_do]"),
        ({"cases": CASES.replace("Near miss: alone", "Found")}, "cases.md: 'Found' heads more than one case [headings_differ]"),
        ({"head": HEAD.replace("experimental", "stable")}, "rule.toml: limits: a stable rule says its limits [a_stable_rule_knows_its_limits]"),
        ({"head": HEAD.replace("experimental", "stable")}, "rule.toml: false_positives: a stable rule says its false positives [a_stable_rule_knows_its_limits]"),
        ({"head": HEAD.replace("Use a fused epilogue.", "Bias, and activation: run apart from their GEMM")}, "rule.toml:5: fix: fix says the same as title [texts_say_different_things]"),
        ({"head": HEAD.replace("whole output once more.", "output")}, "rule.toml:4: why: why does not end like a sentence [texts_are_sentences]"),
        ({"head": HEAD.replace('GEMM"', 'GEMM."')}, "rule.toml:1: title: a title has no full stop [texts_are_sentences]"),
        ({"body": 'limits = [" "]\n' + RULE}, "rule.toml:7: limits: limits has an empty entry [lists_hold_text]"),
        ({"body": RULE.replace("https://docs.nvidia.com/cutlass/", "the manual")}, "rule.toml:7: references: 'the manual' is no http address [references_are_addresses]"),
        ({"body": RULE + ADVICE + ADVICE}, "rule.toml:14: advice.when: amd: never counts, what fits it fits amd too [advice_can_be_reached]"),
        ({"head": HEAD.replace("Use a fused epilogue.", "Use {this}.")}, "rule.toml:5: fix: {this} is no placeholder: there is {blockers} [advice_can_be_reached]"),
        ({"body": CALL, "cases": None, "head": HEAD.replace("Use a fused epilogue.", "Set cudnn.benchmark.")}, "rule.toml:5: fix: 'cudnn.benchmark' is advised of _addmm_activation (product), which it cannot take [advice_fits_every_call]"),
        ({"body": RULE.replace("mm act", "mm act+")}, "rule.toml:8: pattern: act+ has no bound: give one, or the reason in a comment at the pattern [repetition_is_bounded_or_explained]"),
    ],
)  # fmt: skip
def test_a_check_sees_what_it_is_for(problems: Problems, change: dict[str, str | None], problem: str) -> None:
    assert problem in problems(**change)


def test_a_reason_above_the_pattern_excuses_an_unbounded_repetition(problems: Problems) -> None:
    assert (
        problems(RULE.replace("pattern =", "# A run is as long as it is.\npattern =").replace("mm act", "mm act+"))
        == []
    )


def test_a_rule_without_cases_lacks_both_kinds(problems: Problems) -> None:
    assert [problem.split("[")[1] for problem in problems(cases=None)] == ["a_case_matches]", "a_case_is_a_near_miss]"]


def test_every_check_is_tried_above() -> None:
    tried = {problem.rpartition("[")[2].rstrip("]") for _, problem in _parameters()}
    assert tried == {check.__name__ for check in CHECKS}


def _parameters() -> list[tuple[dict[str, str | None], str]]:
    (mark,) = vars(test_a_check_sees_what_it_is_for)["pytestmark"]
    parameters: list[tuple[dict[str, str | None], str]] = mark.args[1]
    return parameters
