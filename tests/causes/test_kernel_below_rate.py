"""Kernels whose program states their bytes, and that take longer than a copy of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.proton.make import Trace, node, tree
from tracemine.devices import device_named
from tracemine.findings import Finding
from tracemine.formats import open_trace
from tracemine.pipeline import ScanOptions, analysed, mined

MB = 1_000_000.0


def _found(path: Path) -> list[Finding]:
    options = None if path.suffix == ".hatchet" else ScanOptions(device=device_named("h200"))
    findings = mined(analysed(open_trace(path)), options).findings
    return [one for one in findings if one.rule == "kernel_below_rate"]


def _trace(folder: Path, dur_us: float, **metrics: float) -> Path:
    trace = Trace()
    for number in range(3):
        at = 500.0 * number
        trace.scope("step", at=at, dur=400.0)
        trace.launched("step", at=at + 10, kernels=[("my_kernel", at + 100, dur_us)], **metrics)
    return trace.written(folder)


def test_a_kernel_slower_than_a_copy_is_named_with_half_of_it_to_win(tmp_path: Path) -> None:
    (finding,) = _found(_trace(tmp_path, 100.0, bytes=128 * MB, flops32=MB))
    assert finding.ops == ("my_kernel",)
    assert finding.occurrences == 3
    saved = finding.gpu_saving_ns
    assert saved.low == 0
    assert saved.mid == pytest.approx(saved.high / 2, abs=3)
    assert 0.5 * finding.measured_ns < saved.high < 0.75 * finding.measured_ns  # a copy takes some 33 µs


def test_a_tree_says_the_same_of_its_sums(tmp_path: Path) -> None:
    kernel = node("my_kernel", time=300_000, count=3, bytes=384 * MB, flops32=3 * MB)
    (of_tree,) = _found(tree(tmp_path, node("step", kernel)))
    (of_trace,) = _found(_trace(tmp_path, 100.0, bytes=128 * MB, flops32=MB))
    assert of_tree.measured_ns == of_trace.measured_ns
    assert of_tree.gpu_saving_ns.mid == pytest.approx(of_trace.gpu_saving_ns.mid, abs=5)


@pytest.mark.parametrize(
    ("dur_us", "metrics"),
    [
        (40.0, {"bytes": 128 * MB, "flops32": MB}),  # as a copy
        (100.0, {"bytes": 128 * MB, "flops16": 2e12}),  # it computes
        (100.0, {"bytes": 128 * MB}),  # nobody says whether it does
        (100.0, {"flops32": MB}),
        (100.0, {}),
    ],
)
def test_near_misses(tmp_path: Path, dur_us: float, metrics: dict[str, float]) -> None:
    assert not _found(_trace(tmp_path, dur_us, **metrics))
