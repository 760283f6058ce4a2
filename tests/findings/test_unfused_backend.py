"""What torch.compile traced and did not fuse is told to take another backend; what it left out, to be compiled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.findings import Scan
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice, Timeline

H100 = RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_capability="9.0")
SHAPE = [4096, 4096]
INDUCTOR = 'backend="inductor"'
LEFT_OUT = "torch.compile left this stretch out"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, Functor>(int)"


def step(trace: Trace, at: int, marks: list[str], kernel: str, pause: int) -> int:
    """One chain of four pointwise operators within marks of torch.compile, the first outermost; when it has ended."""
    parent: dict[str, Any] | None = None
    for mark in marks:
        parent = trace.op(mark, at, 10_000_000, parent_row=parent)
        at += 10
    for number in range(4):
        shapes, dtypes = [SHAPE, SHAPE], ["c10::BFloat16"] * 2
        op = trace.op(
            "aten::sub" if number % 2 else "aten::mul", at, 1_000, shapes, dtypes, [[4096, 1]] * 2, parent_row=parent
        )
        trace.kernel(kernel, at + 5_000, 40_000, launch=(at + 100, 500), op=op)
        at += 45_000 + pause * (number == 1)
    if parent is not None:
        for each in trace.rows["ops"]:
            if each["name"] in marks and each["dur_ns"] == 10_000_000:
                each["dur_ns"] = at - each["start_ns"]
    return at + 10_000


def timeline(
    marks: list[str], kernel: str = POINTWISE, *, elsewhere: list[str] | None = None, pause: int = 0
) -> Timeline:
    trace, at = Trace(devices=(H100,)), 0
    for _ in range(4):
        at = step(trace, at, marks, kernel, pause)
    if elsewhere is not None:
        trace.op(elsewhere[0], at, 1_000)
    return trace.timeline()


def texts(scan: Scan, rule: str) -> list[str]:
    return [finding.fix for finding in scan.findings if finding.rule == rule]


REGION, FORWARD, BACKWARD = "Torch-Compiled Region: 0/0", "CompiledFunction", "CompiledFunctionBackward"


@pytest.mark.parametrize("marks", [[REGION], [REGION, FORWARD], [BACKWARD]])
def test_operators_that_a_backend_runs_one_by_one_are_told_of_inductor(marks: list[str]) -> None:
    chains = texts(mined(analysed(timeline(marks))), "memory_bound_chain")
    assert chains
    assert all(INDUCTOR in text and "graph break" not in text for text in chains)


def test_gaps_between_them_are_not_told_to_replay() -> None:
    gaps = texts(mined(analysed(timeline([REGION, FORWARD], pause=300_000))), "launch_gap")
    assert gaps
    assert all(INDUCTOR in text and "reduce-overhead" not in text for text in gaps)


def test_what_stands_outside_of_the_graph_was_left_out() -> None:
    chains = texts(mined(analysed(timeline([], elsewhere=[REGION]))), "memory_bound_chain")
    assert chains
    assert all(LEFT_OUT in text and INDUCTOR not in text for text in chains)


def test_behind_a_break_of_what_inductor_compiled_it_was_left_out_too() -> None:
    trace = timeline([REGION], elsewhere=["## Call CompiledFxGraph f1 ##"])
    chains = texts(mined(analysed(trace)), "memory_bound_chain")
    assert chains
    assert all(LEFT_OUT in text and INDUCTOR not in text for text in chains)


def test_nothing_of_it_is_said_where_nothing_is_compiled() -> None:
    chains = texts(mined(analysed(timeline([]))), "memory_bound_chain")
    assert chains
    assert not any(INDUCTOR in text or LEFT_OUT in text for text in chains)
