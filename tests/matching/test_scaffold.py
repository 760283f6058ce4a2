"""`rules new`: what it writes loads, passes its cases, and lints once each TODO is filled in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tracemine.causes import load_rule
from tracemine.matching.scaffold import new_rule

Run = Callable[..., tuple[int, str, str]]
FILLED = {
    "rule.toml": [
        (r"TODO: what is found.*?full stop", "A bias added by itself"),
        (r"TODO: which kernels.*?other\.", "An addition behind a product."),
        (r"TODO: why that is slow\.", "The product is read again."),
        (r"TODO: what to write instead, with code:", "Hand the bias to the product:"),
        (r"TODO: what it does not find.*?\.", "Only neighbours."),
        (r"TODO: what it finds although.*?\.", "Another addition."),
    ],
    "cases.md": [],
}


def filled_in(folder: Path) -> None:
    for name, changes in FILLED.items():
        text = (folder / name).read_text()
        for pattern, words in changes:
            text, count = re.subn(pattern, words, text)
            assert count == 1
        (folder / name).write_text(text.replace("TODO_first", "mm").replace("TODO_second", "add"))


def test_it_loads_and_passes_its_cases_at_once_and_lints_when_filled_in(run: Run, tmp_path: Path) -> None:
    code, out, err = run("rules", "new", "bias_apart", "--in", tmp_path / "mine")
    assert (code, out) == (0, f"{tmp_path}/mine/bias_apart: rule.toml, cases.md\n")
    assert "tracemine rules lint bias_apart --rules" in err
    rules = ("--rules", tmp_path / "mine")
    assert run("rules", "test", "bias_apart", *rules)[:2] == (0, "2 cases passed, 0 failed\n")
    code, out, _ = run("rules", "lint", "bias_apart", *rules)
    assert code == 1
    assert [text.split(": ")[1] for text in out.splitlines()] == [
        *("title", "what", "why", "fix", "limits", "false_positives", "define.first", "define.second")
    ]
    filled_in(tmp_path / "mine" / "bias_apart")
    assert run("rules", "lint", "bias_apart", *rules)[:2] == (0, "nothing to fix\n")
    assert run("rules", "test", "bias_apart", *rules)[:2] == (0, "2 cases passed, 0 failed\n")
    assert load_rule(tmp_path / "mine" / "bias_apart").title == "A bias added by itself"


@pytest.mark.parametrize("name", ["launch_gap", "../x", "Upper", "a/b", "a b", "\x1b[2J"])
def test_a_name_that_no_rule_can_have_writes_nothing(run: Run, tmp_path: Path, name: str) -> None:
    code, out, err = run("rules", "new", name, "--in", tmp_path / "mine")
    assert (code, out) == (2, "")
    assert "\x1b" not in err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_as_it_is(run: Run, tmp_path: Path) -> None:
    folder = new_rule("bias_apart", tmp_path)
    (folder / "rule.toml").write_text("mine")
    assert run("rules", "new", "bias_apart", "--in", tmp_path)[0] == 2
    assert (folder / "rule.toml").read_text() == "mine"
