"""What is said of a trace's GPU: a partition, a count that is none of the product's, a GPU of another kind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tracemine import pipeline
from tracemine.findings.record import Scan


def _scanned(tmp_path: Path, *, runtime: str = "cuda_runtime", **properties: Any) -> Scan:
    """Return the scan of two kernels on a GPU that the header describes so; without properties it says nothing."""
    events: list[dict[str, Any]] = []
    for number in (1, 2):
        args = {"device": 0, "stream": 7, "correlation": number}
        call = {"ph": "X", "cat": runtime, "name": "launchKernel", "pid": 1, "tid": 1, "ts": number, "dur": 1}
        events += [call | {"args": {"correlation": number}}]
        events += [
            {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": number * 100, "dur": 50, "args": args}
        ]
    header = {"deviceProperties": [{"id": 0, **properties}]} if properties else {}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))
    return pipeline.scan(path)


def test_a_partition_is_called_one_and_estimated_for(tmp_path: Path) -> None:
    found = _scanned(tmp_path, name="AMD Instinct MI300X", numSms=38)
    assert found.trace.estimated_for == "AMD Instinct MI300X, 38 of 304 multiprocessors"
    assert any(warning.startswith("The GPU is a partition (MIG, CPX): ") for warning in found.warnings)
    assert not any("device table" in warning for warning in found.warnings)


def test_a_whole_gpu_is_no_partition(tmp_path: Path) -> None:
    found = _scanned(tmp_path, name="AMD Instinct MI300X", numSms=304)
    assert found.trace.estimated_for == "AMD Instinct MI300X"
    assert not any("partition" in warning for warning in found.warnings)


def test_a_count_unlike_the_tables_is_said(tmp_path: Path) -> None:
    found = _scanned(tmp_path, name="NVIDIA H100 80GB HBM3", numSms=304)
    assert found.trace.estimated_for is None
    assert any("304 multiprocessors, unlike the device table's 132" in warning for warning in found.warnings)


def test_an_xpu_is_named_without_advice_for_cuda(tmp_path: Path) -> None:
    found = _scanned(tmp_path, runtime="xpu_runtime")
    assert found.trace.gpu == "Intel XPU"
    said = " ".join(found.warnings)
    assert "the GPU is an XPU (Intel XPU), of which no rates are known" in said
    assert not any(word in said for word in ("h100", "mi300x", "CUDA"))


def test_a_gpu_without_a_name_is_not_taken_for_an_xpu(tmp_path: Path) -> None:
    found = _scanned(tmp_path)
    assert found.trace.gpu is None
    assert any("--gpu NAME says which it was, such as --gpu h100" in warning for warning in found.warnings)


FIXTURE = Path(__file__).parents[2] / "fixtures" / "kineto" / "chain.json.gz"


def _renamed(tmp_path: Path, name: str, without: str = "") -> Scan:
    """Return the scan of a recording whose header names its GPU so, and says nothing that begins with `without`."""
    trace = json.loads(gzip.decompress(FIXTURE.read_bytes()))
    for device in trace["deviceProperties"]:
        device["name"] = name
        for key in [each for each in device if without and each.startswith(without)]:
            del device[key]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(trace))
    return pipeline.scan(path)


def _saved(scan: Scan) -> tuple[int, int, int]:
    (chain,) = [each for each in scan.findings if each.rule == "memory_bound_chain"]
    return chain.gpu_saving_ns.low, chain.gpu_saving_ns.mid, chain.gpu_saving_ns.high


def test_a_gpu_that_is_not_in_the_table_is_guessed_wider_and_said_to_be(tmp_path: Path) -> None:
    known, guessed = _renamed(tmp_path, "NVIDIA H200"), _renamed(tmp_path, "NVIDIA H200 ULTRA")
    assert known.trace.estimate_guessed_from is None
    assert guessed.trace.estimate_guessed_from == "NVIDIA H200 NVL"  # of two alike, the first by name
    assert sum("are a guess by the NVIDIA H200 NVL" in warning for warning in guessed.warnings) == 1
    assert not any("a guess" in warning for warning in known.warnings)
    (low, mid, high), (least, some, most) = _saved(known), _saved(guessed)
    assert 0.5 * mid < some < 1.5 * mid
    assert least < low
    assert most > high


def test_a_gpu_of_which_the_generation_is_not_recorded_gets_no_guess(tmp_path: Path) -> None:
    found = _renamed(tmp_path, "NVIDIA H200 ULTRA", without="compute")
    assert found.trace.estimated_for is None
    assert found.trace.estimate_guessed_from is None
    assert any("is not in the device table: savings of GPU time are not estimated" in text for text in found.warnings)


def test_a_gpu_that_triton_takes_not_is_told_so(tmp_path: Path) -> None:
    for major, said in ((6, True), (7, False)):
        found = _scanned(tmp_path, name="Tesla", computeMajor=major, computeMinor=0)
        assert any("torch.compile makes no kernels for this GPU" in warning for warning in found.warnings) is said
