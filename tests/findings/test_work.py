"""Kernels by class: all of GPU time, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.rocpd.make import Recording
from tracemine.pipeline import scan

FIXTURES = Path(__file__).parents[2] / "fixtures"


def test_classes_hold_all_gpu_time_of_a_step() -> None:
    found = scan(FIXTURES / "captures" / "chain")
    assert found.spent is not None
    assert found.summary.per_step is not None
    assert found.spent.made_by == "PyTorch"
    assert abs(sum(one.gpu_ns for one in found.spent.work) - sum(found.spent.gpu_ns.values())) < 1_000
    assert not any(one.fused for one in found.spent.work)


@pytest.mark.parametrize(("kernel", "maker"), [("void at::native::copy_kernel", "PyTorch"), ("my_hip_kernel", "")])
def test_kernels_are_pytorchs_where_something_tells(tmp_path: Path, kernel: str, maker: str) -> None:
    """What rocprofv3 records may be any program's: its operators and kernels tell."""
    run = Recording(tmp_path)
    for at in (1_000_000, 2_000_000, 3_000_000):
        run.kernel(kernel, at, 50_000, run.call("hipLaunchKernel", at - 20_000, 8_000))
    spent = scan(run.written()).spent
    assert spent is not None
    assert spent.made_by == maker
