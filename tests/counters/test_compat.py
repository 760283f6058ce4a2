"""Reports of other programs and versions of ncu: every kernel that a plain count finds is read."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from tracemine.counters import match
from tracemine.formats import open_trace
from tracemine.formats.ncu import read_counters

_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
_REPORTS = sorted((_ROOT / "ncu").glob("*"))

pytestmark = pytest.mark.skipif(not _REPORTS, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")


def _counted(path: Path) -> int:
    """Distinct IDs of the rows below the header, by the standard library alone."""
    lines = path.read_text("utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID","Process ID"'))
    return len({row[0] for row in csv.reader(lines[first + 1 :]) if row and row[0].isdigit()})


@pytest.mark.parametrize("path", _REPORTS, ids=lambda path: path.name)
def test_every_kernel_is_read(path: Path) -> None:
    if ".ncu-rep" in path.name:
        pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
        expected = _counted(path.with_name(path.name.split(".ncu-rep")[0] + ".raw.csv"))
    else:
        expected = _counted(path)
    report = read_counters(path)
    print(f"{path.name}: {len(report.kernels)} kernels, page {report.page}")
    assert len(report.kernels) == expected > 0
    assert (report.dropped, report.warnings) == ({}, ())
    for kernel in report.kernels:
        assert kernel.grid
        assert kernel.block
        assert kernel.dur_ns
        assert kernel.compute_percent is not None
        assert kernel.memory_percent is not None or kernel.dram_percent is not None


@pytest.mark.parametrize("page", ["raw.csv", "details.csv", "ncu-rep.gz"])
def test_a_recording_of_the_same_program_has_all_profiled_kernels(page: str) -> None:
    if "rep" in page:
        pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    report = read_counters(_ROOT / "ncu" / f"splade_head.{page}")
    for name in ("eager", "nostack"):
        timeline = open_trace(_ROOT / "h200" / "splade_head" / f"{name}.json.gz")
        counters = match(timeline, [report])
        assert (counters.matched, counters.unmatched) == ({"exact": 8}, {})
        assert (counters.of >= 0).sum() == timeline.activities["kind"].to_pylist().count("kernel")
