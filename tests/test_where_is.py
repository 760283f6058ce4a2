"""The questions of benchmarks/answers/where_is.py stay answerable, and its count can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.answers import where_is

ROOT = Path(__file__).parents[1]


def test_each_question_names_files_of_this_tree() -> None:
    asked = where_is.questions("tracemine")
    assert len(asked) == 20
    assert [name for each in asked for name in each["files"] if not (ROOT / name).is_file()] == []


def test_a_third_file_and_a_file_never_found_count_against_the_tree() -> None:
    found = [[each["files"][0]] for each in where_is.questions("tracemine")]
    assert where_is.table({"tracemine": found})[0] == "tracemine: 20 of 20 within 2 files, 20 at the first"
    late, never = ["a.py", "b.py", found[0][0]], ["a.py"]
    lines = where_is.table({"tracemine": [late, never, *found[2:]]})
    assert lines[0] == "tracemine: 18 of 20 within 2 files, 18 at the first"
    assert lines[1].startswith("  3 files: ") and lines[2].startswith("  not found: ")


def test_newcomers_find_18_of_20_here_within_two_files() -> None:
    opened = json.loads((ROOT / "benchmarks" / "results" / "where_is.json").read_text())
    assert [*opened] == ["tracemine", "tinygrad", "memray"]
    asked = where_is.questions("tracemine")
    counts = [
        where_is.opened_until(each["files"], files) for each, files in zip(asked, opened["tracemine"], strict=True)
    ]
    assert sum(count is not None and count <= where_is.WITHIN for count in counts) >= 18
    blocks = benchmarks_readme().split("```")
    assert "\n".join(where_is.table(opened)) in [block.strip() for block in blocks]


def benchmarks_readme() -> str:
    """The section on where things are."""
    return (ROOT / "benchmarks" / "README.md").read_text().split("## Where is")[1]


def test_an_answer_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="tinygrad: 1 answers to 20 questions"):
        where_is.table({"tinygrad": [["a.py"]]})
