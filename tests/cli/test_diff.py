"""tracemine diff, baseline and scan --baseline: what is printed, and how they end."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest

from tracemine.cli import main
from tracemine.comparison import Difference

FIXTURES = Path(__file__).parents[2] / "fixtures"
EAGER, COMPILED = (str(FIXTURES / f"kineto/decoder_prefill{name}.json.gz") for name in ("", "_compiled"))
CAPTURE = str(FIXTURES / "captures/decoder_prefill")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main([*arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def stored(path: Path, trace: str) -> str:
    assert main(["scan", trace, "--format", "json", "-q", "-o", str(path)]) == 0
    return str(path)


def test_a_trace_and_its_findings_are_the_same(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    findings = stored(tmp_path / "f.json", EAGER)
    gates = [option for gate in ("new", "worse", "moved", "unknown", "0%") for option in ("--fail-on", gate)]
    for before, after in ((EAGER, EAGER), (EAGER, findings), (findings, EAGER)):
        code, out, err = run(capsys, "diff", before, after, "-f", "json", "-q", *gates)
        assert (code, err) == (0, "")
        assert set(msgspec.json.decode(out, type=Difference).counts) == {"same"}


def test_what_is_fixed_is_said_with_what_was_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "diff", EAGER, COMPILED, "-q", "--fail-on", "worse", "--fail-on", "50%")
    assert code == 0
    assert "  fixed" in out
    assert "predicted  " in out
    assert "measured:" in out


def test_backwards_it_fails_and_says_for_what(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "diff", COMPILED, EAGER, "-q", "--fail-on", "new")
    assert code == 1
    assert "  new " in out
    assert "--fail-on: new: " in err


def test_a_capture_is_one_trace(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "diff", CAPTURE, CAPTURE, "-q", "-f", "markdown")
    assert code == 0
    assert "# `captures/decoder_prefill → captures/decoder_prefill`" in out


def test_an_output_file_gets_what_would_be_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "diff", EAGER, EAGER, "-q", "-f", "json", "-o", str(tmp_path / "d.json"))
    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "d.json").read_text())["schema_version"] == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "htm"], "there is no report 'htm'"),
        (["--fail-on", "high"], "'high' is none of new"),
        (["--noise", "3"], "--noise: '3' is not a percentage"),
        (["--top", "-1"], "--top"),
        (["--gpu", "abacus"], "is not in the device table"),
    ],
)
def test_a_wrong_call_ends_with_2(options: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "diff", EAGER, EAGER, *options)
    assert code == 2
    assert says in err


def test_both_wrong_files_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = run(capsys, "diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "-q")
    assert (code, out) == (2, "")
    assert "a.json: there is no such file" in err
    assert "b.json: there is no such file" in err


def test_several_scans_are_not_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "diff", str(FIXTURES / "kineto"), EAGER, "-q")
    assert code == 2
    assert "11 traces, and one is looked at" in err


def test_a_baseline_lets_pass_what_it_holds_and_what_is_accepted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = str(tmp_path / "b.json")
    assert run(capsys, "scan", COMPILED, "--save-baseline", kept, "-o", os.devnull)[0] == 0
    watched = ("scan", "-q", "--baseline", kept, "--fail-on", "new,worse")
    assert run(capsys, *watched, COMPILED)[0] == 0
    code, out, err = run(capsys, *watched, EAGER)
    assert code == 1
    assert "compiled.json.gz → decoder_prefill.json.gz" in out
    marks = [line.rsplit("(", 1)[1].rstrip(")") for line in err.splitlines() if line.startswith("  new")]
    assert marks
    for mark in marks:
        assert run(capsys, "baseline", "accept", kept, mark, "--reason", "to be compiled")[0] == 0
    code, out, err = run(capsys, *watched, EAGER)
    assert (code, err) == (0, "")
    assert "accepted: to be compiled" in out
    # Written anew, what was accepted stays.
    code, _, err = run(capsys, "scan", COMPILED, "--save-baseline", kept, "-o", os.devnull)
    assert f"{len(marks)} accepted finding" in err
    assert run(capsys, *watched, EAGER)[0] == 0


def test_json_of_a_scan_is_the_scan_alone_with_a_baseline_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = str(tmp_path / "b.json")
    assert run(capsys, "scan", COMPILED, "--save-baseline", kept, "-o", os.devnull, "-q")[0] == 0
    code, out, _ = run(capsys, "scan", EAGER, "-q", "-f", "json", "--baseline", kept, "--fail-on", "new")
    assert code == 1
    assert "findings" in json.loads(out)


def test_a_baseline_without_a_reason_a_project_or_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = str(tmp_path / "b.json")
    assert run(capsys, "scan", EAGER, "--save-baseline", " ")[0] == 2
    assert run(capsys, "scan", EAGER, "--save-baseline", kept, "-o", os.devnull, "-q")[0] == 0
    mark = json.loads(Path(kept).read_text())["findings"][0]["fingerprint"]
    assert run(capsys, "baseline", "accept", kept, mark)[0] == 2
    assert run(capsys, "baseline", "accept", kept, mark, "--reason", " ")[0] == 2
    code, _, err = run(capsys, "scan", EAGER, "--baseline", str(tmp_path / "none.json"))
    assert (code, "none.json" in err) == (2, True)
    code, _, err = run(capsys, "scan", EAGER, "--baseline", EAGER)
    assert (code, "is no baseline" in err) == (2, True)
    code, _, err = run(capsys, "scan", EAGER, "--baseline", kept, "--fail-on", "high")
    assert (code, "'high' is none of new" in err) == (2, True)
    assert run(capsys, "baseline")[0] == 2


def test_the_page_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = (FIXTURES.parent / "docs/guide/diff.md").read_text(encoding="utf-8")
    shown = page.split("```text\n")[1].split("```")[0]
    assert run(capsys, "diff", EAGER, COMPILED, "-q")[1] == shown


def cut(path: Path, share: float) -> str:
    """The decoder's trace, ended before its content does."""
    content = gzip.decompress(Path(EAGER).read_bytes())
    path.write_bytes(content[: int(len(content) * share)])
    return str(path)


def empty(path: Path) -> str:
    path.write_text('{"traceEvents": []}', encoding="utf-8")
    return str(path)


BROKEN = {
    "of the cut file": lambda folder: cut(folder / "cut.json", 0.9),
    "cut before any GPU activity": lambda folder: cut(folder / "cut.json", 0.1),
    "of no GPU activity": lambda folder: empty(folder / "empty.json"),
}


@pytest.mark.parametrize("how", sorted(BROKEN))
def test_what_is_cut_off_or_empty_is_unknown_first_and_passes_no_gate(
    how: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken, kept = BROKEN[how](tmp_path), str(tmp_path / "b.json")
    for form in ("text", "markdown"):
        code, out, err = run(capsys, "diff", EAGER, broken, "-q", "--fail-on", "worse", "-f", form)
        assert code == 1
        assert "nothing compares: " in out.splitlines()[0 if form == "text" else 2]
        assert "improved" not in out
        assert "--fail-on: unknown: nothing compares" in err
    assert run(capsys, "diff", EAGER, broken, "-q")[0] == 0
    assert run(capsys, "scan", EAGER, "--save-baseline", kept, "-o", os.devnull, "-q")[0] == 0
    watched = ("scan", broken, "-q", "--baseline", kept)
    assert run(capsys, *watched, "--fail-on", "new,worse,2%")[0] == 1
    assert run(capsys, *watched)[0] == 0


@pytest.mark.parametrize("how", sorted(BROKEN))
def test_no_baseline_is_written_of_what_is_cut_off_or_empty(
    how: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    broken, kept = BROKEN[how](tmp_path), tmp_path / "b.json"
    code, _, err = run(capsys, "scan", broken, "--save-baseline", str(kept), "-o", os.devnull, "-q")
    assert code == 2
    assert "no baseline\n  hint: " in err
    assert not kept.exists()


def test_a_scan_of_what_is_cut_off_says_so_first_and_advises_no_other_recording(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for share in (0.9, 0.1):
        broken = cut(tmp_path / "cut.json", share)
        for form in ("text", "markdown"):
            _, out, _ = run(capsys, "scan", broken, "-q", "-f", form)
            assert "The file is cut off" in "".join(out.splitlines()[0:3])
            assert "record with activities=" not in out
            assert (out.count("cut off"), out.count("no GPU activity")) == (1, share == 0.1)
    assert "The trace holds no GPU activity before the cut." in out
    assert "cut off" not in run(capsys, "scan", EAGER, "-q")[1]


def test_another_program_is_unknown_first_and_passes_no_gate(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chain, kept = str(FIXTURES / "kineto/chain.json.gz"), str(tmp_path / "b.json")
    code, out, _ = run(capsys, "diff", EAGER, chain, "-q", "--fail-on", "new")
    assert code == 1
    assert out.startswith("unknown    nothing compares: the programs have nothing in common")
    assert "  fixed" not in out
    assert run(capsys, "scan", EAGER, "--save-baseline", kept, "-o", os.devnull, "-q")[0] == 0
    assert run(capsys, "scan", chain, "-q", "--baseline", kept, "--fail-on", "new,worse")[0] == 1


@pytest.mark.parametrize("gates", [("--fail-on", "moved,worse"), ("--fail-on", "moved", "--fail-on", "worse, 99%")])
def test_commas_work_alike_in_every_fail_on(gates: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "diff", EAGER, EAGER, "-q", *gates)[0] == 0
    code, _, err = run(capsys, "diff", COMPILED, EAGER, "-q", *gates, "--fail-on", "unknown,new")
    assert (code, "--fail-on: new: " in err) == (1, True)
    assert run(capsys, "diff", EAGER, EAGER, "-q", "--fail-on", "worse,newer")[0] == 2
    assert run(capsys, "scan", EAGER, "-q", "--fail-on", "1s,high")[0] == 1
    assert run(capsys, "scan", EAGER, "-q", "--fail-on", "1s, 100%")[0] == 0
    code, _, err = run(capsys, "scan", EAGER, "-q", "--fail-on", "high,hihg")
    assert (code, "'hihg' is no severity, no time and no share" in err) == (2, True)
    code, _, err = run(capsys, "scan", EAGER, "-q", "--fail-on", "new")
    assert (code, err) == (2, "--fail-on: new is said of a difference\n  hint: name one side: --baseline\n")


def test_a_baseline_makes_its_folder_and_is_of_one_project(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / ".tracemine/sub/decoder.json"
    write = ("scan", EAGER, "-q", "-o", os.devnull, "--save-baseline")
    assert run(capsys, *write, str(kept))[0] == 0
    before = kept.read_bytes()
    kept.rename(tmp_path / ".tracemine/encoder.json")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *write, "encoder")
    assert code == 2
    assert err.startswith("--save-baseline: .tracemine/encoder.json is a baseline of 'decoder', with what that one")
    assert (tmp_path / ".tracemine/encoder.json").read_bytes() == before
    assert run(capsys, *write, "other")[0] == 0
    assert run(capsys, *write, str(tmp_path / ".tracemine/encoder.json"))[0] == 0  # of the name that stands in it
    for label, says in (("-x", "'-x'"), ("-->", "'-->'"), ("$(id)", "'$(id)'"), ("dé", "'dé' is no label")):
        code, _, err = run(capsys, *write, label)
        assert (code, says in err) == (2, True), label


def test_a_baseline_is_kept_and_meant_by_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "decoder").mkdir()  # a folder of that name is no baseline
    code, _, err = run(capsys, "scan", COMPILED, "-o", os.devnull, "--save-baseline", "decoder")
    assert (code, err.startswith(".tracemine/decoder.json: ")) == (0, True)
    watched = ("scan", EAGER, "-q", "--fail-on", "new,worse", "--baseline")
    code, _, err = run(capsys, *watched, "decoder")
    marks = [line.rsplit("(", 1)[1].rstrip(")") for line in err.splitlines() if line.startswith("  new")]
    assert (code, len(marks) > 2) == (1, True)
    for mark in marks[:2]:
        assert run(capsys, "baseline", "accept", "decoder", mark, "--reason", "to be compiled")[0] == 0
    for mark in marks[2:]:
        assert run(capsys, "baseline", "accept", "--name", "decoder", mark, "--reason", "ships \x1b[2J in Q3")[0] == 0
    assert run(capsys, *watched, ".tracemine/decoder.json")[0] == 0
    code, out, _ = run(capsys, "baseline", "list", "--name", "decoder")
    assert (code, out.count("to be compiled"), "\x1b" in out) == (0, 2, False)
    assert "NVIDIA H200, .tracemine/decoder.json" in out


def test_a_file_goes_before_a_name_and_a_setting_may_name_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "scan", EAGER, "-q", "--save-baseline", "decoder")[0] == 0
    assert run(capsys, "scan", COMPILED, "-q", "--save-baseline", "./decoder")[0] == 0  # named by its stem
    assert json.loads((tmp_path / "decoder").read_text())["project"] == "decoder"
    assert run(capsys, "scan", EAGER, "-q", "--baseline", "decoder", "--fail-on", "new")[0] == 1
    code, _, err = run(capsys, "scan", EAGER, "-q", "--baseline", "decodr", "--fail-on", "new")
    assert (code, "no baseline of that name\n  hint: there are: decoder" in err) == (2, True)
    (tmp_path / "decoder").unlink()
    assert run(capsys, "scan", EAGER, "-q", "--baseline", "decoder", "--fail-on", "new")[0] == 0
    (tmp_path / "pyproject.toml").write_text('[tool.tracemine]\nbaseline = "decoder"\nfail-on = "new"\n')
    code, out, _ = run(capsys, "scan", EAGER, "-q")
    assert (code, "decoder_prefill.json.gz → decoder_prefill.json.gz" in out) == (0, True)


def test_baselines_are_listed_with_what_is_wrong_with_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "baseline", "list")
    assert (code, out.startswith("No baseline is kept here")) == (0, True)
    for name in ("eager", "compiled"):
        assert run(capsys, "scan", EAGER, "-q", "--save-baseline", name)[0] == 0
    code, out, _ = run(capsys, "baseline", "list", "--format", "json")
    rows = [json.loads(text) for text in out.splitlines()]
    assert (code, [row["name"] for row in rows]) == (0, ["compiled", "eager"])
    assert rows[0]["step_ns"] > 0 and rows[0]["accepted"] == []
    (tmp_path / ".tracemine/broken.json").write_text("{}")
    code, out, err = run(capsys, "baseline", "list")
    assert (code, len(out.splitlines()), "broken.json" in err) == (2, 3, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["accept", "decoder", "--reason", "r"], "a baseline and a fingerprint are needed"),
        (["accept", "f", "80c2", "--name", "decoder", "--reason", "r"], "a baseline and a fingerprint are needed"),
        (["accept", "--name", "../../x", "80c2", "--reason", "r"], "--name: '../../x' is no label"),
        (["list", "--name", "none"], "there is no such file"),
        (["list", "--format", "html"], "there is no report 'html'"),
    ],
)
def test_a_baseline_that_is_not_named_right_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "baseline", *arguments)
    assert (code, says in err) == (2, True), err
    assert not (tmp_path / ".tracemine").exists()


def test_a_file_of_tracemine_given_to_the_wrong_command_is_told_where_it_belongs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    findings, kept, diff = (str(tmp_path / f"{name}.json") for name in ("findings", "baseline", "diff"))
    stored(tmp_path / "findings.json", EAGER)
    assert run(capsys, "scan", EAGER, "--save-baseline", kept, "-o", os.devnull, "-q")[0] == 0
    assert run(capsys, "diff", EAGER, COMPILED, "-q", "-f", "json", "-o", diff)[0] == 0
    tickets = ("--project", "p", "--out", str(tmp_path / "out"))
    for call, what, way_out in (
        (("scan", kept), "is a baseline", "scan TRACE --baseline FILE"),
        (("diff", kept, EAGER, "-q"), "is a baseline", "scan TRACE --baseline FILE"),
        (("tickets", kept, *tickets), "is a baseline", "scan TRACE --baseline FILE"),
        (("tickets", diff, *tickets), "is what tracemine diff printed", "--after FILE"),
        (("scan", diff), "is what tracemine diff printed", "--after FILE"),
        (
            ("scan", EAGER, "--baseline", findings),
            "is no baseline: it holds findings",
            "tracemine scan TRACE --save-baseline FILE",
        ),
        (
            ("scan", EAGER, "--baseline", diff),
            "is no baseline: it is what tracemine diff",
            "tracemine scan TRACE --save-baseline FILE",
        ),
    ):
        code, _, err = run(capsys, *call)
        assert code == 2, call
        assert what in err.splitlines()[0], call
        assert way_out in err.splitlines()[1], call
