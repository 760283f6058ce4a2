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
    assert "no round needs what another computed" in one.fix
    assert any("95%" in assumption for assumption in one.assumptions)
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low > 0


@pytest.mark.parametrize("name", ["programs/sampler", "programs_unseen/conjugate_gradient"])
def test_rounds_that_need_each_other_lose_their_waits_alone(name: str) -> None:
    one = finding(name, "host_sync")
    assert "no round needs what another computed" not in one.fix
    assert any("35%" in assumption for assumption in one.assumptions)
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low == 0


def test_a_chain_in_a_loop_over_independent_inputs_promises_the_step_nothing() -> None:
    """48 pictures one by one: compiled, each calls what was compiled; the loop as one call is the first fix."""
    report = scanned("programs/augment_each")
    assert report[0].rule == "launch_gap"
    assert "Let one call do all rounds" in report[0].fix
    chain = finding("programs/augment_each", "memory_bound_chain")
    assert chain.per_step is not None
    assert chain.per_step.step_saving_ns.mid == 0


def test_a_model_that_a_step_calls_many_times_pays_for_each_compiled_call() -> None:
    one = finding("programs_unseen/adaptive_solver", "launch_gap")
    assert any(f"{COMPILED_CALL_NS.mid / 1e6:g} ms a call" in assumption for assumption in one.assumptions)
    assert one.per_step is not None
    assert one.per_step.step_saving_ns.low == 0
