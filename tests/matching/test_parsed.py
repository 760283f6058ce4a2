"""The rules as they are once read and checked: the same as their TOML says, and used as long as it says that."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tracemine.causes import VOCABULARY, load_rule, load_rules
from tracemine.matching.load import rules_directory
from tracemine.matching.parsed import PLACE, parsed_rule, text_of_rules

FOLDERS = sorted(path.parent for path in rules_directory().glob("*/rule.toml"))


def test_each_rule_is_what_its_toml_says() -> None:
    read = [load_rule(folder) for folder in FOLDERS]
    assert PLACE.read_text("utf-8") == text_of_rules(read), "python docs/generate.py writes it"
    for folder, rule in zip(FOLDERS, read, strict=True):
        assert repr(parsed_rule(folder, VOCABULARY.columns)) == repr(rule)


def test_the_rules_that_come_with_tracemine_are_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from tracemine.matching import load

    def refused(folder: Path) -> None:
        raise AssertionError(folder)

    monkeypatch.setattr(load, "load_rule", refused)
    load._loaded_once.cache_clear()
    assert len(load_rules()) == len(FOLDERS)


@pytest.mark.parametrize(("before", "after"), [("priority = 1", "priority = 2"), ('title = "', 'title = " ')])
def test_a_rule_that_was_changed_is_read_anew(tmp_path: Path, before: str, after: str) -> None:
    folder = Path(shutil.copytree(rules_directory() / "rmsnorm_unfused", tmp_path / "rmsnorm_unfused"))
    assert parsed_rule(folder, VOCABULARY.columns) == load_rule(folder), "its place alone is another"
    path = folder / "rule.toml"
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    assert parsed_rule(folder, VOCABULARY.columns) is None


def test_a_rule_of_another_name_is_not_known(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(rules_directory() / "rmsnorm_unfused", tmp_path / "mine"))
    assert parsed_rule(folder, VOCABULARY.columns) is None


def test_what_is_damaged_or_of_another_version_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tracemine.matching import parsed

    for number, content in enumerate(("{", '{"made_of":"1 2","rule":{"id":"x"}}\n', None)):
        path = tmp_path / f"{number}.jsonl"
        if content is not None:
            path.write_text(content)
        monkeypatch.setattr(parsed, "PLACE", path)
        parsed._kept.cache_clear()
        assert parsed_rule(FOLDERS[0], VOCABULARY.columns) is None
    parsed._kept.cache_clear()
