"""Single chains from their traces, as benchmarks/ tells them (prediction): what is written, scored and found wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
GPU = "NVIDIA H200"
SIDE = 4096
SIZE = 2 * SIDE * SIDE


@pytest.fixture(scope="module")
def chains() -> Any:
    from benchmarks.predictions import prediction_chains

    return prediction_chains


@pytest.fixture(scope="module")
def traces(chains: Any) -> Any:
    from benchmarks.predictions import point_traces

    return point_traces


def adamw(parameter: Any, gradient: Any, mean: Any, square: Any) -> None:
    mean.mul_(0.9).add_(gradient, alpha=0.1)
    square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
    steps = (mean / 0.1) / ((square / 0.001).sqrt() + 1e-8)
    parameter.mul_(0.999)
    parameter.sub_(steps * 1e-3)


def traffic(traces: Any, folder: Path, steps: Any, told: bool) -> list[int]:
    """Bytes that each step's groups read and write as one kernel."""
    from tracemine.pipeline import analyse

    path = traces.write_trace(folder / str(told), GPU, steps, [25_000] * steps[0].kernels, told)
    groups = analyse(path).groups
    return [groups.kernels[kernel].nbytes for kernel in groups.kernel.tolist()]


def tensors(count: int, dtype: Any) -> list[Any]:
    with torch.device("meta"):
        return [torch.empty(SIDE, SIDE, dtype=dtype) for _ in range(count)]


@pytest.mark.parametrize("told", [False, True])
def test_swiglu_moves_three_tensors_and_what_is_centred_two(traces: Any, tmp_path: Path, told: bool) -> None:
    for name, moved in (("swiglu", 3), ("mean_centre", 2), ("dequant", 1.5), ("transpose_bias", 2)):
        steps = traces.operators_of(name, (SIDE, SIDE), "bfloat16")
        found = traffic(traces, tmp_path / name, steps, told)
        assert len(found) == traces.STEPS
        assert all(abs(nbytes - moved * SIZE) < SIZE / 100 for nbytes in found), (name, found)


def test_adamw_moves_seven_tensors(traces: Any, tmp_path: Path) -> None:
    steps = traces.steps_of(adamw, tensors(4, torch.float32))
    assert traffic(traces, tmp_path, steps, True) == [7 * 2 * SIZE] * traces.STEPS
    without = traffic(traces, tmp_path, steps, False)
    assert [nbytes / (2 * SIZE) for nbytes in without[:2]] == [5, 6]  # of the last step it is not seen what is read


def chain(chains: Any, fused: float, **more: Any) -> Any:
    values: dict[str, Any] = {"family": "a", "gpu": GPU, "label": "", "told": False, "kernels": 3, "unfused": 100_000}
    values |= {"fused": fused, "low": 45_000.0, "mid": 50_000.0, "high": 56_000.0, "claimed": True}
    return chains.Chain(**values | more)


def test_intervals_that_hold_nine_in_ten_are_right(chains: Any) -> None:
    held = [chain(chains, 50_000)] * 18
    assert chains.faults([*held, *[chain(chains, 60_000)] * 2]) == []
    assert "held, not" in chains.faults([*held, *[chain(chains, 60_000)] * 6])[0]
    assert "held, not" in chains.faults(held)[0]  # 100 % of them: too wide


def test_a_family_that_is_seldom_held_is_a_fault_and_a_small_one_is_not(chains: Any) -> None:
    held = [chain(chains, 50_000)] * 90
    assert chains.faults([*held, *[chain(chains, 60_000, family="b")] * 9]) == []
    assert any("b: 0% of 10" in one for one in chains.faults([*held, *[chain(chains, 60_000, family="b")] * 10]))


def test_width_and_points_are_faults(chains: Any) -> None:
    wide = [chain(chains, 50_000, low=20_000.0, high=80_000.0)] * 18
    assert any("wide" in one for one in chains.faults([*wide, *[chain(chains, 90_000)] * 2]))
    point = chain(chains, 50_000, low=50_000.0, high=50_000.0)
    assert any(
        "no width" in one for one in chains.faults([*[chain(chains, 50_000)] * 17, point, *[chain(chains, 60_000)] * 2])
    )


def test_a_family_is_not_held_by_what_was_fitted_to_itself(chains: Any) -> None:
    close, far = [chain(chains, 51_000)] * 20, [chain(chains, 70_000, family="b")] * 20
    held, _ = chains.left_out([*close, *far])
    assert held == 0.5
