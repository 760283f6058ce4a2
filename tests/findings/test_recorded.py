"""What a scan says of its recording, and of what operators took: what another scan is held against."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.findings.build import kernel, timeline_of
from tracemine.findings.record import Scan
from tracemine.pipeline import analysed, mined, scan

PREFILL = Path(__file__).parents[2] / "fixtures/kineto/decoder_prefill.json.gz"
MS = 1_000_000


@pytest.fixture(scope="module")
def prefill() -> Scan:
    return scan(PREFILL)


def test_what_operators_took_is_all_gpu_time_of_a_step_but_for_rounding(prefill: Scan) -> None:
    assert prefill.spent is not None
    step = prefill.summary.per_step
    assert step is not None
    gpu = prefill.spent.gpu_ns
    # Activities of one stream do not overlap here: their sum is their union.
    assert 0 <= step.gpu_busy_ns - sum(gpu.values()) <= len(gpu)


def test_no_gpu_finding_measures_more_than_its_operators_took(prefill: Scan) -> None:
    assert prefill.spent is not None
    on_gpu = [finding for finding in prefill.findings if finding.on_gpu]
    assert on_gpu
    for finding in on_gpu:
        ops = {*finding.ops, *(op for variant in finding.variants for op in variant.ops)}
        assert finding.per_step is not None
        # Whole nanoseconds, rounded down once an operator.
        assert finding.per_step.measured_ns <= sum(prefill.spent.gpu_ns.get(op, 0) for op in ops) + len(ops)


def test_shapes_are_recorded_where_an_operator_has_them_and_not_where_none_does() -> None:
    for shapes in (None, ((4, 4),)):
        found = mined(analysed(timeline_of([kernel(0, 9_000, shapes=shapes), kernel(10_000, 9_000, shapes=shapes)])))
        assert found.recorded is not None
        assert found.recorded.shapes == (shapes is not None)


def test_time_outside_the_steps_is_not_of_a_step() -> None:
    kernels = [
        kernel(MS, 10_000, op="aten::mm", step_row=0),
        kernel(1_600_000, 20_000, step_row=1),
        kernel(9 * MS, 40_000),
    ]
    found = mined(analysed(timeline_of(kernels, steps=[(900_000, 600_000), (1_500_000, 700_000)])))
    assert found.spent is not None
    assert found.spent.gpu_ns == {"aten::mul": 10_000, "aten::mm": 5_000}


def test_the_spread_is_of_each_kind_of_steps_and_null_of_two() -> None:
    def spread(spans: list[int]) -> tuple[int | None, int | None]:
        steps, kernels, at = [], [], 0
        for row, span in enumerate(spans):
            steps.append((at, span))
            many = 10 if span > MS else 1
            kernels += [kernel(at + 50_000 + 2_000 * i, 1_000, step_row=row) for i in range(many)]
            at += span
        step = mined(analysed(timeline_of(kernels, steps=steps))).summary.per_step
        assert step is not None
        return step.span_spread_ns, step.gpu_busy_spread_ns

    assert spread([500_000, 510_000]) == (None, None)
    assert spread([500_000, 510_000, 520_000]) == (10_000, 0)
    # Two kinds ten times as long as each other: each differs little from its own.
    assert spread([500_000, 510_000, 520_000, 5 * MS, 5 * MS + 10_000, 5 * MS + 20_000])[0] == 10_000
