"""Proton's trees: sums by scope, and nothing of when."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.formats.proton.make import H200, node, summed, tree
from tracemine.cli import main
from tracemine.formats import open_trace
from tracemine.pipeline import scan

_CDNA3 = {"arch": "gfx942", "num_sms": 304, "bus_width": 8192, "memory_clock_rate": 1_300_000}


def _written(folder: Path) -> Path:
    kernels = [
        node("norm_kernel", time=18_301, count=3, bytes=25_165_824.0, flops32=1e7),
        node("matmul_kernel", time=240_600, count=6, bytes=1e8, flops16=2e11),
        node("__proton_launch_metadata:matmul_kernel", node("at::sum", time=12_000, count=3)),
    ]
    return tree(folder, node("step", node("mlp", *kernels), node("add_kernel", time=15_000, count=3)))


def test_a_row_is_a_kernel_in_a_scope_with_its_sums(tmp_path: Path) -> None:
    path = _written(tmp_path)
    timeline = open_trace(path)
    rows = timeline.activities.to_pylist()
    assert [(row["name"], row["module"], row["dur_ns"], row["calls"]) for row in rows] == [
        ("matmul_kernel", "step.mlp", 240_600, 6),
        ("norm_kernel", "step.mlp", 18_301, 3),
        ("add_kernel", "step", 15_000, 3),
    ]
    assert [row["stated_flops"] for row in rows] == [200_000_000_000, 10_000_000, None]
    assert timeline.untimed
    assert sum(row["dur_ns"] for row in rows) == summed(json.loads(path.read_text())[:1])
    assert timeline.meta.ingest.skipped == {"work of Proton's own": 1}


def test_a_tree_says_nothing_of_gaps_steps_and_neighbours(tmp_path: Path) -> None:
    found = scan(_written(tmp_path))
    assert found.summary.per_step is None
    assert found.summary.bound is not None
    assert found.summary.bound.by == "sums"
    assert not [each for each in found.findings if not each.on_gpu or len(each.ops) > 1]
    assert any("holds sums" in each for each in found.warnings)


def test_the_first_screen_says_that_times_are_summed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(_written(tmp_path)), "--quiet"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("GPU time summed (a tree has no timeline): ")
    assert "274 µs of GPU time in all" in text


def test_no_report_says_when_kernels_ran_how_often_or_what_sets_the_pace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, said = str(_written(tmp_path)), ""
    for call in (["scan"], ["scan", "--all"], ["explain", "1"]):
        assert main([*call[:2], trace, "--quiet"]) == 0
        said += " ".join(capsys.readouterr().out.split())
    assert main(["scan", trace, "--quiet", "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert "what the step gains, sums do not say" in said
    assert "can save GPU " in said
    assert "there is no timeline to draw" in page
    assert "cost once" not in said
    for text in (said, page):
        assert not re.search(r"sets (?:its|the) pace|save 0 ns", text)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "NVIDIA H200 SXM"),
        ({"bus_width": 5120, "memory_clock_rate": 2619000}, "NVIDIA H100 SXM"),
        ({"num_sms": 16}, None),
        ({"memory_clock_rate": 1000}, None),
        ({"arch": "gfx942", "num_sms": 304}, None),
        ({"arch": None}, None),
        (_CDNA3, "AMD Instinct MI300X"),
        (_CDNA3 | {"memory_clock_rate": 1_500_000}, "AMD Instinct MI325X"),
    ],
)
def test_the_gpu_is_told_by_its_measures_or_not_named(
    tmp_path: Path, changes: dict[str, object], name: str | None
) -> None:
    timeline = open_trace(tree(tmp_path, node("k", time=5, count=1), device=H200 | changes))
    assert [device.name for device in timeline.meta.devices] == [name]
    assert any("is taken for" in each for each in timeline.meta.ingest.warnings) == (name is not None)


def test_idle_time_is_not_said_to_be_checked_where_none_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tree(tmp_path, node("k", time=5_000, count=1), device=H200 | {"num_sms": 16})
    assert main(["scan", str(path), "--quiet"]) == 0
    text = capsys.readouterr().out
    assert "the trace names no GPU" in text
    assert "idle time" not in text


def test_what_a_scope_states_of_its_only_kernel_is_the_kernels(tmp_path: Path) -> None:
    alone = node("matmul", node("cutlass_kernel", time=50, count=2), bytes=64)
    two = node("pair", node("a", time=9, count=1), node("b", time=8, count=1), bytes=128)
    timeline = open_trace(tree(tmp_path, alone, two))
    assert timeline.activities["stated_bytes"].to_pylist() == [64, None, None]


def test_old_names_of_metrics_and_boards_that_differ_in_name_alone(tmp_path: Path) -> None:
    a100 = {"arch": "80", "bus_width": 5120, "clock_rate": 1410000, "memory_clock_rate": 1512000, "num_sms": 108}
    kernel = node("matmul_kernel") | {"metrics": {"Time (ns)": 5_000, "Count": 4, "DeviceId": "0"}}
    found = scan(tree(tmp_path, kernel, device=a100))
    assert found.trace.gpu == "NVIDIA A100 80 GB PCIe"  # the A800 of that form is the same for all that is estimated
    assert not [warning for warning in found.warnings if "device table" in warning]
    assert open_trace(tmp_path / "run.hatchet").activities.to_pylist()[0]["calls"] == 4
