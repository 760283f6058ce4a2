"""Launch gaps of a step whose optimizer another finding has: one fix is printed once."""

from __future__ import annotations

from pathlib import Path

import tracemine

RECORDED = Path(__file__).parents[2] / "benchmarks/results/h200/programs/adamw_in_loop"


def test_an_optimizer_that_another_finding_has_is_not_the_fix_of_gaps() -> None:
    by_rule = {finding.rule: finding for finding in tracemine.scan(RECORDED)}
    assert "fused=True" in by_rule["optimizer_unfused"].fix
    assert "fused=True" not in by_rule["launch_gap"].fix
    assert "torch.compile(" in by_rule["launch_gap"].fix


def test_where_none_has_it_the_gaps_say_so() -> None:
    (gaps,) = [one for one in tracemine.scan(RECORDED, skip=["optimizer_unfused"]) if one.rule == "launch_gap"]
    assert "torch.optim.AdamW(parameters, fused=True)" in gaps.fix
