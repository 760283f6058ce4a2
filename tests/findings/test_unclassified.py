"""Kernels whose class is not known and that take much of the GPU's time are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tracemine import pipeline


def _warnings(tmp_path: Path, *kernels: tuple[str, int]) -> tuple[str, ...]:
    """Return what is noted of kernels that run one after another, each so many microseconds."""
    events: list[dict[str, Any]] = []
    ts = 10
    for number, (name, dur) in enumerate(kernels, 1):
        args = {"device": 0, "stream": 7, "correlation": number}
        call = {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 1,
            "tid": 1,
            "ts": number,
            "dur": 1,
        }
        events += [call | {"args": {"correlation": number}}]
        events += [{"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}]
        ts += dur
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return pipeline.scan(path).warnings


def test_kernels_of_no_known_class_are_named_most_first(tmp_path: Path) -> None:
    warnings = _warnings(tmp_path, ("ampere_sgemm_128x64_nn", 800), ("my_secret", 50), ("other_secret", 150))
    says = "What these kernels do is not known, for 20.0% of GPU time: other_secret (15.0%), my_secret (5.0%)."
    assert says in warnings


@pytest.mark.parametrize("unknown_us", [0, 90])
def test_kernels_that_take_little_are_not_named(tmp_path: Path, unknown_us: int) -> None:
    warnings = _warnings(tmp_path, ("ampere_sgemm_128x64_nn", 910), ("my_secret", unknown_us))
    assert not any("is not known, for" in warning for warning in warnings)


def test_communication_of_a_fork_is_known(tmp_path: Path) -> None:
    warnings = _warnings(tmp_path, ("void dpsk::ep::internode::dispatch<4>(int)", 900), ("my_secret", 50))
    assert not any("is not known, for" in warning for warning in warnings)
