"""Inputs of each kind with random changes: whatever is in them, a report or a line of error."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.attack.changes import KINDS
from tests.attack.harness import Attack, Ended

PARTS = 4  # of the attacks of a kind, so that several processes share them
# How many in the short form; by what one takes, and how much each kind has found.
COUNTS = {"kineto_events": 24, "kineto_bytes": 16, "timeline": 20, "ncu_binary": 8, "calibration": 40}
USUAL = 12


def once(attack: Attack, kind: str, seed: int) -> Ended:
    """The attack of a kind and a seed."""
    args = KINDS[kind](Random(f"{kind} {seed}"), attack.fresh())
    codes = (0, 1, 2) if args[0] == "rules" else (0, 2)
    how: dict[str, Any] = {"program": "tests.attack.ways:read_calibration"} if kind == "calibration" else {}
    # One of fifty runs as a program of its own, as it does for whoever types it.
    how |= {"exec": True} if seed % 50 == 20 and not how else {}
    return attack(*args, label=seed, codes=codes, may_write=["out"], must=checked(args), **how)


def checked(args: list[str]) -> Callable[[Ended], object] | None:
    """What a scan as JSON must keep to."""
    if args[0] != "scan" or "json" not in args:
        return None

    def kept(ended: Ended) -> None:
        for line in ended.out.splitlines() if not ended.code else ():
            keeps_the_books(json.loads(line))

    return kept


def keeps_the_books(scan: dict[str, Any]) -> None:
    """Asserts of the JSON of one scan that nothing is claimed twice, and no more than there is."""
    summary, found = scan["summary"], scan["findings"]
    on_gpu = [f for f in found if f["gpu_saving_ns"]["high"]]
    rows = [row for f in on_gpu for once in f["activities"] for row in once]
    assert len(rows) == len(set(rows)), "an activity is claimed twice"
    assert all(0 <= row < scan["trace"]["activities"] for row in rows), "an activity that is not there"
    assert sum(f["measured_ns"] for f in on_gpu) <= summary["gpu_time_ns"]
    idle = sum(f["measured_ns"] for f in found if not f["gpu_saving_ns"]["high"] and f["fused_ns"] is None)
    assert idle <= summary["gpu_idle_ns"], "idle time is claimed twice"
    for f in found:
        assert (
            0
            <= f["gpu_saving_ns"]["low"]
            <= f["gpu_saving_ns"]["mid"]
            <= f["gpu_saving_ns"]["high"]
            <= f["measured_ns"]
        )
        assert 0 <= f["step_saving_ns"]["low"] <= f["step_saving_ns"]["mid"] <= f["step_saving_ns"]["high"]
        assert f["occurrences"] == len(f["activities"])
    for saving in ("gpu_saving_ns", "step_saving_ns"):
        together = {end: sum(f[saving][end] for f in found) for end in ("low", "mid", "high")}
        assert {end: summary[saving][end] for end in ("low", "mid")} == {end: together[end] for end in ("low", "mid")}
        assert together["mid"] <= summary[saving]["high"] <= together["high"]  # high ends may exclude one another
    assert summary["step_saving_ns"]["high"] <= summary["span_ns"]
    assert 0 <= summary["gpu_busy_ns"] <= summary["gpu_time_ns"] and summary["gpu_idle_ns"] >= 0
    assert len({f["fingerprint"] for f in found}) == len(found)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_input_is_read_or_refused(
    attacks: Callable[..., Attack], times: Callable[[int], int], kind: str, part: int
) -> None:
    attack = attacks(kind.replace("_", " ") + ", changed", f"python -m tests.attack {kind} {{}}")
    for seed in range(part, times(COUNTS.get(kind, USUAL)), PARTS):
        once(attack, kind, seed)
