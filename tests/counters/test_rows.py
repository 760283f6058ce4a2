"""Rows carry what was counted; of the modelled columns a measured one takes the place where it says more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.counters import CounterReport, ProfiledKernel, match
from tracemine.rows import ROW_DOCS, Categories, Numbers, Rows, row_sets
from tracemine.timeline import RecordedDevice

GRID, BLOCK = (8, 1, 1), (128, 1, 1)
DEVICES = (RecordedDevice(ordinal=0, name="NVIDIA H200"),)
# aten::mul of 1024 floats by 1024 floats: 8192 bytes read, 4096 written.
CALL: dict[str, Any] = {"op": "aten::mul", "shapes": [[1024], [1024]], "dtypes": ["float", "float"], "launch": (0, 5)}


def measured(*names: str, **of_first: Any) -> Rows:
    """Rows of a trace with these kernels, of which the first is profiled."""
    made = Trace(devices=DEVICES)
    for i, name in enumerate(names):
        made.kernel(name, 10 + 100 * i, 50, grid=GRID, block=BLOCK, **{**CALL, "launch": (100 * i, 5)})
    kernel = ProfiledKernel(name=names[0], order=0, grid=GRID, block=BLOCK, **of_first)
    timeline = made.timeline()
    counters = match(timeline, [CounterReport(source="r.csv", page="raw", kernels=(kernel,))])
    return row_sets(timeline, counters=counters)["activities"]


def at(rows: Rows, name: str, row: int = 0) -> Any:
    column = rows.columns[name]
    if isinstance(column, Categories):
        return column.values[column.codes[row]] if column.codes[row] >= 0 else None
    assert isinstance(column, Numbers)
    return column.values[row].item() if column.valid is None or column.valid[row] else None


def test_every_documented_column_is_there_with_a_report_and_without() -> None:
    made = Trace(devices=DEVICES)
    made.kernel("a", 10, 50, grid=GRID, block=BLOCK, **CALL)
    without = row_sets(made.timeline())["activities"]
    for rows in (without, measured("a")):
        assert set(rows.columns) == {doc.name for doc in ROW_DOCS["activities"]}
    for name in ("counters", "measured_bound", "dram_bytes", "flops", "intensity", "ridge"):
        assert at(without, name) is None
    assert (at(without, "bytes_read"), at(without, "bytes_written"), at(without, "bound")) == (8192, 4096, "memory")


def test_what_was_read_takes_the_models_place_and_only_of_what_was_profiled() -> None:
    rows = measured("a", "b", dram_read_bytes=20_000, dram_written_bytes=0, dram_bytes=20_000)
    assert [at(rows, "bytes_read", i) for i in (0, 1)] == [20_000, 8192]
    assert [at(rows, "bytes", i) for i in (0, 1)] == [24_096, 12_288]
    assert [at(rows, "counters", i) for i in (0, 1)] == ["exact", None]


@pytest.mark.parametrize(("counted", "written"), [(0, 4096), (4095, 4096), (9000, 9000), (None, 4096)])
def test_what_was_written_is_only_ever_raised(counted: int | None, written: int) -> None:
    rows = measured("a", dram_written_bytes=counted)
    assert (at(rows, "bytes_written"), at(rows, "dram_written_bytes")) == (written, counted)


def test_what_the_model_does_not_know_stays_unknown() -> None:
    made = Trace(devices=DEVICES)
    made.kernel("a", 10, 50, grid=GRID, block=BLOCK)
    timeline = made.timeline()
    kernel = ProfiledKernel(
        name="a", order=0, grid=GRID, block=BLOCK, dram_read_bytes=5, dram_written_bytes=7, dram_bytes=12
    )
    counters = match(timeline, [CounterReport(source="r", page="raw", kernels=(kernel,))])
    rows = row_sets(timeline, counters=counters)["activities"]
    assert [at(rows, name) for name in ("bytes_read", "bytes_written", "bytes", "dram_bytes")] == [5, None, None, 12]


@pytest.mark.parametrize(
    ("sm", "memory", "measured_bound", "bound"),
    [
        (90.0, 20.0, "compute", "compute"),
        (20.0, 90.0, "memory", "memory"),
        (20.0, 30.0, "latency", "memory"),
        (85.0, 90.0, "neither", "memory"),
        (None, 90.0, None, "memory"),
    ],
)
def test_a_measured_limit_of_compute_is_believed(
    sm: float | None, memory: float, measured_bound: str, bound: str
) -> None:
    rows = measured("a", compute_percent=sm, memory_percent=memory)
    assert (at(rows, "measured_bound"), at(rows, "bound")) == (measured_bound, bound)


def test_left_of_the_ridge_a_busy_multiprocessor_is_not_bound_by_arithmetic() -> None:
    low, high = (
        measured("a", compute_percent=70.0, memory_percent=20.0, flops={"fp32": n}, flops_complete=True, dram_bytes=100)
        for n in (1_000, 2_000)
    )
    assert (at(low, "intensity"), at(low, "measured_bound")) == (10.0, "neither")
    assert (at(high, "intensity"), at(high, "measured_bound")) == (20.0, "compute")
    full = measured(
        "a", compute_percent=81.0, memory_percent=20.0, flops={"fp32": 1}, flops_complete=True, dram_bytes=100
    )
    assert at(full, "measured_bound") == "compute"


@pytest.mark.parametrize(
    ("flops", "peak"),
    [
        ({}, 67e12),
        ({"fp32": 10}, 67e12),
        ({"half": 10}, 67e12),  # of vector units: no slower than single precision
        ({"bf16": 10}, 989.4e12),
        ({"fp32": 10, "bf16": 10}, 20 / (10 / 67e12 + 10 / 989.4e12)),
        ({"fp6": 10}, None),
    ],
)
@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_the_ridge_is_that_of_the_types_that_a_kernel_computes_in(
    flops: dict[str, int], peak: float | None, gpu: str | None
) -> None:
    ridge = at(measured("a", flops=flops, flops_complete=True, dram_bytes=100, gpu=gpu), "ridge")
    assert ridge == (None if peak is None else pytest.approx(peak / 4.8e12))


def test_without_all_flops_there_is_no_place_on_the_roofline() -> None:
    rows = measured("a", flops={"fp32": 10}, flops_complete=False, dram_bytes=100)
    assert [at(rows, name) for name in ("flops", "intensity", "ridge")] == [None, None, None]
    assert at(measured("a", flops={}, flops_complete=True, dram_bytes=0), "intensity") is None
    assert np.isfinite(at(measured("a", flops={}, flops_complete=True, dram_bytes=0), "ridge"))
