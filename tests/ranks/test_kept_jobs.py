"""Jobs recorded on two H200s with something planted: it is named, at what it was measured to cost, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from msgspec.structs import replace

from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.exposed import exposed_communication, slowed
from tracemine.ranks.find import find_job
from tracemine.ranks.kernels import KernelTimes
from tracemine.ranks.match import matched
from tracemine.ranks.recognise import read_ranks
from tracemine.ranks.record import Job, JobStep
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.stragglers import saved
from tracemine.ranks.unprofiled import unprofiled

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results" / "h200" / "jobs"
BLAMING = (
    "straggler", "expert_imbalance", "slow_link", "link_below_rate", "length_imbalance", "stage_imbalance",
    "rank_dependent",
)  # fmt: skip
EVERYONE = (0, 1)
# The rule and the ranks that are to be among the first three, and whether the saving is that which was measured.
PLANTED = {
    "ddp_late_host": ("straggler_host", (1,), True),
    "ddp_late_host_ahead": ("straggler_host", (1,), True),
    "ddp_longer_batch": ("straggler_work", (1,), True),
    "ddp_shared_gpu": ("straggler_gpu", (1,), True),
    "ddp_shared_gpu_slices": ("straggler_gpu", (0,), True),
    "ddp_one_evaluates": ("rank_dependent", (0,), True),
    "ddp_slow_loader": ("straggler_input", (1,), True),
    "ddp_no_peers": ("link_below_rate", EVERYONE, False),
    "ddp_one_channel": ("link_below_rate", EVERYONE, True),
    "moe_overflow": ("expert_imbalance", (0,), True),
    "no_overlap": ("not_overlapped", EVERYONE, True),
    "no_overlap_large": ("not_overlapped", EVERYONE, True),
    "tp_infer": ("exposed_collective", EVERYONE, True),
    "pp_uneven_stages": ("stage_imbalance", EVERYONE, True),
    "ddp_rank_0_logs": ("rank_dependent", (0,), True),
    "ddp_lengths": ("length_imbalance", EVERYONE, True),
    "broadcast_buffers": ("buffers_broadcast", EVERYONE, False),
    "sync_batch_norm": ("sync_batch_norm", EVERYONE, True),
    "tp_gathers_twice": ("redundant_gather", EVERYONE, True),
}
CLEAN = sorted(path.parent.name for path in FOLDER.glob("*/clean"))


def job(name: str, variant: str) -> Job:
    return find_job(read_ranks(sorted((FOLDER / name / variant).glob("rank*.json.gz"))), name)


def losses_ms(name: str) -> tuple[float, float]:
    """Return what the plant costs without the profiler: blocks of steps in a row, which alternated, and steps alone."""
    times = json.loads((FOLDER / name / "meta.json").read_text())["times"]

    def longest(variant: str, which: str) -> list[float]:
        return [max(each) for each in zip(*(rank[which] for rank in times[variant]), strict=True)]

    row = [a - b for a, b in zip(*(longest(of, "back_to_back_ms") for of in ("planted", "clean")), strict=True)]
    return median(row), median(longest("planted", "alone_ms")) - median(longest("clean", "alone_ms"))


def steps_ms(name: str, variant: str) -> float:
    """Return the job's step without the profiler, of steps in a row."""
    times = json.loads((FOLDER / name / "meta.json").read_text())["times"][variant]
    return float(median(max(each) for each in zip(*(rank["back_to_back_ms"] for rank in times), strict=True)))


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_is_among_the_first_and_costs_what_was_measured(name: str) -> None:
    rule, ranks, is_measured = PLANTED[name]
    found = job(name, "planted")
    assert found.replay_error_percent is not None
    assert found.replay_error_percent <= 1.5
    (finding,) = [one for one in found.findings[:3] if (one.rule, one.ranks) == (rule, ranks)]
    blamed = [one.rule for one in found.findings if one.rule.startswith(BLAMING)]
    assert blamed == [rule] * rule.startswith(BLAMING)
    if is_measured:
        low, high = sorted(losses_ms(name))
        assert finding.step_saving_ns is not None
        assert 0.7 * low <= finding.step_saving_ns.mid / 1e6 <= 1.3 * high


@pytest.mark.parametrize("name", CLEAN)
def test_nobody_is_blamed_where_nothing_was_planted(name: str) -> None:
    found = job(name, "clean")
    assert [one.title for one in found.findings if one.rule.startswith(BLAMING)] == []
    assert found.replay_error_percent is not None
    assert found.replay_error_percent <= 1.5


@pytest.mark.parametrize("name", ["ddp_no_peers", "ddp_one_channel"])
def test_what_a_slow_link_takes_is_claimed_once(name: str) -> None:
    assert "exposed_collective" not in [one.rule for one in job(name, "planted").findings]


def test_a_slower_device_costs_nothing_where_its_host_is_the_limit() -> None:
    ranks = read_ranks(sorted((FOLDER / "ddp_slow_loader" / "clean").glob("rank*.json.gz"))).ranks
    matches = matched(ranks)
    replayed = JobReplay(ranks, matches, clocks_of(ranks, matches.blocks))
    usual = unprofiled(replayed)
    slow = replace(usual, busy=(usual.busy[0], usual.busy[0] * 1.3))
    excess = 0.3 * float(usual.busy[0].sum()) / ranks[0].steps
    for hosts, least, most in ((slow.host, 0.0, 0.1), (tuple(own * 0 for own in slow.host), 0.5, 1.0)):
        (gain,) = saved(replace(slow, host=hosts), [{"busy": {1: usual.busy[0]}}])
        assert least * excess <= gain.mid <= most * excess


@pytest.mark.parametrize("name", ["moe_overflow", "tp_infer"])
def test_a_device_that_lags_behind_its_host_works_off_what_was_before_on_nobodys_account(name: str) -> None:
    true = steps_ms(name, "clean")
    assert 0.85 * true <= job(name, "clean").step_ns.mid / 1e6 <= 1.1 * true


def test_ranks_that_wait_for_each_other_do_not_wait_for_their_hosts() -> None:
    assert "host_bound" not in [one.rule for one in job("moe_overflow", "planted").findings]
    assert "host_bound" in [one.rule for one in job("no_overlap", "planted").findings]


@pytest.mark.parametrize(("large", "size"), [(0, 0), (2, 3 << 20), (2, 30 << 20)])
def test_of_small_buckets_the_large_ones_are_calls_too(large: int, size: int) -> None:
    ranks = []
    for rank in read_ranks(sorted((FOLDER / "ddp_clean" / "clean").glob("rank*.json.gz"))).ranks:
        nbytes = np.where(np.arange(len(rank.step)) % 13 < large, size, 1000)
        ranks.append(
            replace(rank, collectives=replace(rank.collectives, nbytes=nbytes), call_ns=rank.call_ns * 0 + 100_000)
        )
    matches = matched(ranks)
    replayed = JobReplay(ranks, matches, clocks_of(ranks, matches.blocks))
    none, case = np.zeros(len(replayed.members), np.bool_), unprofiled(replayed)
    found = exposed_communication(replace(case, step=JobStep(*[10**7] * 4)), none, ~none)
    assert [one.saving.high for one in found if one.rule == "small_collectives" and one.saving] == [
        (10 if size > 25 << 20 else 12) * 100_000
    ]


@pytest.mark.parametrize(
    ("blocks", "takes_us", "lost"),
    [
        (100, 50, 0.0),
        (128, 1, 0.5),
        (128, 50, 0.5),
        (128, 100, 1.0),
        (128, 75, 0.75),
        (128, 400, 1.0),
        (1320, 9, 24 / 132),
    ],
)
def test_a_collective_slows_kernels_of_one_wave_that_no_longer_fit(blocks: int, takes_us: int, lost: float) -> None:
    (rank, *_) = read_ranks(sorted((FOLDER / "no_overlap" / "planted").glob("rank*.json.gz"))).ranks
    one, time = np.ones(1, np.int64), np.array([takes_us * 1000])
    alone = replace(rank, kernels=KernelTimes(("gemm",), one * blocks, one, one, time, one, time))
    assert slowed(alone, 24, 100_000) == pytest.approx(lost)
    assert slowed(replace(alone, device=None), 24, 100_000) == 0.5


def test_all_recordings_are_of_a_test() -> None:
    planted = {path.parent.name for path in FOLDER.glob("*/planted")}
    assert planted == {*PLANTED}
    assert len(CLEAN) >= 8
