"""The project's own reports, of programs whose traces lie beside them: all kernels found, and traffic as modelled."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tracemine.counters import CounterReport, Counters, match
from tracemine.findings.counter_summary import kernel_lines
from tracemine.formats import open_trace
from tracemine.formats.ncu import read_counters
from tracemine.rows import Numbers, Rows, row_sets
from tracemine.rows.table import category, numbers_of
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = FIXTURES / "ncu"
TABLES = sorted(RECORDED.rglob("*.csv.gz"))


@cache
def opened(name: str) -> Timeline:
    return open_trace(RECORDED / name / "trace.json.gz")


@cache
def read(path: Path) -> CounterReport:
    return read_counters(path)


def joined(name: str, page: str = "raw") -> Counters:
    return match(opened(name), [read(RECORDED / name / f"{page}.csv.gz")])


def counted_alone(path: Path) -> int:
    """How many kernels a table has, by the standard library alone."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID","Process ID"'))
    return len({row[0] for row in csv.reader(lines[first + 1 :]) if row and row[0].isdigit()})


def values(rows: Rows, name: str, where: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    column = rows.columns[name]
    assert isinstance(column, Numbers)
    assert column.valid is None or column.valid[where].all(), name
    found: npt.NDArray[Any] = column.values[where]
    return found


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_kernel_of_every_table_is_read(path: Path) -> None:
    report = read(path)
    assert len(report.kernels) == counted_alone(path) > 0
    assert (report.dropped, report.warnings) == ({}, ())
    assert all(kernel.grid and kernel.block and kernel.dur_ns for kernel in report.kernels)
    assert all(kernel.gpu in ("NVIDIA H200", None) for kernel in report.kernels)


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_profiled_kernel_is_found_in_the_trace_of_the_program(path: Path) -> None:
    counters = match(opened(path.parent.name), [read(path)])
    kernels = opened(path.parent.name).activities["kind"].to_pylist().count("kernel")
    assert counters.unmatched == {}
    assert (counters.of >= 0).sum() == kernels
    # Mangled names are compared by the function's name: the order tells them, but they are not exact.
    how = "name_and_grid" if path.name == "mangled.csv.gz" else "exact"
    assert counters.matched == {how: len(read(path).kernels)}


@pytest.mark.parametrize("name", ["chain", "decoder_prefill"])
def test_another_recording_of_the_same_program_fits_as_well(name: str) -> None:
    timeline = open_trace(FIXTURES / "kineto" / f"{name}.json.gz")
    assert match(timeline, [read(RECORDED / name / "raw.csv.gz")]).matched == {
        "exact": len(read(RECORDED / name / "raw.csv.gz").kernels)
    }


def test_another_program_does_not_fit() -> None:
    counters = match(opened("compiled"), [read(RECORDED / "decoder_prefill" / "raw.csv.gz")])
    assert counters.matched == {}
    assert sum(counters.unmatched.values()) == 86


def test_what_pointwise_kernels_read_is_what_the_model_says() -> None:
    """Caches are empty when ncu begins a kernel, so all that it must read comes from DRAM, and little else."""
    timeline, counters = opened("decoder_prefill"), joined("decoder_prefill")
    rows = row_sets(timeline)["activities"]
    measured = row_sets(timeline, counters=counters)["activities"]
    classes = category(rows, "op_class")
    pointwise = np.array([name in ("pointwise", "copy", "reduction") for name in classes.values])[classes.codes]
    large = pointwise & (numbers_of(rows, "bytes_read").values > 1_000_000)
    assert large.sum() > 100
    ratio = values(measured, "dram_read_bytes", large) / values(rows, "bytes_read", large)
    assert 0.99 < ratio.min() <= ratio.max() < 1.02


def test_what_is_written_to_dram_is_never_more_than_modelled() -> None:
    """What fits into L2 is still there when the kernel ends: the counter is no measure of what a kernel writes."""
    for name in ("chain", "decoder_prefill"):
        timeline, counters = opened(name), joined(name)
        rows, measured = row_sets(timeline)["activities"], row_sets(timeline, counters=counters)["activities"]
        written = numbers_of(rows, "bytes_written")
        assert written.valid is not None
        large = written.valid & (written.values > 1_000_000)
        assert (values(measured, "dram_written_bytes", large) < values(rows, "bytes_written", large)).all()
        assert (values(measured, "bytes_written", large) == values(rows, "bytes_written", large)).all()


def test_matrix_units_count_what_the_products_take() -> None:
    """4096 × 1024 × 1024, 4096 × 1024 × 4096 and 4096 × 1024 × 8192, each multiplication and addition counted."""
    counted = {
        kernel.flops.get("bf16", 0)
        for kernel in read(RECORDED / "decoder_prefill" / "raw.csv.gz").kernels
        if kernel.name.startswith("nvjet")
    }
    assert counted == {2 * 4096 * 1024 * size for size in (1024, 4096, 8192)}


def test_derived_bytes_are_the_counted_ones() -> None:
    """Of one report, the raw page has the counters, the details page the rate, rounded to two decimals."""
    raw, details = (read(RECORDED / "chain" / f"{page}.csv.gz") for page in ("raw", "details"))
    assert {kernel.dram_bytes_from for kernel in raw.kernels} == {"counters"}
    assert {kernel.dram_bytes_from for kernel in details.kernels} == {"rate"}
    for one, other in zip(raw.kernels, details.kernels, strict=True):
        assert other.dram_bytes == pytest.approx(one.dram_bytes, rel=0.01)


def test_bytes_from_throughput_are_the_counted_ones() -> None:
    from tracemine.formats.ncu.kernels import KernelReading, kernel_of, metrics

    text = gzip.decompress((RECORDED / "decoder_prefill" / "raw.csv.gz").read_bytes()).decode()
    header, units, *launches = csv.reader(text.splitlines())
    names = (
        "gpu__time_duration.sum",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "device__attribute_global_memory_bus_width",
        "dram__cycles_elapsed.avg.per_second",
    )
    counted = read(RECORDED / "decoder_prefill" / "raw.csv.gz").kernels
    for launch, kernel in zip(launches, counted, strict=True):
        reading = KernelReading("k")
        for name in names:
            at = header.index(name)
            reading.add(metrics()[0][name], launch[at].replace(",", ""), units[at])
        derived = kernel_of(reading, 0, float)
        assert derived.dram_bytes_from == "throughput"
        assert kernel.dram_bytes is not None and derived.dram_bytes is not None and kernel.dur_ns is not None
        # The throughput is that of the busiest part of DRAM: a bound from above.
        assert kernel.dram_bytes <= derived.dram_bytes * 1.001
        assert kernel.dur_ns < 10_000 or derived.dram_bytes < 1.1 * kernel.dram_bytes


def test_products_lie_right_of_the_ridge_and_pointwise_kernels_left() -> None:
    lines = kernel_lines(opened("decoder_prefill"), joined("decoder_prefill"))
    assert sum(line.launches for line in lines) == 86
    assert sum(line.activities for line in lines) == 172
    for line in lines:
        assert line.arithmetic_intensity is not None
        assert line.ridge is not None
        product = line.op in ("aten::mm", "aten::addmm", "aten::_cudnn_attention_forward")
        assert (line.arithmetic_intensity > line.ridge) == product
        assert (line.bound == "compute") <= product
    mul = [line.bound for line in lines if line.name == "vectorized_elementwise_kernel (mul)"]
    assert mul == ["memory"]


def test_the_binary_report_says_what_its_table_says() -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    binary = read_counters(RECORDED / "compiled" / "report.ncu-rep")
    table = read(RECORDED / "compiled" / "raw.csv.gz")
    assert (binary.page, len(binary.kernels)) == ("report", 4)
    for one, other in zip(binary.kernels, table.kernels, strict=True):
        assert (one.name, one.grid, one.block, one.gpu) == (other.name, other.grid, other.block, other.gpu)
        assert (one.dur_ns, one.dram_bytes, one.flops) == (other.dur_ns, other.dram_bytes, other.flops)
        assert one.bound() == other.bound()
    assert match(opened("compiled"), [binary]).matched == {"exact": 4}


def test_no_file_names_a_path_or_a_user() -> None:
    for path in RECORDED.rglob("*"):
        if path.is_file() and path.name != "trace.json.gz":
            content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            for word in (b"/usr/", b"/opt/", b"/home/", b"/root", b"/tmp/", b"torchinductor_"):
                assert word not in content, (path, word)
