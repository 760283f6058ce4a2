"""A backward chain names what is to be compiled: the function that called the forward operators, or a module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.findings.forwards import Forwards
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

H100 = RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_capability="9.0")
SHAPE = [4096, 4096]
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, Functor>(int)"
MODULE = "block.forward = torch.compile(block.forward)"


def recorded(
    frame: str | None = "/home/me/loss.py(12): focal_loss", module: str | None = None, *, other_thread: bool = False
) -> Trace:
    """Steps of four pointwise operators, with the Python line that called them, and their backward pass."""
    trace, at, number = Trace(devices=(H100,)), 0, 100
    stack = None if frame is None else trace.frame(frame, module=module)
    dtypes, strides = ["c10::BFloat16"] * 2, [[4096, 1]] * 2

    def call(name: str, **columns: Any) -> dict[str, Any]:
        nonlocal at
        op = trace.op(name, at, 1_000, [SHAPE, SHAPE], dtypes, strides, **columns)
        trace.kernel(POINTWISE, at + 5_000, 40_000, launch=(at + 100, 500), op=op)
        at += 45_000
        return op

    for _ in range(4):
        first = number
        for name in ("aten::mul", "aten::sub", "aten::mul", "aten::sub"):
            call(name, sequence_number=number, stack_row=stack, module=module)
            if other_thread:
                trace.op("aten::mul", at - 10, 5, tid=9, sequence_number=number)
            number += 1
        for each in range(number - 1, first - 1, -1):
            name = "autograd::engine::evaluate_function: MulBackward0"
            node = trace.op(name, at, 44_000, tid=2, sequence_number=each)
            call("aten::sub" if each % 2 else "aten::mul", tid=2, parent_row=node)
        at += 5_000
    return trace


def backward_texts(trace: Trace) -> list[str]:
    scan = mined(analysed(trace.timeline()))
    return [one.fix for one in scan.findings if one.rule == "memory_bound_chain" and "backward" in one.fix]


def test_the_function_of_the_same_sequence_number_is_named() -> None:
    texts = backward_texts(recorded())
    assert texts
    assert all("focal_loss = torch.compile(focal_loss)" in text and MODULE not in text for text in texts)
    assert not any("{" in text for text in texts)


@pytest.mark.parametrize(
    "trace",
    [
        recorded(module="Net_0.Loss_0"),  # a module's forward is compiled
        recorded(frame=None),
        recorded(frame="/home/me/loss.py(12): <lambda>"),
        recorded(frame="/home/me/loss.py(12): __import__('os').system"),
        recorded(other_thread=True),  # a number that two threads have is nobody's
    ],
    ids=["module", "no stacks", "lambda", "no name", "two threads"],
)
def test_where_no_function_is_known_none_is_named(trace: Trace) -> None:
    texts = backward_texts(trace)
    assert texts
    assert all(MODULE in text and "focal_loss" not in text and "__import__" not in text for text in texts)


def test_the_last_forward_operator_of_a_number_counts() -> None:
    timeline = recorded().timeline()
    rows = [row for row, name in enumerate(timeline.ops["name"].to_pylist()) if name in ("aten::mul", "aten::sub")]
    backward = [row for row in rows if timeline.ops["sequence_number"][row].as_py() is None]
    found = Forwards(timeline).of(np.array(backward))
    numbers = [timeline.ops["sequence_number"][int(row)].as_py() for row in found]
    assert numbers[:4] == [103, 102, 101, 100]


def test_without_a_backward_pass_there_are_none() -> None:
    trace = Trace()
    trace.op("aten::mul", 0, 10)
    assert Forwards(trace.timeline()).of(np.array([0])).tolist() == [-1]
    assert Forwards(trace.timeline()).function(np.array([], np.int64)) is None
