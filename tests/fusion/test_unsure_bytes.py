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
            takes = {"shapes": [BIG, *[[]] * 6], "dtypes": ["c10::BFloat16", "Scalar", "", "", "", "Scalar", ""]}
            takes["strides"] = [[SIDE, 1], *[[]] * 6]
            parent = trace.op("aten::_to_copy", 0, 800, **takes, concrete=["", "6", "", "", "", "False", ""])
            sizes = {"shapes": [[]] * 6, "dtypes": ["ScalarList", "ScalarList", "Scalar", "Scalar", "", "Scalar"]}
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
    """An optimizer spelled out reads four tensors and writes three; from shapes alone they look like one."""
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
    assert kernel.nbytes < 7 * size  # what is guessed
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
