"""Launch gaps of a step whose optimizer another finding has: one fix is printed once."""

from __future__ import annotations

from pathlib import Path

import pytest

import tracemine
from tests.timelines import Trace
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined

RECORDED = Path(__file__).parents[2] / "benchmarks/results/h200/programs/adamw_in_loop"


def test_an_optimizer_that_another_finding_has_is_not_the_fix_of_gaps() -> None:
    by_rule = {finding.rule: finding for finding in tracemine.scan(RECORDED)}
    assert "fused=True" in by_rule["optimizer_unfused"].fix
    assert "fused=True" not in by_rule["launch_gap"].fix
    assert "torch.compile(" in by_rule["launch_gap"].fix


def test_where_none_has_it_the_gaps_say_so() -> None:
    (gaps,) = [one for one in tracemine.scan(RECORDED, skip=["optimizer_unfused"]) if one.rule == "launch_gap"]
    assert "torch.optim.AdamW(parameters, fused=True)" in gaps.fix


@pytest.mark.parametrize("asked", [False, True])
def test_what_no_graph_holds_is_promised_fewer_launches_alone(asked: bool) -> None:
    gaps = _gaps(asked=asked)
    assert ("A CUDA graph of the step fails at" in gaps.fix) == asked
    share = gaps.step_saving_ns.mid / gaps.measured_ns
    assert (share < 0.25) == asked  # 0.4 of what they last alone, where a graph takes all but 0.5 us
    assert (gaps.step_saving_ns.low == 0) == asked


def _gaps(*, asked: bool) -> Finding:
    """Steps that launch late; where `asked`, the size of what follows is asked of the device in the middle."""
    trace, begin = Trace(with_stack=True), 0
    stack = trace.frame("model.py(7): forward")
    for _ in range(4):
        for at in range(24):
            moment = begin + 30_000 * at
            op = trace.op("aten::mm", moment, 15_000, [[64, 8]], ["float"], stack_row=stack)
            trace.kernel("gemm", moment + 16_000, 2_000, launch=(moment + 10_000, 5_000), op=op, stack=stack)
            if asked and at == 12:
                op = trace.op("aten::nonzero", moment + 18_000, 8_000, [[64]], ["bool"], stack_row=stack)
                copied = (moment + 19_000, 1_000)
                trace.copy("DtoH", moment + 21_000, 1_000, 8, pageable=True, launch=copied, op=op, stack=stack)
                trace.call("cudaStreamSynchronize", moment + 20_500, 2_500, op_row=op, stack_row=stack)
        trace.step(begin, 24 * 30_000)
        begin += 24 * 30_000 + 1_000
    (found,) = (one for one in mined(analysed(trace.timeline())).findings if one.rule == "launch_gap")
    return found
