"""The package's tables as JSON: what the TOML files say, and used as long as they say that."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tracemine import tables
from tracemine.tables import PLACE, table_beside, text_of

PACKAGE = Path(tables.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.toml") if "_rules" not in path.parts)


def test_all_tables_are_kept() -> None:
    assert PLACE.read_text("utf-8") == text_of(FILES), "python docs/generate.py writes it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_table_is_what_its_toml_says(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tomllib.loads(path.read_text("utf-8"))
    monkeypatch.setattr("tracemine.tables.tomllib.loads", None)  # it is not asked
    assert repr(table_beside(str(path), path.name)) == repr(said)


def test_a_table_that_was_changed_or_is_not_kept_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_PACKAGE", tmp_path)
    for name, text in (("devices.toml", "a = 1"), ("other.toml", "a = 2")):
        (tmp_path / name).write_text(text)
        assert table_beside(str(tmp_path / "module.py"), name) == tomllib.loads(text)
