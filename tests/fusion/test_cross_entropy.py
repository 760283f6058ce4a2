"""Cross entropy: log_softmax and nll_loss are one pass over the rows, and what needs the whole loss comes after it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.known import known_device
from tests.timelines import Trace
from tracemine.flow import flow
from tracemine.fusion import FusedKernel, Groups, groups
from tracemine.perfmodel import Curves

ROWS, CLASSES = 512, 1000
FULL, EACH, ONE = [ROWS, CLASSES], [ROWS], []  # type: ignore[var-annotated]
LONG, FLOAT, NUMBER = "long int", "float", "Scalar"

Op = tuple[str, list[Any], list[str], list[str]]
SOFTMAX: Op = ("aten::_log_softmax", [FULL, ONE, ONE], [FLOAT, NUMBER, ""], ["", "1", "False"])


def loss(reduction: int = 1) -> Op:
    types = [FLOAT, LONG, "", NUMBER, NUMBER]
    return "aten::nll_loss_forward", [FULL, EACH, ONE, ONE, ONE], types, ["", "", "", str(reduction), "-100"]


BACKWARD: tuple[Op, ...] = (
    (
        "aten::nll_loss_backward",
        [ONE, FULL, EACH, ONE, ONE, ONE, ONE],
        [FLOAT, FLOAT, LONG, "", NUMBER, NUMBER, FLOAT],
        ["", "", "", "", "1", "-100", ""],
    ),
    ("aten::_log_softmax_backward_data", [FULL, FULL, ONE, ONE], [FLOAT, FLOAT, NUMBER, NUMBER], ["", "", "1", "6"]),
)


def grouped(*calls: Op) -> tuple[Groups, list[list[str]]]:
    trace = Trace()
    for at, (name, shapes, dtypes, concrete) in enumerate(calls):
        op = trace.op(name, at * 10, 8, shapes=shapes, dtypes=dtypes, concrete=concrete)
        trace.kernel("k", at * 10 + 5, 4, op=op)
    found = groups(flow(trace.timeline()))
    names = [name.removeprefix("aten::") for name, *_ in calls]
    return found, [[names[node] for node in found.node[begin:end]] for begin, end in pairwise(found.begin.tolist())]


def kernel_of(found: Groups, group: int = 0) -> FusedKernel:
    kernel: FusedKernel = found.kernels[found.kernel[group]]
    return kernel


def test_a_softmax_and_the_loss_of_its_rows_are_one_group() -> None:
    found, members = grouped(SOFTMAX, loss())
    assert members == [["_log_softmax", "nll_loss_forward"]]
    kernel = kernel_of(found)
    assert (kernel.rows, kernel.length, kernel.steps) == (ROWS, CLASSES, ("softmax", "finish"))
    assert sum(kernel.reads) == 4 * ROWS * CLASSES + 8 * ROWS  # scores and classes, once


@pytest.mark.parametrize("reduction", [1, 2])
def test_what_needs_the_whole_loss_is_in_no_group_with_its_rows(reduction: int) -> None:
    scaled: Op = ("aten::mul", [ONE, ONE], [FLOAT, NUMBER], ["", "0.5"])
    spread: Op = ("aten::mul", [FULL, ONE], [FLOAT, FLOAT], ["", ""])
    for after in (scaled, spread):
        _, members = grouped(SOFTMAX, loss(reduction), after)
        assert ["_log_softmax", "nll_loss_forward"] in members
        assert not any("nll_loss_forward" in each and "mul" in each for each in members)


def test_forward_and_backward_are_two_groups() -> None:
    _, members = grouped(SOFTMAX, loss(), *BACKWARD)
    assert members == [["_log_softmax", "nll_loss_forward"], ["nll_loss_backward", "_log_softmax_backward_data"]]


def test_a_loss_that_keeps_its_rows_finishes_nothing() -> None:
    found, members = grouped(SOFTMAX, loss(0))
    assert members in ([], [["_log_softmax", "nll_loss_forward"]])
    assert all("finish" not in kernel.steps for kernel in found.kernels)


def test_the_loss_takes_a_second_kernel_that_sums_the_rows() -> None:
    """Recorded on an H100 as torch.compile's kernels: 1024 to 262,144 rows in 2.5 to 16 µs beside the rows' own."""
    curves = Curves.of(known_device("NVIDIA H100 80GB HBM3"))
    assert curves is not None
    for rows, took_ns in ((1024, 2_496), (2048, 3_680), (4096, 6_016), (8192, 10_080), (65536, 13_248)):
        kernel = FusedKernel(reads=(256 * rows,), writes=(), rows=rows, length=128, item_bytes=2, steps=("softmax",))
        both = FusedKernel(
            reads=(256 * rows,), writes=(), rows=rows, length=128, item_bytes=2, steps=("softmax", "finish")
        )
        alone, found = curves.predict(kernel), curves.predict(both)
        assert found.kernels == alone.kernels + 1
        assert found.mid_ns - alone.mid_ns == pytest.approx(took_ns, rel=0.25)
