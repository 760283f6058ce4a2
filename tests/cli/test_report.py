"""Findings that were kept, and `scan --evidence`, as their users meet them: verdicts of a GPU machine."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.verdicts.test_evidence import A100, H200, printed

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
TRACE = FIXTURES / "captures" / "decoder_prefill"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Findings of a recording, as scan printed them."""
    from tracemine.cli import main

    path = tmp_path_factory.mktemp("stored") / "findings.json"
    assert main(["scan", str(TRACE), "--format", "json", "-o", str(path)]) == 0
    return path


@pytest.fixture
def findings(stored: Path) -> list[dict[str, Any]]:
    """Variants of those about what the GPU does: findings of one variant first, then most first."""
    found = [f for f in variants(stored.read_text()) if f["fused_ns"] is not None]
    return sorted(found, key=lambda f: f["occurrences"] != f["all_occurrences"])


@pytest.fixture
def results(findings: list[dict[str, Any]], tmp_path: Path) -> Path:
    """A folder of what reproductions printed: the first wins, the second loses, the third ran on another GPU."""
    folder = tmp_path / "results"
    folder.mkdir()
    first, second, third = (f["fingerprint"] for f in findings[:3])
    (folder / f"{first}.json").write_text(json.dumps(printed(first, eager=130_000, fused=13_000, compiled=13_000)))
    (folder / f"{second}.json").write_text(json.dumps(printed(second, eager=58_000, fused=70_000)))
    (folder / f"{third}.json").write_text(json.dumps(printed(third, gpu=A100)))
    (folder / "more.json").write_text(json.dumps(printed("f" * 16)))
    return folder


def variants(out: str) -> list[dict[str, Any]]:
    """What verdicts are of: the variants of all findings, each with the fingerprint that verdicts name."""
    return [
        {**finding, **variant, "fingerprint": variant["identity"]["finding"], "whole": finding["fingerprint"]}
        | {"all_occurrences": finding["occurrences"]}
        for finding in json.loads(out)["findings"]
        for variant in finding["variants"]
    ]


def found_by(out: str) -> dict[str, dict[str, Any]]:
    return {f["fingerprint"]: f for f in variants(out)}


def test_measured_savings_take_the_place_of_predicted_ones(
    run: Run, results: Path, findings: list[dict[str, Any]]
) -> None:
    first, second, third = findings[:3]
    code, out, err = run("scan", TRACE, "--evidence", results, "--format", "json")
    assert (code, err) == (0, "")
    scan, found = json.loads(out), found_by(out)
    assert scan["evidence"] == {"measured": 1, "refuted": 1, "other_gpu": 1, "no_finding": 1}
    measured = found[first["fingerprint"]]
    assert measured["verdict"]["device"] == H200
    assert measured["gpu_saving_ns"]["mid"] == round(0.9 * measured["measured_ns"])
    assert measured["verdict"]["predicted_ns"] == first["gpu_saving_ns"]
    assert found[second["fingerprint"]]["gpu_saving_ns"] == {"low": 0, "mid": 0, "high": 0}
    assert found[third["fingerprint"]]["gpu_saving_ns"] == third["gpu_saving_ns"]
    assert found[third["fingerprint"]]["verdict"] is None
    for end in ("low", "mid", "high"):
        assert scan["summary"]["gpu_saving_ns"][end] == sum(f["gpu_saving_ns"][end] for f in found.values())


def test_measured_and_predicted_are_distinguished_at_a_glance(run: Run, results: Path) -> None:
    _, out, _ = run("scan", TRACE, "--all", "--evidence", results)
    assert "sure: measured" in out and "sure: medium" in out
    assert "refuted: no finding claims what was predicted here" in out
    assert "this fusion loses" in out
    assert "1 of another GPU, 1 on no finding of this trace" in " ".join(out.split())


def test_a_stored_scan_is_printed_again_as_it_was(run: Run, stored: Path) -> None:
    for form in ("text", "json", "markdown"):
        assert run("scan", stored, "--format", form)[:2] == run("scan", TRACE, "--format", form)[:2]


def test_findings_are_known_by_their_content_whatever_the_file_is_called(run: Run, stored: Path) -> None:
    other = stored.with_name("printed.out")
    other.write_bytes(stored.read_bytes())
    assert run("scan", other, "-q", "--all")[0] == 0
    assert run("explain", "1", other)[0] == 0


def test_a_stored_scan_takes_the_same_verdicts(run: Run, stored: Path, results: Path) -> None:
    scanned = found_by(run("scan", TRACE, "--evidence", results, "--format", "json")[1])
    code, out, _ = run("scan", stored, "--evidence", results, "--format", "json")
    assert code == 0
    assert {k: f["gpu_saving_ns"] for k, f in found_by(out).items()} == {
        k: f["gpu_saving_ns"] for k, f in scanned.items()
    }


def test_verdicts_beside_findings_are_named_where_they_are_not_asked_for(
    run: Run, stored: Path, results: Path, tmp_path: Path
) -> None:
    findings, beside = tmp_path / "f.json", tmp_path / "f.verdicts.json"
    findings.write_bytes(stored.read_bytes())
    assert "verdicts lie next to" not in run("scan", findings)[2]
    beside.write_text("{}", encoding="utf-8")
    said = f"{findings}: verdicts lie next to it and are not looked at: --evidence {beside}\n"
    assert run("scan", findings)[2] == said
    assert run("scan", findings, "-q")[2] == ""
    assert "verdicts lie next to" not in run("scan", findings, "--evidence", results)[2]


def test_verdicts_within_stored_findings_are_printed(run: Run, results: Path, tmp_path: Path) -> None:
    path = tmp_path / "judged.json"
    assert run("scan", TRACE, "--evidence", results, "--format", "json", "-o", path)[0] == 0
    out = run("scan", path)[1]
    assert out == run("scan", TRACE, "--evidence", results)[1]


def test_a_ticket_is_one_finding_that_stands_alone(
    run: Run, stored: Path, results: Path, findings: list[dict[str, Any]], tmp_path: Path
) -> None:
    mark = findings[0]["fingerprint"]
    code, out, _ = run("explain", mark[:6], stored, "--format", "markdown", "--evidence", results)
    assert code == 0
    assert out.startswith(f"# {findings[0]['title']}\n\nFound in `{TRACE}`: kineto · NVIDIA H200")
    assert out.count("\n# ") == 0
    assert "**Verdict**\n\nL5, not slower than torch.compile" in out
    assert "of the step's GPU time, measured\n" in out
    assert f"- `{findings[0]['whole']} · rule " in out
    path = tmp_path / "ticket.md"
    assert run("explain", mark, stored, "--format", "markdown", "--evidence", results, "-o", path)[:2] == (0, "")
    assert path.read_text() == out


def test_a_refuted_finding_has_a_ticket_that_says_so(
    run: Run, stored: Path, results: Path, findings: list[dict[str, Any]]
) -> None:
    out = run("explain", findings[1]["fingerprint"], stored, "--format", "markdown", "--evidence", results)[1]
    assert "**Saves**\n\nnothing: verdicts took away what was predicted\n" in out
    assert "this fusion loses" in out


def test_a_folder_without_traces_is_its_findings(run: Run, stored: Path) -> None:
    assert run("scan", stored.parent)[:2] == run("scan", stored)[:2]


def test_what_is_refuted_reaches_no_fail_on(run: Run, findings: list[dict[str, Any]], tmp_path: Path) -> None:
    lines = [json.dumps(printed(f["fingerprint"], fused=30_000)) for f in findings]
    (tmp_path / "lost.jsonl").write_text("\n".join(lines))
    assert run("scan", TRACE, "--fail-on", "200us")[0] == 1
    assert run("scan", TRACE, "--fail-on", "400us", "--evidence", tmp_path / "lost.jsonl")[0] == 0


def test_a_refuted_finding_reaches_no_severity(run: Run, tmp_path: Path) -> None:
    """Of a recording whose findings are all on the GPU."""
    chain = FIXTURES / "kineto" / "chain.json.gz"
    found = variants(run("scan", chain, "--format", "json")[1])
    assert found
    assert all(f["fused_ns"] is not None for f in found)
    path = tmp_path / "lost.jsonl"
    path.write_text("\n".join(json.dumps(printed(f["fingerprint"], fused=30_000)) for f in found))
    assert run("scan", chain, "--fail-on", "low")[0] == 1
    assert run("scan", chain, "--fail-on", "low", "--evidence", path)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "htm"], "--format: there is no report 'htm'"),
        (["--gpu", "h100"], "{stored}: --gpu: is of a trace, and this holds findings"),
        (["--et", "et.json"], "{stored}: --et: is of a trace, and this holds findings"),
        (
            ["--format", "perfetto", "-o", "f.json"],
            "{stored}: --format perfetto: is of a trace, and this holds findings",
        ),
        (["--top", "-1"], "--top: -1 is negative"),
        (["--evidence", "no/such"], "no/such: there is no such file"),
    ],
)
def test_a_wrong_call_is_one_line_and_a_hint(run: Run, stored: Path, arguments: list[str], said: str) -> None:
    code, out, err = run("scan", stored, *arguments)
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == said.format(stored=stored)
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text[: len(text) // 2], ":1: is no findings file: "),
        (lambda text: text.replace('"schema_version":2', '"schema_version":7', 1), ":1: its findings are of version 7"),
        (
            lambda text: text.replace('"schema_version":2', '"schema_version":7', 1).replace('"rule":', '"law":'),
            ":1: its findings are of version 7; this tracemine reads 1 to 2",
        ),
        (lambda text: text + '{"schema_version":2}\n', ":2: is no findings file: "),
    ],
    ids=["truncated", "of another version", "of another version and other fields", "a second line that is none"],
)
def test_findings_that_cannot_be_read_say_where(
    run: Run, stored: Path, tmp_path: Path, spoil: Callable[[str], str], said: str
) -> None:
    path = tmp_path / "f.json"
    path.write_text(spoil(stored.read_text()))
    code, out, err = run("scan", path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}{said}")


@pytest.mark.parametrize(
    "content",
    [
        b'{"schema_version":1,"trace":{"path":"\xff"}}',
        b'{"schema_version":1,"trace":{"path":"t"},"zz":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["no UTF-8", "nested deeply"],
)
def test_findings_that_no_scan_printed_are_one_line(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "f.json"
    path.write_bytes(content)
    for command in ("scan", "verify"):
        code, out, err = run(command, path)
        assert (code, out) == (2, "")
        assert err.startswith(f"{path}:1: is no findings file: ")
        assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("summary", "span_ns"), 2**63 - 1, "a time is out of range"),
        (("summary", "gpu_time_ns"), -1, "a time is out of range"),
        (("findings", 0, "gpu_saving_ns"), {"low": 0, "mid": 2**63 - 1, "high": 2**63 - 1}, "saves more than was"),
        (("findings", 0, "gpu_saving_ns"), {"low": -5, "mid": 0, "high": 0}, "saves more than was measured"),
        (("findings", 0, "measured_ns"), 2**61, "saves more than was measured"),
        (("findings", 0, "step_saving_ns"), {"low": 0, "mid": 0, "high": 2**62}, "saves more than the span has"),
    ],
)
def test_times_of_findings_that_cannot_be_are_refused(
    run: Run, stored: Path, tmp_path: Path, where: tuple[str | int, ...], value: object, said: str
) -> None:
    found = json.loads(stored.read_text())
    inner = found
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    path = tmp_path / "f.json"
    path.write_text(json.dumps(found))
    code, out, err = run("scan", path)
    assert (code, out, said in err, len(err.splitlines())) == (2, "", True, 2)


@pytest.mark.parametrize(
    "content", [b'{"schema_version":1,"trace":"\xff"}', b'{"zz":' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
)
def test_verdicts_that_verify_did_not_write_are_one_line_before_anything_is_proved(
    run: Run, stored: Path, tmp_path: Path, content: bytes
) -> None:
    pytest.importorskip("triton")
    shutil.copy(stored, tmp_path / "f.json")
    (tmp_path / "f.verdicts.json").write_bytes(content)
    code, out, err = run("verify", tmp_path / "f.json", "-q")
    assert (code, out) == (2, "")
    assert err.startswith(f"{tmp_path / 'f.verdicts.json'}: is not what verify wrote, and would be written over: ")
    assert len(err.splitlines()) == 2


def test_what_is_neither_findings_nor_a_trace_is_an_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"a": 1}')
    assert run("scan", path)[0] == 2
    assert run("scan", tmp_path / "nowhere.json") == (2, "", f"{tmp_path / 'nowhere.json'}: there is no such file\n")


def test_what_a_verdict_has_settled_is_not_verified_again_unless_asked_for(
    run: Run, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.setattr("tracemine.verify.pipeline.gpu_name", lambda: None)
    for asked in ("validate", "answer"):  # of kernels, and of calls
        monkeypatch.setattr(f"tracemine.validate.sandbox.Sandbox.{asked}", lambda *_: "not asked for")
    plain, path = tmp_path / "plain.json", tmp_path / "judged.json"
    assert run("scan", TRACE, "--format", "json", "-o", plain)[0] == 0
    assert run("scan", TRACE, "--evidence", results, "--format", "json", "-o", path)[0] == 0
    everything = json.loads(run("verify", plain, "--format", "json")[1])
    found = json.loads(run("verify", path, "--format", "json")[1])
    again = json.loads(run("verify", path, "--again", "--format", "json")[1])
    assert found["skipped"]["settled"] == 2
    assert len(found["verdicts"]) == len(everything["verdicts"]) - 2
    predicted = {v["fingerprint"]: v["predicted_ns"] for v in everything["verdicts"]}
    assert {v["fingerprint"]: v["predicted_ns"] for v in again["verdicts"]} == predicted


def numbers(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where whole numbers stand in a JSON value."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value[:3])
        return [place for key, inner in pairs for place in numbers(inner, (*at, key))]
    return [at] if type(value) is int else []


def test_numbers_of_stored_findings_may_be_anything(run: Run, results: Path, tmp_path: Path) -> None:
    path = tmp_path / "judged.json"
    assert run("scan", TRACE, "--evidence", results, "--format", "json", "-o", path)[0] == 0
    text = path.read_text()
    chosen = random.Random(0)
    for _ in range(25):
        scan = json.loads(text)
        for place in chosen.sample(numbers(scan), 3):
            inner = scan
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = chosen.choice((0, -1, 7, 10**18, -(10**18), 2**63 - 1))
        path.write_text(json.dumps(scan))
        form = chosen.choice(("text", "json", "markdown"))
        assert run("scan", path, "--format", form, "--evidence", results)[0] in (0, 2)


def test_verdicts_are_read_without_torch_or_triton(results: Path) -> None:
    arguments = ["scan", str(TRACE), "--evidence", str(results), "--format", "json", "-o", "/dev/null"]
    code = f"import sys; from tracemine.cli import main; assert main({arguments!r}) == 0; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=FIXTURES.parent, check=True)
    assert {"torch", "triton", "pandas", "rich"}.isdisjoint(said.stdout.split())
