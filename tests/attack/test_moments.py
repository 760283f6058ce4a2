"""Signals at chosen moments, and several runs at once with one output."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attack.harness import FIXTURES, Attack, gone, judge
from tracemine.errors import TracemineError
from tracemine.formats import open_trace

TRACE = FIXTURES / "kineto/convnet_train.json.gz"
CLEAN = FIXTURES / "kineto/clean_gemms.json.gz"
CHAIN = FIXTURES / "kineto/chain.json.gz"  # small: runs that begin at once write at once
POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def whole(folder: Path) -> bool:
    """Whether a timeline can be read; False where none is there."""
    if not folder.exists():
        return False
    open_trace(folder)
    return True


@pytest.mark.parametrize("before", (False, True), ids=("nothing there", "one there"))
@pytest.mark.parametrize("number", (*POLITE, signal.SIGKILL), ids=lambda number: signal.Signals(number).name)
def test_an_ingest_that_is_ended_leaves_its_output_whole(
    attacks: Callable[..., Attack], times: Callable[[int], int], number: int, before: bool
) -> None:
    attack = attacks("signals")
    for turn in range(times(2)):
        attack.fresh()
        if before:
            open_trace(CLEAN).write(attack.here / "out")
        when = str(attack.here / ".*")  # the folder in which it writes; now and then nothing is there yet
        how = {"signal": number, "when": when if turn % 2 == 0 else str(attack.here), "after_s": 0.01 * turn}
        ended = attack.run("scan", TRACE, "-q", "--parquet", "out", **how)
        polite = number in POLITE
        allowed = ["here"] if not polite else ["here/out"]
        found = judge(ended, (0, 130, -number), allowed)
        try:
            assert whole(attack.here / "out") or not before, "what was there is gone"
        except (AssertionError, TracemineError) as error:
            found.append(("wrong answers", f"it is not whole: {error}"))
        attack.count(f"{signal.Signals(number).name} {turn}", found)


@pytest.mark.parametrize(
    ("number", "after_s"), ((signal.SIGTERM, 0.2), (signal.SIGINT, 1.5)), ids=("as it begins", "as it proves")
)
def test_a_verify_that_is_ended_leaves_no_process_and_no_file(
    attacks: Callable[..., Attack], number: int, after_s: float
) -> None:
    attack = attacks("signals")
    shutil.copyfile(FIXTURES / "kineto/decoder_prefill.json.gz", attack.here / "t.json.gz")
    mark = f"ATTACK_{attack.folder.name}_{id(attack)}"
    how = {"signal": number, "when": str(attack.here), "after_s": after_s, "env": {"MARK": mark}}
    ended = attack.run("verify", "t.json.gz", "-q", "--top", "0", "-o", "out", **how)
    found = judge(ended, (130,), ["here/out"])
    try:
        gone(mark)
        for path in (attack.here / "out").glob("*.json"):
            json.loads(path.read_bytes())
    except (AssertionError, ValueError) as error:
        found.append(("wrong answers", str(error)))
    attack.count(f"{signal.Signals(number).name} after {after_s} s", found)


AT_ONCE = {
    "scan": ["scan", CHAIN, "-q", "--format", "json", "-o", "out"],
    "scan --parquet": ["scan", CHAIN, "-q", "--parquet", "out"],
    "scan --parquet over one": ["scan", CHAIN, "-q", "--parquet", "out"],
    "verify": ["verify", CLEAN, "-q", "-o", "out"],
}


@pytest.mark.parametrize("command", AT_ONCE)
def test_several_at_once_with_one_output_leave_one_that_is_whole(
    attacks: Callable[..., Attack], times: Callable[[int], int], command: str
) -> None:
    attack = attacks("runs at once")
    for turn in range(times(4 if "--parquet" in command else 2)):  # a folder is replaced in two moves, a file in one
        attack.fresh()
        if command == "scan --parquet over one":
            open_trace(CLEAN).write(attack.here / "out")
        every = attack.several(*AT_ONCE[command], copies=4)
        for number, ended in enumerate(every):
            attack.count(f"{command} {turn} {number}", judge(ended, (0,), ["here/out"]))
        out = attack.here / "out"
        if command.startswith("scan --parquet"):
            assert whole(out)
        else:
            json.loads((out / "verdicts.json" if out.is_dir() else out).read_bytes())
        assert [path.name for path in attack.here.iterdir()] == ["out"]
