"""Where the garbage collector is held off, and where not."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from tracemine import __main__, cli
from tracemine.collector import collected_between


class Loop:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collecting() -> Iterator[None]:
    """The collector with nothing frozen, and on again, whatever a test does."""
    gc.unfreeze()
    yield
    gc.enable()
    gc.freeze()


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize(
    ("command", "collects"), [("scan", False), ("trace.json", False), ("capture", True), ("fleet", True)]
)
def test_it_is_held_off_in_a_process_that_ends_soon(
    monkeypatch: pytest.MonkeyPatch, command: str, collects: bool
) -> None:
    said: list[bool] = []

    def main(_: object) -> int:
        said.append(gc.isenabled())
        return 0

    monkeypatch.setattr(cli, "main", main)
    monkeypatch.setattr(sys, "argv", ["tracemine", command])
    assert (__main__.main(), said) == (0, [collects])
    assert bool(gc.get_freeze_count()) == (not collects)


def test_it_is_left_alone_in_a_process_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bool] = []

    def main(_: object) -> int:
        said.append(gc.isenabled())
        return 0

    monkeypatch.setattr(cli, "main", main)
    assert (__main__.main(["scan"]), said) == (0, [True])


@pytest.mark.usefixtures("collecting")
def test_what_one_trace_left_goes_before_the_next() -> None:
    gc.disable()
    seen: list[weakref.ref[Loop]] = []
    for _ in collected_between(range(3)):
        assert not any(one() for one in seen)
        seen.append(weakref.ref(Loop()))
    assert len(seen) == 3
