"""A layer norm that stands alone: where a kernel made for its rows is faster, and where it is not."""

from __future__ import annotations

import pytest

from tests.timelines import Trace
from tracemine.causes import load_rules
from tracemine.findings import Finding
from tracemine.pipeline import ScanOptions, analysed, mined
from tracemine.timeline import RecordedDevice

H100 = RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132)
RULES = [rule for rule in load_rules() if rule.id in ("layer_norm_slow", "memory_bound_chain")]
KERNEL = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, false>(int)"
HALF = "c10::BFloat16"


def found(rows: int, length: int, dur: int, *, axes: str | None = None, after: bool = False) -> list[Finding]:
    """Findings of a layer norm; `after`: an activation reads it."""
    trace = Trace(devices=(H100,))
    given = ["", f"[{length}]" if axes is None else axes, "", "", "1e-05"]
    shapes, strides = [[rows, length], [], [length], [length], []], [[length, 1], [], [1], [1], []]
    dtypes = [HALF, "ScalarList", HALF, HALF, "Scalar"]
    op = trace.op("aten::native_layer_norm", 0, 10, shapes, dtypes, strides, given)
    trace.kernel(KERNEL, 50_000, dur, op=op)
    if after:
        op = trace.op("aten::silu", 20, 10, [[rows, length]], [HALF], [[length, 1]], [""])
        trace.kernel("k", 51_000 + dur, dur, op=op)
    return list(mined(analysed(trace.timeline()), ScanOptions(rules=RULES)).findings)


@pytest.mark.parametrize(
    ("rows", "length", "took", "compiled"), [(16_384, 1_024, 41_408, 23_776), (64, 8_192, 9_000, 0)]
)
def test_short_rows_and_few_long_ones_are_told(rows: int, length: int, took: int, compiled: int) -> None:
    (finding,) = found(rows, length, took)
    assert finding.rule == "layer_norm_slow"
    assert 0 < finding.gpu_saving_ns.low < finding.gpu_saving_ns.mid < finding.gpu_saving_ns.high < took
    if compiled:
        assert finding.gpu_saving_ns.low <= took - compiled <= finding.gpu_saving_ns.high


def test_long_rows_that_are_as_fast_as_they_can_be_are_not() -> None:
    assert found(4_096, 4_096, 29_409) == []


def test_where_the_row_was_not_recorded_nothing_is_said() -> None:
    assert found(16_384, 1_024, 41_408, axes="") == []


def test_one_of_a_group_is_part_of_the_group() -> None:
    assert {finding.rule for finding in found(16_384, 1_024, 41_408, after=True)} == {"memory_bound_chain"}
