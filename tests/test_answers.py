"""The script that judges what is said of public files: it finds an answer that is wrong, and says so by its exit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.answers import answers_public
from benchmarks.answers.answers import Answer, Public
from benchmarks.answers.answers_public import every_row, first_words, label, main, table


def said(*rules: str, code: int = 0, text: str = "GPU-bound") -> Answer:
    findings = [{"rule": rule, "reported": True, "fix": ""} for rule in rules]
    return Answer(code, text, {"findings": findings, "summary": {}}, "")


def row(name: str = "one") -> Public:
    return Public((f"{name}.json",), "a stall that was none", "no stall", lambda a: "host_stall" not in a.rules)


def test_a_wrong_answer_is_found_beside_right_ones() -> None:
    lines, verdicts = table([row(), row("two"), row("three")], [said(), said("launch_gap", "host_stall"), None])
    assert verdicts == {"right": 1, "wrong": 1, "not at hand": 1}
    assert ["**wrong**" in line for line in lines] == [False, True, False]


def test_an_answer_that_lacks_what_is_asked_of_it_is_wrong_and_no_error() -> None:
    for holds in (lambda a: a.step["span_p50_ns"] > 0, lambda a: a.of("host_sync")[0]["fix"], lambda a: None > 1):  # type: ignore[operator]  # it fails on purpose
        _, verdicts = table([Public(("one.json",), "was", "is", holds)], [said()])
        assert verdicts == {"wrong": 1}


@pytest.mark.parametrize(
    ("planted", "names", "code"),
    [((), ["one.json"], 0), (("host_stall",), ["one.json"], 1), ((), [], 1)],
    ids=["right", "wrong", "no file at hand"],
)
def test_the_script_ends_with_1_where_an_answer_is_wrong_or_there_is_none(
    planted: Sequence[str],
    names: Sequence[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(answers_public, "every_row", lambda: (row(),))
    monkeypatch.setattr(answers_public, "told", lambda *_: said(*planted))
    monkeypatch.setattr("sys.argv", ["answers_public.py"])
    monkeypatch.setenv("TRACEMINE_COMPAT_TRACES", str(tmp_path))
    assert main() == code
    assert ("**wrong**" in capsys.readouterr().out) == bool(planted)


def test_each_row_says_what_was_wrong_and_what_is_right_of_one_thing() -> None:
    rows = every_row()
    assert all(one.wrong and one.right and one.names for one in rows)
    assert len({(label(one), one.right) for one in rows}) == len(rows)


def test_no_folder_is_in_the_words_that_are_kept() -> None:
    assert (
        first_words(said(text="idle 3 %\n/home/me/traces/run.json kineto | 2 steps"))
        == "idle 3 % run.json kineto / 2 steps"
    )
