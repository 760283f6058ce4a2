"""Rules of these tests may be hand-made: then their matches are too, also when findings match anew."""

from __future__ import annotations

import sys

import pytest

from tests.findings.build import matched


@pytest.fixture(autouse=True)
def _hand_made_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tracemine.findings.find"], "match", matched)
