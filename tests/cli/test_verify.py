"""`tracemine verify` as its users meet it, on a machine without a GPU."""

from __future__ import annotations

import ast
import errno
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attack.harness import PWNED
from tests.attack.test_surroundings import planted
from tests.verdicts.test_verdict import VALIDATION, judged, ran
from tracemine.codegen import GraphBuilder
from tracemine.errors import Location, UsageError
from tracemine.findings.record import GRAPH, Finding
from tracemine.report import Drawing
from tracemine.report.verdicts import render
from tracemine.validate.record import Mutant
from tracemine.validate.sandbox import Sandbox, refused
from tracemine.verdicts.verdict import StepVerdict, Verdict, Verdicts, merged
from tracemine.verify import pipeline
from tracemine.verify.repro.emitter import Emitter
from tracemine.verify.run import VerifyRun
from tracemine.version import __version__

ROOT = Path(__file__).parent.parent.parent
CHAIN = ROOT / "fixtures" / "captures" / "chain"
PREFILL = ROOT / "fixtures" / "kineto" / "decoder_prefill.json.gz"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "gpu_name", lambda: None)


def test_quick_needs_a_gpu_to_be_quicker_and_does_no_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[object] = []
    monkeypatch.setattr(pipeline, "needed", lambda: None)
    monkeypatch.setattr(pipeline, "has_driver", lambda: False)
    monkeypatch.setattr("tracemine.verify.workers.quick.Quick.__init__", begun.append)
    monkeypatch.setattr("tracemine.verify.run.verify", lambda *_, **__: iter(()))
    assert run("verify", CHAIN, "--quick", "--quiet")[0] == 0
    assert begun == []
    code, _, said = run("verify", CHAIN, "--quick", "--step", "--quiet")
    assert (code, "--quick and --step do not go together" in said) == (2, True)


def test_a_capture_is_proved_on_a_cpu_from_end_to_end(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    code, out, _ = run("verify", CHAIN, "--format", "json", "--emit", tmp_path / "emitted", "-o", tmp_path)
    assert code == 0
    found = json.loads(out)
    (verdict,) = found["verdicts"]
    assert found["gpu"] is None
    assert verdict["level"] == "L2"
    assert verdict["validation"]["trials"] > 10
    assert verdict["validation"]["faults"] == []
    assert verdict["measured_ns"] is None
    assert verdict["predicted_ns"]["mid"] > 0
    assert [text[:2] for text in verdict["not_tested"]] == ["L1", "L3", "L4", "L5", "L6"]
    assert json.loads((tmp_path / "verdicts.json").read_text()) == found
    assert pq.ParquetFile(tmp_path / "verdicts.parquet").read().column("level").to_pylist() == ["L2"]
    path, harness = sorted((tmp_path / "emitted").iterdir())
    assert path.name == f"{verdict['fingerprint']}_memory_bound_chain_LogReluBias.py"
    assert path.read_text() == verdict["source"]
    assert harness.name == "tracemine_repro.py"
    assert _imports(path) == {"tracemine_repro"}  # which has torch and triton
    # pynvml is asked for clocks where it is there, numpy by Triton's interpreter.
    assert _imports(harness) - sys.stdlib_module_names <= {"torch", "triton", "pynvml", "numpy"}


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def test_findings_of_a_file_are_verified_in_the_trace_that_they_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    code, out, err = run("verify", path)
    assert code == 0
    assert "no GPU" in err
    assert "not asked for" in out
    assert (tmp_path / "findings.verdicts.parquet").is_file()
    code, out, _ = run("verify", path, "--rule", "rotary_unfused")
    assert code == 0
    assert "1 finding of other rules" in " ".join(out.split())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Findings that would be verified, by what they are; nothing is rebuilt."""
    found: list[str] = []

    def verified(findings: Sequence[Finding], *_: object, **__: object) -> VerifyRun:
        found[:] = [finding.rule for finding in findings]
        return VerifyRun(verdicts=())

    monkeypatch.setattr("tracemine.verify.run.verified", verified)
    monkeypatch.setattr(pipeline, "needed", lambda: None)
    return found


def test_one_finding_is_meant_by_its_number_its_name_or_that_of_a_variant(
    run: Run, kept: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "findings.json"
    assert run("scan", PREFILL, "-q", "--format", "json", "-o", path)[0] == 0
    assert run("verify", PREFILL, "-q")[0] == 0
    every = list(kept)
    assert len(set(every)) > 1
    norm = next(one for one in json.loads(path.read_text())["findings"] if one["rule"] == "rmsnorm_unfused")
    variant = norm["variants"][0]["identity"]["finding"]
    for given in (PREFILL, path):
        for mark in ("1", norm["fingerprint"], norm["fingerprint"][:6], variant):
            code, out, _ = run("verify", given, "-q", "--finding", mark)
            assert (code, set(kept)) == (0, {"rmsnorm_unfused"}), mark
            assert len(kept) == len(norm["variants"])
            assert "others than --finding" in " ".join(out.split())


def test_a_finding_that_no_kernel_fixes_leaves_nothing_to_verify(run: Run, kept: list[str]) -> None:
    assert run("verify", PREFILL, "-q", "--finding", "3")[0] == 0  # the launch gaps
    assert kept == []


@pytest.mark.parametrize("mark", ["0", "99", "abc", "zzzzzzzz"])
def test_a_finding_that_is_none_is_refused_before_anything_is_verified(run: Run, kept: list[str], mark: str) -> None:
    kept.append("not called")
    code, out, err = run("verify", PREFILL, "-q", "--finding", mark)
    assert (code, out, kept) == (2, "", ["not called"])
    assert err.startswith("--finding: ")


def test_a_bug_that_a_finding_came_upon_is_said_at_the_end_and_told_by_the_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: 1 // 0)
    code, out, err = run("verify", CHAIN, "--format", "json")
    assert code == 3
    assert json.loads(out)["verdicts"][0]["bug"].endswith("ZeroDivisionError: integer division or modulo by zero")
    assert f"tracemine {__version__} has a bug, which 1 finding came upon; the first is a bug in tracemine: " in err
    assert "TRACEMINE_DEBUG=1" in err


def test_a_bug_that_the_step_came_upon_costs_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.verify.step.pipeline.prepared", lambda *_: 1 // 0)
    code, out, err = run("verify", CHAIN, "--format", "json", "--step")
    found = json.loads(out)
    assert (code, len(found["verdicts"]), found["step"]) == (3, 1, None)
    assert found["warnings"][-1].startswith("no step was replayed: a bug in tracemine: ")
    assert "has a bug, which the step came upon; the first is" in err


def _verdict(fingerprint: str, **known: Any) -> Verdict:
    return msgspec.structs.replace(judged(**known), fingerprint=fingerprint)


def test_verdicts_join_those_of_before_and_what_was_timed_stays_where_there_is_no_gpu() -> None:
    timed, validated = _verdict("a" * 16, ran=ran()), _verdict("b" * 16, validation=VALIDATION)
    before = Verdicts(trace="t", gpu="G", verdicts=(timed, validated), skipped={"beyond_top": 3})
    again, new = _verdict("b" * 16, validation="too large"), _verdict("c" * 16, validation=VALIDATION)
    now = Verdicts(trace="t", gpu=None, verdicts=(_verdict("a" * 16, validation=VALIDATION), again, new), skipped={})
    found = merged(before, now)
    assert (found.gpu, found.verdicts, found.skipped) == ("G", (timed, again, new), {})
    on_gpu = msgspec.structs.replace(now, gpu="G")
    assert merged(before, on_gpu).verdicts == now.verdicts


def test_a_file_of_verdicts_beside_the_findings_is_added_to_and_never_lost(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    path, beside = tmp_path / "findings.json", tmp_path / "findings.verdicts.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    before = Verdicts(trace="t", gpu="G", verdicts=(_verdict("a" * 16, ran=ran()),), skipped={})
    beside.write_bytes(msgspec.json.encode(before))
    assert run("verify", path)[0] == 0
    found = msgspec.json.decode(beside.read_bytes(), type=Verdicts)
    assert found.verdicts[0] == before.verdicts[0]
    assert len(found.verdicts) == 2
    assert pq.ParquetFile(beside.with_suffix(".parquet")).read().num_rows == 2
    monkeypatch.setattr(pipeline, "gpu_name", lambda: "another GPU")
    for content, says in (
        (beside.read_text(), "its verdicts are of another GPU, G"),
        ("{}", "is not what verify wrote"),
    ):
        beside.write_text(content)
        code, _, err = run("verify", path)
        assert (code, says in err, len(err.splitlines())) == (2, True, 2)
        assert beside.read_text() == content


def test_what_is_missing_is_said_with_the_command_that_helps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = run("verify", CHAIN)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "verify needs torch and triton, which this Python does not have",
        "  hint: pip install torch triton",
    ]


def test_findings_whose_trace_is_gone_are_an_error_of_one_line(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    path.write_text(path.read_text().replace(str(CHAIN), "/nowhere/trace.json"))
    code, _, err = run("verify", path)
    assert code == 2
    assert err.startswith(f"{path}: its trace /nowhere/trace.json is not there")


def test_findings_name_the_execution_trace_that_they_were_found_with(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    trace, beside, path = tmp_path / "lean.json.gz", tmp_path / "tensors.json.gz", tmp_path / "findings.json"
    shutil.copy(CHAIN / "trace.json.gz", trace)
    shutil.copy(CHAIN / "et.json.gz", beside)
    assert run("scan", trace, "--et", beside, "--format", "json", "-o", path)[0] == 0
    assert json.loads(path.read_text())["trace"]["execution_trace"] == str(beside)
    code, out, _ = run("verify", path, "--format", "json", "--time-limit", "0.001")
    assert (code, json.loads(out)["verdicts"][0]["evidence"]) == (0, "proven")
    moved = path.read_text().replace(str(beside), "elsewhere/tensors.json.gz")
    path.write_text(moved)  # found beside the findings
    assert json.loads(run("verify", path, "--format", "json", "--time-limit", "0.001")[1])["verdicts"][0]["evidence"]
    beside.unlink()
    code, _, err = run("verify", path)
    assert code == 2
    assert err.startswith(f"{path}: its execution trace elsewhere/tensors.json.gz is not there")
    path.write_text(moved.replace("elsewhere/tensors.json.gz", "\\u0000"))  # no path at all
    assert run("verify", path)[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [("--format", "pdf"), ("--top", "-1"), ("--time-limit", "0"), ("--time-limit", "nan")],
    ids=lambda a: a[0],
)
def test_a_wrong_call_is_an_error(run: Run, arguments: tuple[str, str]) -> None:
    assert run("verify", CHAIN, *arguments)[0] == 2


def test_a_fingerprint_from_a_file_names_no_other_file(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    found = json.loads(path.read_text())
    for finding in found["findings"]:
        for variant in finding["variants"]:
            variant["identity"]["finding"] = "../../evil"
    path.write_text(json.dumps(found))
    code, _, err = run("verify", path, "--emit", tmp_path / "emitted")
    assert code == 2
    assert "is no fingerprint" in err


def test_a_fingerprint_that_is_another_findings_has_no_verdict(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN.parent / "decoder_prefill", "--format", "json", "-o", path)[0] == 0
    found = json.loads(path.read_text())
    assert run("verify", path, "--top", "0", "--format", "json", "-o", tmp_path / "own")[0] == 0
    own = {
        v["fingerprint"]: v["says"] for v in json.loads((tmp_path / "own" / "verdicts.json").read_text())["verdicts"]
    }
    marks = list(own)
    others = dict(zip(marks, [*marks[1:], "0123456789abcdef"], strict=True))
    for identity in (variant["identity"] for finding in found["findings"] for variant in finding["variants"]):
        identity["finding"] = others.get(identity["finding"], identity["finding"])
    path.write_text(json.dumps(found))
    code, out, _ = run("verify", path, "--top", "0", "--format", "json")
    said = "its fingerprint is another finding's: scan the trace again"
    assert (code, said in own.values()) == (0, False)
    assert {v["says"] for v in json.loads(out)["verdicts"]} == {said}


def test_findings_of_version_1_are_verified_under_the_fingerprints_that_they_had(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    found = json.loads(path.read_text())
    found["schema_version"] = 1
    for finding in found["findings"]:
        (variant,) = finding.pop("variants")
        (finding["fingerprint"],) = variant["identity"]["aliases"]
        for name in ("identity", "cause", "per_step", "reported"):
            del finding[name]
    path.write_text(json.dumps(found))
    fused = [finding["fingerprint"] for finding in found["findings"] if finding["fused_ns"] is not None]
    code, out, _ = run("verify", path, "--format", "json")
    verdicts = json.loads(out)["verdicts"]
    assert (code, [verdict["fingerprint"] for verdict in verdicts]) == (0, fused)
    assert fused
    assert not any("another finding's" in verdict["says"] for verdict in verdicts)


def test_findings_of_a_file_that_name_no_kernel_have_no_verdict(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    found = json.loads(path.read_text())
    for finding in found["findings"]:
        finding |= {"activities": [[]], "kernels": [], "variants": []}
    path.write_text(json.dumps(found))
    code, out, err = run("verify", path, "--step", "--format", "json")
    assert (code, "Traceback" in err) == (0, False)
    assert {verdict["level"] for verdict in json.loads(out)["verdicts"]} == {"L0"}


def test_findings_of_another_trace_get_no_verdict_of_its_kernels(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    path = tmp_path / "findings.json"
    other = CHAIN.parent / "decoder_prefill"
    assert run("scan", CHAIN.parent / "decoder_decode", "--format", "json", "-o", path)[0] == 0
    path.write_text(path.read_text().replace("decoder_decode", other.name))
    code, out, _ = run("verify", path, "--format", "json")
    assert code == 0
    verdicts = json.loads(out)["verdicts"]
    assert verdicts
    assert {verdict["level"] for verdict in verdicts} == {"L0"}
    assert {verdict["says"] for verdict in verdicts} == {
        "its kernels are not in this trace: the findings are another trace's"
    }


@pytest.mark.parametrize("option", ["--emit", "-o"])
def test_a_folder_that_cannot_be_written_to_is_said_before_anything_is_proved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: pytest.fail("it was proved"))
    (tmp_path / "file").write_text("")
    code, out, err = run("verify", CHAIN, option, tmp_path / "file")
    assert (code, out) == (2, "")
    assert err == f"{tmp_path / 'file'}: is a file, not a folder\n"


def test_a_folder_beside_findings_that_cannot_be_written_to_is_said_before_anything_is_proved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")

    def full(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    path = tmp_path / "findings.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: pytest.fail("it was proved"))
    monkeypatch.setattr(sys.modules["tracemine.cli.verify"], "TemporaryFile", full)
    code, out, err = run("verify", path)
    assert (code, out) == (2, "")
    assert (
        err == f"{tmp_path}: cannot be written to: Read-only file system\n  hint: name another folder with --output\n"
    )


def test_a_rule_that_is_not_there_is_an_error(run: Run) -> None:
    pytest.importorskip("triton")
    code, out, err = run("verify", CHAIN, "--rule", "nope")
    assert (code, out) == (2, "")
    assert "there is no rule 'nope'" in err


def test_what_was_proved_before_an_interruption_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    answers = iter(["not asked for"])

    def prove(*_: object) -> str:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    code, out, _ = run("verify", CHAIN.parent / "decoder_prefill", "--top", "3", "-o", tmp_path)
    assert code == 130
    assert "2 findings left when it ended" in " ".join(out.split())
    assert len(json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]) == 1


def test_what_was_proved_before_the_disk_was_full_is_kept(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    stock, count = Emitter.write, itertools.count()

    def full(self: Emitter, name: str, text: str) -> None:
        if next(count) == 3:
            raise UsageError("cannot be written: No space left on device", where=Location(name))
        stock(self, name, text)

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.codegen.triton.resources.Compiler.resources", lambda *_: [])
    monkeypatch.setattr(pipeline, "at_once", lambda **_: 1)
    monkeypatch.setattr(Emitter, "write", full)
    code, out, err = run("verify", CHAIN.parent / "decoder_prefill", "-o", tmp_path, "--emit", tmp_path / "emitted")
    assert code == 2
    assert ".py: cannot be written: No space left on device\n" in err
    assert "left when it ended" in " ".join(out.split())
    assert json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]


def test_verdicts_are_written_where_they_cannot_be_printed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")

    def full(_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr(sys.modules["tracemine.cli.verify"], "write", full)
    code, out, err = run("verify", CHAIN, "-o", tmp_path)
    assert (code, out) == (2, "")
    assert err.endswith("No space left on device\n")
    assert json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]


def test_a_run_that_is_told_to_end_keeps_what_it_proved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    asked, told = itertools.count(), threading.Event()

    def prove(*_: object) -> str:
        if next(asked):
            os.kill(os.getpid(), signal.SIGTERM)
            told.wait(30)
        return "not asked for"

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.answer", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.kill", lambda _: told.set())
    monkeypatch.setattr(pipeline, "at_once", lambda **_: 1)
    before = signal.getsignal(signal.SIGTERM)
    code, _, _ = run("verify", CHAIN.parent / "decoder_prefill", "--top", "3", "-o", tmp_path)
    assert code == 130
    assert len(json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_two_runs_at_once_lose_no_verdict(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    other = Verdicts(trace="t", gpu=None, verdicts=(_verdict("0" * 16),), skipped={})

    def prove(*_: object) -> str:
        (tmp_path / "verdicts.json").write_bytes(msgspec.json.encode(other))  # another run ends
        return "not asked for"

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    assert run("verify", CHAIN, "-o", tmp_path)[0] == 0
    written = json.loads((tmp_path / "verdicts.json").read_text())["verdicts"]
    assert [v["fingerprint"] == "0" * 16 for v in written] == [True, False]
    assert pq.ParquetFile(tmp_path / "verdicts.parquet").read().num_rows == 2


@pytest.mark.parametrize("end", ["json", "parquet"])
@pytest.mark.parametrize("asked", [False, True], ids=["beside findings", "in a folder"])
def test_verdicts_are_not_written_through_links(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, asked: bool
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: pytest.fail("it was proved"))
    findings, precious = tmp_path / "findings.json", tmp_path / "precious"
    assert run("scan", CHAIN, "--format", "json", "-o", findings)[0] == 0
    place = tmp_path / (f"verdicts.{end}" if asked else f"findings.verdicts.{end}")
    place.symlink_to(precious)
    for content in (None, "mine"):
        if content is not None:
            precious.write_text(content)
        code, out, err = run("verify", findings, *(("-o", tmp_path) if asked else ()))
        assert (code, out) == (2, "")
        assert err == f"{place}: is a link, and is not written through\n  hint: move it away\n"
        assert precious.exists() == (content is not None)
    assert precious.read_text() == "mine"


def test_a_link_that_comes_while_it_is_proved_is_not_written_through(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    (tmp_path / "precious").write_text("mine")

    def prove(*_: object) -> str:
        (tmp_path / "out" / "verdicts.parquet").symlink_to(tmp_path / "precious")
        return "not asked for"

    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", prove)
    assert run("verify", CHAIN, "-o", tmp_path / "out")[0] == 2
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize("content", ["text", "another table", "of another version"])
def test_a_file_that_is_no_table_of_verdicts_is_left_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    pytest.importorskip("triton")
    place = tmp_path / "verdicts.parquet"
    if content == "text":
        place.write_text("mine")
    else:
        mark = {"tracemine.verdicts": "0"} if content == "of another version" else None
        pq.write_table(pa.table({"a": [1]}).replace_schema_metadata(mark), place)
    before = place.read_bytes()
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: pytest.fail("it was proved"))
    code, out, err = run("verify", CHAIN, "-o", tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        f"{place}: is no table of verdicts of this version, and would be written over\n"
        "  hint: move it away, or name a folder with --output\n"
    )
    assert place.read_bytes() == before


def test_an_output_folder_may_be_a_link_and_its_verdicts_are_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.codegen.triton.resources.Compiler.resources", lambda *_: [])
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for _ in range(2):
        code, _, err = run("verify", CHAIN, "-q", "-o", tmp_path / "link", "--emit", tmp_path / "link")
        assert (code, err) == (0, "")
    assert (tmp_path / "link").is_symlink()
    assert {path.suffix for path in (tmp_path / "real").iterdir()} == {".json", ".parquet", ".py"}


def test_a_reproduction_is_not_written_through_a_link(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    monkeypatch.setattr("tracemine.codegen.triton.resources.Compiler.resources", lambda *_: [])
    assert run("verify", CHAIN, "--emit", tmp_path / "emitted")[0] == 0
    path, _ = sorted((tmp_path / "emitted").iterdir())
    path.rename(tmp_path / "precious")
    content = (tmp_path / "precious").read_text()
    (tmp_path / "precious").write_text("mine")
    path.symlink_to(tmp_path / "precious")
    code, _, err = run("verify", CHAIN, "--emit", tmp_path / "emitted")
    assert code == 2
    assert f"{path}: is a link, and is not written through\n" in err
    assert (tmp_path / "precious").read_text() == "mine"
    path.unlink()
    path.write_text("of before")
    assert run("verify", CHAIN, "--emit", tmp_path / "emitted")[0] == 0
    assert path.read_text() == content


def test_a_reproduction_for_which_there_is_no_room_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "emitted").mkdir()
    (tmp_path / "emitted" / "old.py").write_text("of before")
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tracemine.verify.repro.emitter import write\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "for name in ('new.py', 'old.py'):\n"
        "    try: write(Path(sys.argv[1]), name, 'x = 1\\n' * 10_000)\n"
        "    except Exception as error: print(error.message)\n"
    )
    folder = str(tmp_path / "emitted")
    said = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, cwd=ROOT, check=True)
    assert said.stdout == "cannot be written: File too large\n" * 2
    assert [path.name for path in (tmp_path / "emitted").iterdir()] == ["old.py"]
    assert (tmp_path / "emitted" / "old.py").read_text() == "of before"


def test_where_there_is_nothing_to_verify_it_says_so_and_its_verdicts_are_evidence_of_nothing(
    run: Run, tmp_path: Path
) -> None:
    pytest.importorskip("triton")
    clean = CHAIN.parent / "clean_gemms"
    code, out, _ = run("verify", clean, "-o", tmp_path)
    assert code == 0
    assert "no finding to verify" in out
    assert "levels:" not in out
    for file in ("verdicts.json", "verdicts.parquet"):
        code, out, err = run("scan", clean, "--all", "--evidence", tmp_path / file)
        assert code == 0
        assert "no verdicts" in out
        assert "nothing to verify" in err


def test_warnings_are_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    code, out, _ = run("verify", CHAIN)
    assert code == 0
    warnings = json.loads(run("verify", CHAIN, "--format", "json")[1])["warnings"]
    assert warnings
    for warning in warnings:
        assert warning in " ".join(out.split())


def test_findings_that_were_printed_prettily_are_read(run: Run, tmp_path: Path) -> None:
    path, pretty = tmp_path / "findings.json", tmp_path / "pretty.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    pretty.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert run("scan", pretty) == run("scan", path)


def test_wrong_kernels_that_were_not_found_out_are_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    tried = (Mutant("bound late", "mask = row <= rows", killed_by="reads"), Mutant("cast", "  x = y  "))
    b = GraphBuilder("none")
    none = refused(b.done(b.call("aten::relu", b.input("x", (1,), "float32"))), "")
    validation = msgspec.structs.replace(none, refused=None, mutants=(*tried, Mutant("a", "b", equivalent="c")))
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: validation)
    code, out, _ = run("verify", CHAIN, "--mutants")
    assert code == 0
    assert "1 of 2 wrong kernels found out\n" in out
    assert "not found out: cast: x = y\n" in out


def test_findings_and_verdicts_that_are_mistaken_for_each_other_are_distinguished(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.validate.sandbox.Sandbox.validate", lambda *_: "not asked for")
    path, verdicts = tmp_path / "findings.json", tmp_path / "findings.verdicts.json"
    assert run("scan", CHAIN, "--format", "json", "-o", path)[0] == 0
    assert run("verify", path)[0] == 0
    for command in ("verify", "scan"):
        code, out, err = run(command, verdicts)
        assert (code, out) == (2, "")
        assert err.startswith(f"{verdicts}: holds verdicts, not findings\n")
    code, out, err = run("scan", CHAIN, "--evidence", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}: holds findings, not verdicts\n")


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_times_are_whole_at_any_width(width: int) -> None:
    times = {"eager_ns": 21_230, "fused_ns": 5_004, "compiled_ns": 5_200, "copy_ns": 3_100, "saving_ns": 16_226}
    ratio = {"low": 4.1, "ratio": 4.2, "high": 4.3}
    taken = {"device": "a GPU", "state": "cold", "eager_to_fused": ratio, "compiled_to_fused": None, "noise": 0.01}
    of = dict.fromkeys(("evidence", "within_interval", "validation", "replay", "right", "times", "source"))
    claim = {"low": 10_000, "mid": 12_300, "high": 20_000}
    one: dict[str, Any] = {
        "fingerprint": "0" * 16,
        "rule": "r",
        "title": "A chain run as separate operators",
        "level": "L5",
    }
    one |= {"says": "faster", "calls": 12, "predicted_ns": claim, "measured_ns": 16_226, "error_ns": -1_234_567}
    one |= {"measured": {**times, **taken}, "assumptions": (), "not_tested": (), **of}
    found = msgspec.convert({"trace": "t", "gpu": "a GPU", "verdicts": [one], "skipped": {}}, Verdicts)
    out = StringIO()
    render(found, out, Drawing(top=None, width=width, color=False))
    text = " ".join(out.getvalue().split())
    assert "…" not in text
    assert "run as separate operators" in text
    for time in ("12.3 µs", "16.2 µs", "-1.23 ms", "21.2 µs", "5.00 µs"):
        assert time in text
    assert ("5.20 µs" in text) == (width >= 80)


def test_verdicts_read_like_this(golden: Callable[[str, str], None]) -> None:
    """A finding that torch.compile wins, one in a shorter step, one cut short, one with a bug, and launch gaps."""
    pytest.importorskip("triton")
    smaller = ("the CPU validated the same source at smaller sizes",)
    slower = judged(validation=VALIDATION, ran=ran(fused=5_000, compiled=4_000), assumptions=smaller)
    short = ran()
    short["times"]["left_out"] = {"second clock": "no time was left for it"}
    known: list[Verdict] = [
        slower,
        msgspec.structs.replace(
            judged(validation=VALIDATION, ran=ran(), assumptions=smaller), level="L6", says="shorter by 9 µs"
        ),
        judged(validation=VALIDATION, ran=short, assumptions=("a number is not recorded",)),
        msgspec.structs.replace(
            judged(refused="a bug in tracemine: x.py:1: KeyError"), bug="a bug in tracemine: x.py:1"
        ),
        msgspec.structs.replace(judged(refused="the step as a CUDA graph got shorter by 1 ms"), level="L6", by=GRAPH),
    ]
    claim = {"low": -100_000, "mid": 300_000, "high": 500_000}
    change = {"change": "fused", "measured_ns": 200_000, "low_ns": 150_000, "high_ns": 250_000, "replay_ns": 450_000}
    step = {
        "step": "ProfilerStep#1",
        "device": "a GPU",
        "says": "shorter",
        "shorter": True,
        "share": 0.99,
        "launches": 9,
    }
    step |= {
        "replayed_launches": 8,
        "left": [{"reason": "it reads a value back", "calls": 1, "launches": 1, "gpu_ns": 1}],
    }
    step |= {"findings": [], "refused": {"another stands there": 2}, "same_names": 1.0, "recorded_ns": 2_400_000}
    medians = {
        "eager": {"step_ns": 4_400_000, "host_ns": 4_410_000},
        "fused": {"step_ns": 3_950_000, "host_ns": 3_960_000},
    }
    step |= {
        "medians_ns": medians,
        "gpu_ns": {},
        "changes": [change | {"predicted_ns": claim, "within": True, "says": ""}],
    }
    step |= {"right": None, "not_captured": {}, "assumptions": [], "source": None}
    found = Verdicts(
        trace="run/",
        gpu="a GPU",
        verdicts=tuple(known),
        skipped={"beyond_top": 3},
        warnings=("the host was slow",),
        step=msgspec.convert(step, StepVerdict),
        seconds=83.4,
    )
    out = StringIO()
    render(found, out, Drawing(top=None, width=100, color=False))
    golden("verify_100.txt", out.getvalue())


# --- what lies in the current folder, and what does not start --------------------------------------------------------

ROOT = CHAIN.parents[2]


def _started(folder: Path, *arguments: object, path: str) -> subprocess.CompletedProcess[str]:
    """A command line as the console script begins it: the current folder is not searched for modules."""
    command = [sys.executable, "-P", "-m", "tracemine", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["torch", "triton"])
def test_provers_that_cannot_start_are_an_error(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    (tmp_path / "torch.py").touch()  # the library itself takes seconds, and is not come to
    (tmp_path / f"{name}.py").write_text("raise ImportError('broken\\nlibrary')")
    done = _started(tmp_path, "verify", CHAIN, "-q", path=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    said, hint = done.stderr.splitlines()[-2:]
    assert said == "the process that validates kernels does not start: ImportError: broken library"
    assert "pip install torch triton" in hint


def test_a_step_that_cannot_start_is_an_error_where_nothing_had_to_be_proved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    (tmp_path / "torch.py").write_text("raise ImportError('broken')")
    options = ("--step", "--rule", "rotary_unfused", "-q")  # which finds nothing here
    done = _started(tmp_path, "verify", CHAIN, *options, path=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("the step does not start: ImportError: broken\n")


def test_provers_that_cannot_be_started_are_an_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr(
        "tracemine.verify.workers.validators.Sandbox", lambda **how: Sandbox(command=(str(tmp_path / "gone"),))
    )
    code, out, err = run("verify", CHAIN, "-q")
    assert (code, out) == (2, "")
    assert err == f"{tmp_path / 'gone'}: No such file or directory\n"


def _levels(folder: Path, *arguments: object, closed: str) -> list[str]:
    """Levels of the verdicts that a command line leaves in `out`, with streams closed as a shell writes it."""
    command = [sys.executable, "-P", "-m", "tracemine", "verify", *map(str, arguments), "-q", "-o", "out"]
    shell = ["sh", "-c", f'"$@" {closed}', "sh", *command]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [verdict["level"] for verdict in json.loads((folder / "out/verdicts.json").read_text())["verdicts"]]


def test_no_file_of_the_current_folder_is_run_and_no_stream_is_needed(tmp_path: Path) -> None:
    """By none of the processes that it starts: what proves, what compiles for --emit, and the step."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    planted(tmp_path)
    shutil.copytree(CHAIN, tmp_path / "run")
    levels = _levels(tmp_path, "run", "--emit", "em", "--step", closed="<&- >&- 2>&-")
    assert [path.name for path in tmp_path.glob(f"{PWNED}*")] == []
    assert levels == ["L2"]
    assert {path.name for path in (tmp_path / "em").iterdir()} > {"repro_step.py", "tracemine_repro.py"}


def test_verdicts_are_written_where_output_is_closed(tmp_path: Path) -> None:
    clean = CHAIN.parents[1] / "kineto" / "clean_gemms.json.gz"  # nothing has to be proved
    assert _levels(tmp_path, clean, closed=">&-") == []
