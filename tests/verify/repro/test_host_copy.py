"""Copies from and to pageable memory: what is made of them without a GPU, and what a verdict on one says."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.verdicts.test_evidence import FINDING, H200, printed, put
from tests.verify.repro import emitted
from tests.verify.repro.emitted import run
from tracemine.cli import main
from tracemine.documents.verdict_words import times_text
from tracemine.findings.record import PINNED, Finding
from tracemine.findings.verdicts import judged
from tracemine.verdicts.evidence import read_evidence
from tracemine.verify.gpu.marks import name_digest
from tracemine.verify.repro.host_copy import LARGEST_BYTES, Copy, copy_reproduction, host_copy

TRAINING = Path(__file__).parents[3] / "fixtures" / "captures" / "convnet_train"
MARK = "0123456789abcdef"


def test_a_copy_of_a_trace_is_told_from_kernels_with_its_bytes_and_direction() -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(TRAINING)
    flow, scan = analysis.dataflow, mined(analysis)
    found = {finding.rule: host_copy(finding, flow) for finding in scan.findings if finding.activities}
    assert found.pop("pageable_copy") == ("Memcpy HtoD (Pageable -> Device)", 12_582_912, True)
    assert set(found.values()) == {None}


def test_without_a_gpu_a_copy_is_written_and_not_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    options = ["--rule", "pageable_copy", "--format", "json", "--quiet", "--emit", str(tmp_path)]
    assert main(["verify", str(TRAINING), *options]) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert (verdict["level"], verdict["by"]) == ("L0", PINNED)
    assert verdict["not_tested"][1] == "L2: a copy has no kernel that could be validated on a CPU"
    path, harness = sorted(tmp_path.iterdir())
    assert (path.name, harness.name) == (f"{verdict['fingerprint']}_pageable_copy.py", "tracemine_repro.py")
    assert path.read_text() == verdict["source"]


def reproduction(copy: Copy) -> str:
    return copy_reproduction(FINDING, copy, MARK)


def test_its_file_is_short_and_says_what_it_lacks(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = reproduction(("Memcpy HtoD (Pageable -> Device)", 4096, True))
    assert len(text.splitlines()) < 30
    ran = run(emitted.put(tmp_path, "moved.py", text), "--json")
    assert (ran.returncode, ran.stderr.strip()) == (1, "this needs a GPU, and torch finds none")


def test_no_name_of_a_trace_becomes_code_and_no_size_takes_all_memory() -> None:
    name = 'x"""\nimport os; os.system("true")  # \\'
    text = reproduction((name, 1 << 50, False))
    (call,) = (node.value for node in ast.parse(text).body if isinstance(node, ast.Assign))
    assert isinstance(call, ast.Call)
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg not in ("file",)}
    ((shown, digest, grid),) = given["trace"]
    assert "\n" not in shown
    assert (digest, grid) == (name_digest(name), None)
    assert (given["nbytes"], given["to_device"]) == (LARGEST_BYTES, False)


def test_a_measured_copy_says_pinned_where_a_kernel_is_said_else(tmp_path: Path) -> None:
    found: dict[str, Any] = printed() | {"by": PINNED}
    verified = read_evidence([put(tmp_path / "out.json", found)]).on(FINDING, H200)
    assert verified is not None
    assert (verified.basis, verified.by) == ("measured", PINNED)
    assert "pinned 5.00 µs" in times_text(verified)
    after: Finding = judged(FINDING, verified)
    assert "the share that pinned memory takes off" in after.assumptions[-1]
    assert msgspec.json.decode(msgspec.json.encode(after), type=Finding) == after
