"""Every folder of rules/ loads, has what a rule must have, and finds what its cases say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracemine.causes import load_rule, load_rules
from tracemine.matching.cases import run_cases
from tracemine.matching.lint import lint
from tracemine.matching.load import rules_directory

FOLDERS = sorted(path.parent for path in rules_directory().glob("*/rule.toml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_the_rule_has_what_a_rule_must_have(folder: Path) -> None:
    assert [str(problem) for problem in lint(load_rule(folder))] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=[folder.name for folder in FOLDERS])
def test_the_rule_finds_what_its_cases_say(folder: Path) -> None:
    results = run_cases(load_rule(folder))
    assert [(result.heading, result.problems) for result in results if not result.passed] == []
    assert results


def test_every_folder_of_rules_is_a_rule() -> None:
    folders = {
        path.name for path in rules_directory().iterdir() if path.is_dir() and not path.name.startswith((".", "_"))
    }
    assert folders == {rule.id for rule in load_rules()}
