"""The process that runs attacks, one for each worker of the tests, and the table at their end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack.harness import Attack, Runner

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]  # /proc, signals and limits are as there


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    """The process that has tracemine loaded."""
    one = Runner()
    yield one
    one.close()


@pytest.fixture
def attacks(runner: Runner, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Attack]]:
    """Makes attacks of a kind; a test with any fault fails at its end, with all of them."""
    made: list[Attack] = []

    def make(kind: str, again: str = "") -> Attack:
        made.append(Attack(kind, tmp_path / str(len(made)), runner, again))
        return made[-1]

    yield make
    request.node.user_properties += [("attack", (each.kind, dict(each.tally))) for each in made]
    faults = [text for each in made for text in each.faults]
    if faults:
        pytest.fail(f"{len(faults)} faults:\n" + "\n".join(faults[:40]), pytrace=False)


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether --long was given."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def times(long: bool) -> Callable[[int], int]:
    """How many random attacks: as many as given, and in the long form many times as many."""
    return lambda count: count * (60 if long else 1)
