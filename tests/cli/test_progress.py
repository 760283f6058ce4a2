"""The bar is there for a person who waits, whether or not anything is told to it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tracemine.cli import progress


class Drawn:
    """In place of rich's."""

    def __init__(self, name: str) -> None:
        self.name, self.at, self.stopped = name, (0, 0), False
        self.task_ids = [0]

    def update(self, _: int, *, completed: int, total: int) -> None:
        self.at = (completed, total)

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Drawn]:
    """Bars that were drawn, on a terminal."""
    found: list[Drawn] = []
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))

    def draw(name: str) -> Drawn:
        found.append(Drawn(name))
        return found[-1]

    monkeypatch.setattr(progress, "bar_of", draw)
    return found


def test_a_bar_is_drawn_after_a_while_though_nothing_is_done_yet(
    drawn: list[Drawn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    with progress.reading(Path("findings.json"), quiet=False) as bar:
        assert bar is not None
        bar(0, 8)
        deadline = time.monotonic() + 30
        while not drawn and time.monotonic() < deadline:
            time.sleep(0.01)
        bar(3, 8)
        assert [(each.name, each.at) for each in drawn] == [("findings.json", (3, 8))]
        assert not drawn[0].stopped
    assert drawn[0].stopped


def test_what_is_done_at_once_draws_nothing(drawn: list[Drawn], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.2)
    with progress.reading(Path("trace.json"), quiet=False) as bar:
        assert bar is not None
        bar(8, 8)
    time.sleep(0.4)
    assert drawn == []
