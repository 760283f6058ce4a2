"""`python -m tests.attack`: all attacks and the table; with a kind and a seed that random one alone."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.attack.changes import KINDS
from tests.attack.harness import Attack, Runner
from tests.attack.test_changed import once


def again(kind: str, seed: int) -> int:
    """One attack once more: what came of it, and where its folder is."""
    runner = Runner()
    attack = Attack(kind, Path(tempfile.mkdtemp(prefix="attack-")), runner)
    ended = once(attack, kind, seed)
    runner.close()
    print(f"folder: {attack.here}\nexit code: {ended.code}\nwritten: {', '.join(ended.changed) or 'nothing'}")
    print(f"standard error: {ended.said[-2000:]}\nstandard output: {ended.out[:2000].decode('utf-8', 'replace')}")
    print("\n".join(attack.faults) or "as it must be")
    return bool(attack.faults)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in KINDS:
        sys.exit(again(sys.argv[1], int(sys.argv[2])))
    sys.exit(pytest.main([str(Path(__file__).parent), *sys.argv[1:]]))
