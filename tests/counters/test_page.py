"""The table in docs/internals/counters.md is what its command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tracemine.cli import main

ROOT = Path(__file__).parents[2]


def test_the_table_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "internals" / "counters.md").read_text()
    found = re.search(r"<!-- printed by: tracemine (.+) -->\n(.+?)<!-- end -->", page, re.DOTALL)
    assert found
    monkeypatch.chdir(ROOT)
    assert main(found[1].split()) == 0
    assert capsys.readouterr().out == found[2]
