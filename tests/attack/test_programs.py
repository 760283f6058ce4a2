"""Random programs as files: what a scan says of their time is what the file says, and is claimed once."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest

from tests.attack.harness import Attack, Ended
from tests.attack.programs import Program
from tests.attack.test_changed import PARTS, keeps_the_books


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_claimed_is_in_the_file(attacks: Callable[..., Attack], times: Callable[[int], int], part: int) -> None:
    attack = attacks("programs", "Program({}) of tests/attack/programs.py")
    for seed in range(part, times(60), PARTS):
        program, r = Program(seed), Random(seed)
        truth = program.truth()
        attack.fresh()
        (attack.here / "t.json").write_text(json.dumps(program.trace()))

        def must(ended: Ended, truth: dict[str, int] = truth) -> None:
            scan = json.loads(ended.out)
            keeps_the_books(scan)
            summary, count = scan["summary"], truth["count"]
            assert scan["trace"]["activities"] == count
            for name in ("gpu_time_ns", "gpu_busy_ns", "span_ns"):  # the file's times are rounded, one by one
                told = f"{name}: {summary[name]}, not {truth[name]}"
                assert summary[name] <= truth[name] + 2 * count + 2, told
                # A record over its successors is cut, which the report says first.
                assert summary[name] >= truth[name] - 2 * count - 2 or scan["recorded"]["doubts"], told

        args = ["scan", "t.json", "--format", "json", "-q"] + ["--min-saving", "0ns"] * (r.random() < 0.7)
        args += ["--gpu", "NVIDIA H200 SXM"] if r.random() < 0.2 else []
        attack(*args, label=seed, codes=(0,), must=must)
