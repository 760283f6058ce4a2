"""An optimizer that steps one parameter after another is told by its annotation: shapes are not needed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.timelines import Trace
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

H100 = RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132, compute_capability="9.0")
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, Functor>(int)"
FUSED = "multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<3>>"


def found(
    operators: Sequence[str],
    *,
    annotation: str | None = "Optimizer.step#SGD.step",
    kernel: str = POINTWISE,
    count: int = 40,
) -> list[Finding]:
    """Findings of a trace without shapes: steps of three products, and operators on each parameter."""
    trace, at = Trace(devices=(H100,)), 0
    for _ in range(4):
        step, began = trace.step(at, 1), at
        for _ in range(3):
            trace.kernel(
                "gemm", at + 5_000, 300_000, launch=(at + 100, 500), op=trace.op("aten::mm", at, 1_000), step_row=step
            )
            at += 301_000
        around = None if annotation is None else trace.op(annotation, at, count * len(operators) * 9_000)
        for operator in [*operators] * count:
            op = trace.op(operator, at, 1_000, parent_row=around)
            trace.kernel(kernel, at + 5_000, 6_000, launch=(at + 200, 500), op=op, step_row=step)
            at += 9_000
        at += 10_000
        step["dur_ns"] = at - began
    return list(mined(analysed(trace.timeline())).findings)


@pytest.mark.parametrize("operators", [["aten::add_"], ["aten::mul_", "aten::add_"]])
def test_a_loop_of_sgd_without_shapes_is_told_to_be_fused(operators: list[str]) -> None:
    (finding,) = [each for each in found(operators) if "SGD" in each.title]
    assert finding.rule == "optimizer_unfused"
    assert finding.occurrences == 4
    assert "fused=True" in finding.fix
    assert "torch.compile" not in finding.fix
    assert 0 < finding.gpu_saving_ns.mid < finding.measured_ns / 2  # of what is moved nothing is known to go


def test_what_a_kernel_moves_is_not_counted_as_saved() -> None:
    """Of longer kernels as little goes: what each takes beside its bytes."""
    (few,), (many,) = (
        [each for each in found(["aten::add_"], count=count) if each.rule == "optimizer_unfused"] for count in (20, 40)
    )
    assert many.gpu_saving_ns.mid == pytest.approx(2 * few.gpu_saving_ns.mid, rel=0.01)


def test_a_fused_step_and_a_loop_without_the_annotation_are_no_optimizer_s_loop() -> None:
    fused = found(["aten::_fused_sgd_"], kernel=FUSED, count=1)
    assert not [each for each in fused if each.rule == "optimizer_unfused"]
    unnamed = found(["aten::add_"], annotation=None)
    assert not [each for each in unnamed if each.rule == "optimizer_unfused"]
