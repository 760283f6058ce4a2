"""Loops of recorded programs: what is said of rounds that could be done at once, and of rounds that need each other."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import tracemine
from tracemine.findings import Finding
from tracemine.perfmodel import COMPILED_CALL_NS

RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "h200"


@cache
def scanned(name: str) -> tracemine.Report:
    return tracemine.scan(RECORDED / name)


def finding(name: str, rule: str) -> Finding:
    return next(one for one in scanned(name) if one.rule == rule)


def test_rounds_that_need_nothing_of_each_other_are_done_at_once() -> None:
    """Precision at each of 64 thresholds: one call gives all, and nearly all that the loop idles goes."""
    one = finding("programs/thresholds", "host_sync")
    assert "(score[None] > limits[:, None])" in one.fix
    assert one.title.startswith("Blocking sync in a loop over limits")
    assert one.loop is not None
    assert (one.loop.turns, one.loop.dependence, one.loop.waits) == (64, "independent", True)
    assert any("95%" in assumption for assumption in one.assumptions)
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low > 0


@pytest.mark.parametrize("name", ["programs/sampler", "programs_unseen/conjugate_gradient"])
def test_rounds_that_need_each_other_lose_their_waits_alone(name: str) -> None:
    one = finding(name, "host_sync")
    assert "no round needs what another computed" not in one.fix
    assert one.assumptions[0].startswith("the timeline run again without the wait")
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low == 0


def test_rounds_that_hold_products_lose_their_waits_unless_a_mask_chooses_their_rows() -> None:
    """One call does all rounds of a layer's experts; an evaluation's rounds are a model's forward each."""
    one = finding("programs/experts_loop", "host_sync")
    assert one.per_step is not None
    assert one.per_step.share_of_unprofiled is not None
    assert one.per_step.share_of_unprofiled > 0.6  # sorted by expert it gains 84 %


def test_a_loop_over_samples_is_one_call_and_no_chain_of_each_sample() -> None:
    """48 pictures one by one, every second mirrored."""
    report = scanned("programs/augment_each")
    assert report[0].rule == "python_loop"
    assert "torch.func.vmap" in report[0].fix
    assert report[0].loop is not None
    assert (report[0].loop.turns, report[0].loop.launches) == (24, 9)
    assert not [one for one in report if one.rule == "memory_bound_chain"]
    assert "Let one call do all rounds" not in finding("programs/augment_each", "launch_gap").fix


@pytest.mark.parametrize(
    ("name", "rule", "title", "turns"),
    [
        ("programs/bodies", "python_loop", "Python loop over samples", 96),
        ("programs/lstm_loop", "recurrence_unfused", "Recurrence computed step by step", 48),
        ("programs/recurrent_training", "python_loop", "Python loop over time steps", 40),
        ("programs/recommender", "python_loop", "Python loop over embedding tables", 16),
        ("programs/experts_loop", "host_sync", "Blocking sync in a loop over experts", 16),
        ("programs/confusion_loop", "host_sync", "Blocking sync in a loop over segments", 144),
        ("programs/point_cloud", "host_sync", "Blocking sync in a loop of masks", 24),
        ("programs_unseen/trust_ratios", "host_sync", "Blocking sync in a loop over parameters", 32),
    ],
)
def test_a_loop_is_named_by_what_it_goes_over(name: str, rule: str, title: str, turns: int) -> None:
    one = finding(name, rule)
    assert one.title.startswith(title)
    assert one.loop is not None
    assert one.loop.turns == turns


@pytest.mark.parametrize(
    "name",
    ["programs/encoder_small_batch", "programs/gated_mixer", "programs/power_iteration", "programs/transport",
     "programs/pictures", "programs_unseen/mobile", "programs_unseen/adaptive_solver"],
)  # fmt: skip
def test_layers_in_a_row_and_states_that_go_on_are_no_loop_to_do_at_once(name: str) -> None:
    assert not [one for one in scanned(name) if one.rule == "python_loop" or "in a loop over" in one.title]


def test_a_model_that_a_step_calls_many_times_pays_for_each_compiled_call() -> None:
    one = finding("programs_unseen/adaptive_solver", "launch_gap")
    assert any(f"{COMPILED_CALL_NS.mid / 1e6:g} ms a call" in assumption for assumption in one.assumptions)
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low == 0


@pytest.mark.parametrize(
    ("name", "goes"),
    [
        ("programs/confusion_loop", True),  # counts by index
        ("programs/point_cloud", True),  # rows that a condition chooses
        ("programs/clip_in_loop", False),  # tensors apart, of which a number each is read
        ("programs_unseen/trust_ratios", False),
    ],
)
def test_kernels_of_later_rounds_go_where_one_call_takes_their_place(name: str, goes: bool) -> None:
    one = finding(name, "host_sync")
    assert any("kernels of a loop's later rounds go as well" in each for each in one.assumptions) == goes
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.high <= one.per_step.measured_ns
