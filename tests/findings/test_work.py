"""Kernels by class: all of GPU time, each once."""

from __future__ import annotations

from pathlib import Path

from tracemine.pipeline import scan

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_classes_hold_all_gpu_time_of_a_step() -> None:
    found = scan(FIXTURES / "captures" / "chain")
    assert found.spent is not None
    assert found.summary.per_step is not None
    assert found.spent.made_by == "PyTorch"
    assert abs(sum(one.gpu_ns for one in found.spent.work) - sum(found.spent.gpu_ns.values())) < 1_000
    assert not any(one.fused for one in found.spent.work)
