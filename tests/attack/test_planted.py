"""Four mistakes of the past are planted again, one at a time, and the same attacks as in the tables find each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack import test_known, test_surroundings
from tests.attack.harness import Attack, Runner

# The function of ways.py that plants it; the attack; the column of the table in which it is counted.
PLANTED: dict[str, tuple[Callable[..., Any], str, str]] = {
    "children_search_the_folder": (test_surroundings.beside, "verify", "executions"),
    "verdicts_follow_links": (test_known.once, "a link where verdicts go as a table", "foreign writes"),
    "timelines_replace_all": (test_known.once, "a file beside the tables of a timeline", "wrong answers"),
    "ends_are_not_looked_at": (test_known.once, "two traces in a file", "wrong answers"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_found(runner: Runner, tmp_path: Path, mistake: str) -> None:
    once, name, column = PLANTED[mistake]
    attack = Attack("planted", tmp_path, runner)
    once(attack, name, plant=f"tests.attack.ways:{mistake}")
    assert attack.tally["tried"] == 1
    assert attack.tally[column] == 1, attack.faults or "nothing was found"
