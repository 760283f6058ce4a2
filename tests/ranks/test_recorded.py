"""Jobs recorded on four H100s with something planted in the program, where those recordings are at hand."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks
from tracemine.ranks.record import Job

FOLDER = Path(os.environ.get("TRACEMINE_COMPAT_TRACES") or "no traces at hand") / "ranks"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no recordings of ranks")

# What was planted: the rule that must be among the first three, and the ranks it must name; None: nothing.
PLANTED = {
    "ddp_clean": None,
    "ddp_late_host": ("straggler_host", (1,)),
    "no_overlap": ("not_overlapped", (0, 1, 2, 3)),
    "fsdp2_clean": None,
    "tp_infer": ("exposed_collective", (0, 1, 2, 3)),
    "tp_twice": ("redundant_gather", (0, 1, 2, 3)),
    "pp_gpipe4": ("pipeline_bubble", (0, 1, 2, 3)),
    "moe_imbalance": ("expert_imbalance", (0,)),
}
# What a step truly loses, measured without the profiler: steps in a row, and each alone; milliseconds.
LOSS = {"ddp_late_host": (5.1, 8.4), "no_overlap": (12.7, 16.1), "moe_imbalance": (1.56, 1.56)}
SAID_LOW = ("no_overlap",)  # a call costs these hosts more than its recording shows, those of two H200s less


@cache
def job(name: str) -> Job:
    return find_job(read_ranks(sorted((FOLDER / name).glob("rank*.json.gz"))), name)


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_said_and_nothing_else(name: str) -> None:
    found = job(name)
    planted = PLANTED[name]
    blaming = ("straggler", "expert_imbalance", "slow_link", "link_below_rate")
    for finding in found.findings:
        if finding.rule.startswith(blaming):
            assert (finding.rule, finding.ranks) == planted
        elif planted is None and finding.step_saving_ns is not None:
            assert finding.step_saving_ns.mid < 0.03 * found.step_ns.mid
    if planted is not None:
        assert planted in [(finding.rule, finding.ranks) for finding in found.findings[:3]]


@pytest.mark.parametrize("name", LOSS)
def test_what_it_costs_is_what_was_measured(name: str) -> None:
    found = job(name)
    (finding,) = [one for one in found.findings if (one.rule, one.ranks) == PLANTED[name]]
    low, high = (ms * 1e6 for ms in LOSS[name])
    assert finding.step_saving_ns is not None
    assert 0.7 * low <= (finding.step_saving_ns.high if name in SAID_LOW else finding.step_saving_ns.mid)
    assert finding.step_saving_ns.mid <= 1.3 * high
    assert finding.step_saving_ns.low <= high
    assert finding.step_saving_ns.high >= low


@pytest.mark.parametrize("name", PLANTED)
def test_the_step_without_the_profiler_and_the_replay(name: str) -> None:
    found = job(name)
    meta = json.loads((FOLDER / name / "meta.json").read_text())
    true_ns = float(np.median(meta["back_to_back_ms"])) * 1e6
    assert found.step_ns.low <= true_ns * 1.05
    assert found.step_ns.high >= true_ns * 0.99
    assert found.replay_error_percent is not None
    assert found.replay_error_percent <= 1.5
    assert found.unmatched == {}
