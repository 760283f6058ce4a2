"""`tracemine explain`: one finding whole, from a trace or from stored findings."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from tests.report.scans import GAP, HOSTILE_STRINGS, NORM, SCAN, VERIFIED, hostile
from tracemine.findings.record import Finding, Scan
from tracemine.report import Drawing
from tracemine.report.explain import render

TRACE = str(Path(__file__).parents[2] / "fixtures" / "kineto" / "decoder_prefill.json.gz")
Run = Callable[..., tuple[int, str, str]]
Golden = Callable[[str, str], None]


def explained(finding: Finding, scan: Scan = SCAN, **options: object) -> str:
    out = StringIO()
    render(finding, scan, out, Drawing(**options))  # type: ignore[arg-type]
    return out.getvalue()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tracemine.cli import main

    path = tmp_path_factory.mktemp("stored") / "findings.json"
    assert main(["scan", TRACE, "--format", "json", "-o", str(path), "-q"]) == 0
    return path


@pytest.mark.parametrize("width", [80, 120])
def test_the_explanation_is_as_it_is(width: int, golden: Golden) -> None:
    golden(f"explain_{width}.txt", explained(NORM, width=width))


def test_a_verdict_is_explained_with_where_it_was_read() -> None:
    verified = next(one for one in VERIFIED.findings if one.verdict is not None and not one.refuted)
    text = " ".join(explained(verified, VERIFIED).split())
    assert verified.verdict is not None
    assert f"read from {verified.verdict.file}" in text
    assert "off by" in text


def test_nothing_of_the_finding_is_cut() -> None:
    text = explained(NORM, width=60)
    words = " ".join(text.split())
    for one in (*NORM.assumptions, NORM.why):
        assert " ".join(one.split()) in words
    assert "…" not in text
    assert "return F.rms_norm(x, (x.shape[-1],), self.weight)  # torch 2.4" in text
    assert "It is exact." in text
    assert all(source.file in "".join(text.split()) for source in NORM.source)
    assert all(variant.identity.finding in text for variant in NORM.variants)


def test_idle_time_is_explained_without_kernels_of_its_own() -> None:
    text = explained(GAP)
    assert "\nbefore" in text
    assert "\nkernels" not in text


def test_what_repeats_is_folded() -> None:
    many = msgspec.structs.replace(NORM, kernels=("sgemm_a", "sgemm_b") * 20, ops=("aten::mm", "aten::add") * 20)
    text = explained(many)
    assert "(mm → add) ×20" in text
    assert "sgemm_a ×20, sgemm_b ×20" in text


@pytest.mark.parametrize("name", ["decoder_prefill", "convnet_train"])
def test_a_finding_takes_about_forty_lines(run: Run, name: str) -> None:
    trace = Path(TRACE).with_name(f"{name}.json.gz")
    assert len(run("explain", "1", trace, "-q")[1].splitlines()) <= 50


@pytest.mark.parametrize("hostile_string", HOSTILE_STRINGS)
def test_what_a_trace_says_does_nothing_to_a_terminal(hostile_string: str) -> None:
    scan = hostile(hostile_string)
    for finding in scan.findings:
        text = explained(finding, scan, color=False)
        assert not [c for c in text if unicodedata.category(c)[0] == "C" and c != "\n"]


def test_a_trace_and_its_stored_findings_are_explained_alike(run: Run, stored: Path) -> None:
    finding = json.loads(stored.read_text())["findings"][0]
    mark = finding["fingerprint"][:4]
    code, out, err = run("explain", mark, TRACE)
    assert (code, err) == (0, "")
    assert out.startswith(finding["title"])
    assert finding["fingerprint"] in out
    assert run("explain", mark, stored) == (0, out, "")


def test_lines_within_functions_are_of_a_trace(run: Run, stored: Path) -> None:
    finding = json.loads(stored.read_text())["findings"][0]
    status, _, said = run("explain", finding["fingerprint"], stored, "--source", stored.parent)
    assert (status, "--source: is of a trace, and this holds findings" in said) == (2, True)


def test_a_variant_names_its_finding(run: Run, stored: Path) -> None:
    finding = json.loads(stored.read_text())["findings"][0]
    assert finding["fingerprint"] in run("explain", finding["variants"][-1]["identity"]["finding"], stored)[1]


def test_a_mark_that_names_none_is_answered_with_those_that_there_are(run: Run, stored: Path) -> None:
    known = [one["fingerprint"] for one in json.loads(stored.read_text())["findings"] if one["reported"]]
    code, out, err = run("explain", "ffff", stored)
    assert (code, out) == (2, "")
    assert err == f"FINGERPRINT: 0 findings begin with 'ffff'\n  hint: there are: {', '.join(known)}\n"
    assert run("explain", "ff", stored)[2] == "FINGERPRINT: a fingerprint has 16 digits; give 4 at least\n"


def test_a_number_is_that_of_the_first_screen(run: Run, stored: Path) -> None:
    known = [one["fingerprint"] for one in json.loads(stored.read_text())["findings"] if one["reported"]]
    for number, fingerprint in enumerate(known, 1):
        assert run("explain", number, stored) == run("explain", fingerprint, stored)
    assert run("explain", "1", TRACE, "-q")[1] == run("explain", known[0], TRACE, "-q")[1]
    for none in ("0", len(known) + 1):
        code, out, err = run("explain", none, stored)
        assert (code, out) == (2, "")
        assert err == f"FINGERPRINT: no finding has the number {none}\n  hint: numbers go from 1 to {len(known)}\n"


def test_a_scan_without_findings_has_none_of_any_number(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_bytes(msgspec.json.encode(msgspec.structs.replace(SCAN, findings=())))
    code, out, err = run("explain", "1", empty)
    assert (code, out) == (2, "")
    assert err.startswith("there is no finding 1: this scan has none\n  hint: tracemine scan ")
    assert err.endswith(" --why-not\n")


def test_a_file_where_the_fingerprint_stands_is_told(run: Run, stored: Path) -> None:
    code, out, err = run("explain", stored, "10bb")
    assert (code, out) == (2, "")
    assert err == f"FINGERPRINT: {str(stored)!r} is a file\n  hint: tracemine explain 10bb {stored}\n"


def test_a_folder_of_several_traces_is_not_one(run: Run) -> None:
    code, _, err = run("explain", "ffff", Path(TRACE).parent)
    assert code == 2
    assert "traces, and one is looked at" in err
