"""Jobs whose files are damaged or hostile: a report, or an error that names a file, and soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.ranks.simulated import Program, Rank, write
from tracemine.errors import TracemineError
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks

LONGEST_S = 60
Damage = Callable[[dict[str, Any], Random], None]


def _sent(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event["args"] for event in trace["traceEvents"] if "Collective name" in event["args"]]


def _members(trace: dict[str, Any], random: Random) -> None:
    lists = [
        str(list(range(200_000))),  # more than a group may have, and than its text may
        "[0, 0, 0, 0]",
        "[3]",
        "[4, 5, 6, 7]",
        "[",
        "[-1, 2]",
        f"[{1 << 70}]",
        "[null]",
    ]
    text = random.choice(lists)
    for args in _sent(trace):
        args["Process Group Ranks"] = text


def _sequence(trace: dict[str, Any], random: Random) -> None:
    numbers = [1 << 63, -1, 0, (1 << 63) - 1, 1e300, "x", None]
    same = random.random() < 0.5
    for at, args in enumerate(_sent(trace)):
        args["Seq"] = random.choice(numbers) if not same else at // 3


def _sizes(trace: dict[str, Any], random: Random) -> None:
    for args in _sent(trace):
        args["In msg nelems"] = random.choice([0, -5, 1 << 62, 1 << 80, "many", args["In msg nelems"]])
        args["Group size"] = random.choice([0, 1, -3, 1 << 40, 4])


def _clock(trace: dict[str, Any], random: Random) -> None:
    by = random.choice([1e15, -1e6, 3e9, 12.5])
    for event in trace["traceEvents"]:
        event["ts"] += by if random.random() < 0.9 else 0


def _order(trace: dict[str, Any], random: Random) -> None:
    kernels = [event for event in trace["traceEvents"] if event["cat"] == "kernel"]
    times = [event["ts"] for event in kernels]
    random.shuffle(times)
    for event, ts in zip(kernels, times, strict=True):
        event["ts"] = ts


def _durations(trace: dict[str, Any], random: Random) -> None:
    for event in trace["traceEvents"]:
        if random.random() < 0.1:
            event["dur"] = random.choice([0, 1e12, -1, 1e-3])


def _cut(trace: dict[str, Any], random: Random) -> None:
    events = trace["traceEvents"]
    del events[random.randrange(len(events)) :]


def _ranks(trace: dict[str, Any], random: Random) -> None:
    trace["distributedInfo"] = {"rank": random.choice([0, -1, 1 << 63]), "world_size": random.choice([0, 4, 1 << 62])}


DAMAGE: dict[str, Damage] = {
    "members": _members, "sequence": _sequence, "sizes": _sizes, "clock": _clock, "order": _order,
    "durations": _durations, "cut": _cut, "ranks": _ranks,
}  # fmt: skip


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("what", DAMAGE)
@pytest.mark.parametrize("seed", range(3))
def test_damage_of_one_rank_or_of_all_ends_in_a_report_or_in_an_error_of_a_file(
    what: str, every: bool, seed: int, tmp_path: Path
) -> None:
    random = Random(f"{what} {seed} {every}")
    paths = write(Program([Rank()] * 4, layers=3, kernels=2, steps=3, seed=seed), tmp_path)
    for path in paths if every else paths[1:2]:
        trace = json.loads(path.read_text())
        DAMAGE[what](trace, random)
        path.write_text(json.dumps(trace))
    begun = time.monotonic()
    try:
        read = read_ranks(paths)
        if read.is_job:
            job = find_job(read, "job")
            for finding in job.findings:
                saves = finding.step_saving_ns
                assert saves is None or 0 <= saves.low <= saves.mid <= saves.high
            assert len(job.ranks) + len(read.left_out) >= len(paths)
        for file in read.left_out:
            assert (tmp_path / file.partition(" (")[0]).exists()
    except TracemineError as error:
        assert any(path.name in str(error) for path in paths)
    assert time.monotonic() - begun < LONGEST_S
