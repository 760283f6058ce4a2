"""Bytes of a group whose dataflow is inferred: what is made and gone is not written, and what may be more widens."""

from __future__ import annotations

from typing import Any

from tests.timelines import Trace
from tracemine.flow import flow
from tracemine.fusion import FusedKernel, Groups, groups
from tracemine.perfmodel import Curves, Estimate, calibration_of, one_kernel

SIDE = 4096
BIG = [SIDE, SIDE]
Op = tuple[str, list[Any], list[str]]


def found(*ops: Op, cast: bool = False) -> Groups:
    """The groups of operators of float32 one after another; `cast`: `to` a bfloat16 tensor runs the first."""
    trace = Trace()
    for at, (name, shapes, dtypes) in enumerate(ops):
        start, parent = 1000 * at, None
        if cast and not at:
            takes: dict[str, Any] = {
                "shapes": [BIG, *[[]] * 6],
                "dtypes": ["c10::BFloat16", "Scalar", "", "", "", "Scalar", ""],
            }
            takes["strides"] = [[SIDE, 1], *[[]] * 6]
            parent = trace.op("aten::_to_copy", 0, 800, **takes, concrete=["", "6", "", "", "", "False", ""])
            sizes: dict[str, Any] = {
                "shapes": [[]] * 6,
                "dtypes": ["ScalarList", "ScalarList", "Scalar", "Scalar", "", "Scalar"],
            }
            sizes["strides"] = [[]] * 6
            given = [str(BIG), str([SIDE, 1]), "6", "0", "", "False"]
            trace.op("aten::empty_strided", 10, 20, **sizes, concrete=given, parent_row=parent)
        strides = [[shape[1], 1] if shape else [] for shape in shapes]
        op = trace.op(name, start + 100, 600, shapes=shapes, dtypes=dtypes, strides=strides, parent_row=parent)
        trace.kernel("k", 10**6 + 100_000 * at, 90_000, op=op)
    return groups(flow(trace.timeline()))


def pointwise(name: str, count: int) -> Op:
    return f"aten::{name}", [BIG] * count, ["float"] * count


def test_a_cast_that_is_read_within_the_group_alone_is_not_written() -> None:
    copy = ("aten::copy_", [BIG, BIG, []], ["float", "c10::BFloat16", "Scalar"])
    last = ("aten::mm", [[64, 32], [32, 64]], ["float", "float"])  # something else: the step goes on
    group = found(copy, pointwise("exp", 1), pointwise("neg", 1), last, last, cast=True)
    (kernel,) = group.kernels
    size = SIDE * SIDE
    assert kernel.reads == (2 * size,)
    assert kernel.writes == (4 * size,)


def test_state_that_is_written_in_place_and_looks_alike_may_be_a_tensor_each() -> None:
    """An optimizer spelled out reads four tensors and writes three; which of them it writes is a guess."""
    group = found(
        pointwise("mul_", 1),
        pointwise("addcmul_", 3),
        pointwise("lerp_", 2),
        pointwise("sqrt", 1),
        pointwise("add_", 1),
        pointwise("addcdiv_", 3),
    )
    (kernel,) = group.kernels
    size = 4 * SIDE * SIDE
    assert kernel.nbytes == 7 * size  # what is guessed
    assert kernel.nbytes + int(group.more_reads[0] + group.more_writes[0]) >= 7 * size
    calibration = calibration_of("NVIDIA H200 SXM")
    assert calibration is not None
    curves = Curves(calibration)
    told = one_kernel(kernel, [], curves, sure=False, more=(int(group.more_reads[0]), int(group.more_writes[0])))
    truth = FusedKernel(reads=(size,) * 4, writes=(size,) * 3, rows=SIDE * SIDE, steps=("simple",) * 9 + ("divide",))
    assert isinstance(told, Estimate)
    assert told.after_ns.low < curves.predict(truth).mid_ns < told.after_ns.high


def test_where_nothing_is_written_in_place_there_is_nothing_more() -> None:
    group = found(pointwise("exp", 1), pointwise("neg", 1))
    assert (group.more_reads.tolist(), group.more_writes.tolist()) == ([0], [0])


def test_what_is_gated_is_another_tensor_than_what_made_the_gate() -> None:
    """`silu(a) * b`: nothing tells b from a, which looks alike and is there; a gate has two inputs."""
    last = ("aten::mm", [[64, 32], [32, 64]], ["float", "float"])  # something else: the step goes on
    (kernel,) = found(pointwise("silu", 1), pointwise("mul", 2), last, last).kernels
    size = 4 * SIDE * SIDE
    assert (kernel.reads, kernel.writes) == ((size, size), (size,))


def test_a_tensor_made_in_the_step_that_is_read_again_is_one() -> None:
    """`x + gelu(x)` of what a norm made: it is there, and has been read, and nothing else looks like it."""
    (kernel,) = found(pointwise("exp", 1), pointwise("silu", 1), pointwise("add", 2)).kernels
    assert kernel.reads == (4 * SIDE * SIDE,)


def test_a_moment_and_the_gradient_that_it_takes_are_two_tensors() -> None:
    """AdamW spelled out moves seven tensors: parameter and moments are read and written, the gradient is read."""
    (kernel,) = found(
        pointwise("lerp_", 2),
        pointwise("mul_", 1),
        pointwise("addcmul_", 3),
        pointwise("sqrt", 1),
        pointwise("div", 1),
        pointwise("add_", 1),
        pointwise("mul_", 1),
        pointwise("addcdiv_", 3),
    ).kernels
    assert kernel.nbytes >= 6 * 4 * SIDE * SIDE


def test_a_tensor_is_added_to_itself_only_where_it_is_not_written() -> None:
    size = 4 * SIDE * SIDE
    (kernel,) = found(pointwise("exp_", 1), pointwise("mul_", 2)).kernels
    assert kernel.reads == (size, size)
