"""What a run of CI says: why it failed, in 25 lines at most, on the job's log, and at the user's own lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.report.scans import GAP, HOSTILE_STRINGS, NORM, SCAN, hostile
from tracemine.cli.gates import runner_lines, scan_gate
from tracemine.findings.record import Scan, Source
from tracemine.report import Drawing
from tracemine.report.ci_summary import LOG_LINES, CiSummary, log_lines, markdown_lines

Run = Callable[..., tuple[int, str, str]]
SLOW, FAST = "fixtures/kineto/decoder_prefill.json.gz", "fixtures/kineto/decoder_prefill_compiled.json.gz"
MOST_LINES = 25


def summary_of(scan: Scan, fail_on: str = "low") -> CiSummary:
    judged = scan_gate(None, fail_on)(scan, Drawing())
    assert judged.summary is not None
    return judged.summary


def shown(report: str) -> list[str]:
    """The lines of a report that are not folded."""
    return report.partition("<details>")[0].rstrip().splitlines()


@pytest.fixture
def baseline(run: Run, tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    assert run("scan", FAST, "--save-baseline", path, "-q", "-o", os.devnull)[0] == 0
    return path


def test_a_difference_says_first_why_it_failed(run: Run, baseline: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    gate = ("--baseline", baseline, "--fail-on", "new,worse")
    code, _, err = run("scan", SLOW, "-q", *gate, "-f", "markdown", "-o", report)
    text = report.read_text()
    lines = shown(text)
    assert code == 1
    assert lines[0].startswith("## tracemine: failed, 3 new (baseline ")
    assert "| **new** | 292 | Unfused RMSNorm ×5 | `record.py:45 forward` |" in lines
    assert "| worse | 678 → 1,189 (+75%) | GPU work |  |" in lines
    assert f"Accept one: `tracemine baseline accept {baseline} 10bb3930e730d027 --reason TEXT`" in lines[-1]
    assert len(lines) <= MOST_LINES
    assert text.count("<details") == text.count("</details>") > 1
    first, second, *rest = err.splitlines()
    assert first.endswith("; µs per step, recorded:") and "failed, 3 new" in first
    assert second == "  new       292  Unfused RMSNorm ×5 · record.py:45 forward (10bb3930e730d027)"
    assert 2 + len(rest) <= LOG_LINES


def test_a_run_that_passes_says_so_and_nothing_on_the_log(run: Run, baseline: Path) -> None:
    gate = ("--baseline", baseline, "--fail-on", "new,worse")
    code, out, err = run("scan", FAST, "-q", *gate, "-f", "markdown")
    assert (code, err) == (0, "")
    assert shown(out)[0].startswith("## tracemine: passed, 1 same (baseline ")
    assert len(shown(out)) <= MOST_LINES
    code, out, err = run("scan", SLOW, "-q", "--fail-on", "99%", "-f", "markdown")
    assert (code, err) == (0, "")
    assert shown(out)[0] == r"## tracemine: passed, none of 4 findings reaches --fail-on 99%"


def test_a_gate_without_a_baseline_says_why_on_the_log(run: Run, tmp_path: Path) -> None:
    code, out, err = run("scan", SLOW, "-q", "--fail-on", "high", "-o", tmp_path / "report.txt")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        f"tracemine: {SLOW}: failed, 2 of 4 findings reach --fail-on high; µs per step, saved:",
        "  high      252  Unfused RMSNorm ×5 · record.py:45 forward (10bb3930e730d027)",
        "  high      192  Unfused rotary embedding ×2 · record.py:69 forward (1fb1923ef514b93d)",
    ]


def test_githubs_runner_is_told_the_users_own_lines(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Path(SLOW).absolute()
    (tmp_path / "record.py").touch()
    monkeypatch.chdir(tmp_path)
    assert "::error" not in run("scan", trace, "-q", "--fail-on", "high", "-o", "report.txt")[2]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = run("scan", trace, "-q", "--fail-on", "high", "-o", "report.txt")[2].splitlines()
    assert "::error file=record.py,line=45,title=tracemine::Unfused RMSNorm ×5, 252 µs per step, saved, high" in lines


def test_a_line_that_is_not_in_the_repository_is_named_without_a_file(tmp_path: Path) -> None:
    own = Source(file="/home/ann/50%,a:b/train.py", line=3, function="step")
    summary = summary_of(msgspec.structs.replace(SCAN, findings=(msgspec.structs.replace(NORM, source=(own,)),)))
    (line,) = runner_lines(summary, tmp_path)
    assert line.startswith("::error title=tracemine::Unfused RMSNorm")
    (tmp_path / "50%,a:b").mkdir()
    (tmp_path / "50%,a:b" / "train.py").touch()
    (line,) = runner_lines(summary, tmp_path)
    assert line.startswith("::error file=50%25%2Ca%3Ab/train.py,line=3,title=tracemine::")


def test_however_much_fails_the_summary_is_short() -> None:
    every = tuple(msgspec.structs.replace(NORM, fingerprint=f"{number:016x}") for number in range(60))
    summary = summary_of(msgspec.structs.replace(SCAN, findings=every))
    assert len("\n".join(markdown_lines(summary)).splitlines()) <= MOST_LINES
    assert "and 50 more, in the full report" in "\n".join(markdown_lines(summary))
    lines = list(log_lines(summary))
    assert (len(lines), lines[-1]) == (LOG_LINES, "  and 55 more")


def test_costs_stand_below_each_other_also_where_some_are_accepted() -> None:
    summary = summary_of(SCAN)
    row = msgspec.structs.replace(summary.rows[0], status="new, accepted")
    lines = list(log_lines(msgspec.structs.replace(summary, rows=(row, *summary.rows[1:]))))[1:]
    assert len({text.index(f" {one.cost}  ") for text, one in zip(lines, (row, *summary.rows[1:]), strict=True)}) == 1


@pytest.mark.parametrize("text", (*HOSTILE_STRINGS, "::error::x", "\n::stop-commands::x", "%0A::error::x"))
def test_nothing_that_a_trace_says_is_a_command_or_markup(text: str, tmp_path: Path) -> None:
    scan = hostile(text)
    findings = tuple(msgspec.structs.replace(one, severity="high", reported=True) for one in scan.findings)
    summary = summary_of(msgspec.structs.replace(scan, findings=findings))
    for line in log_lines(summary):
        assert line.startswith(("tracemine: ", "  "))
        assert not line.lstrip().startswith(("::", "##["))
        assert "\n" not in line
    for line in runner_lines(summary, tmp_path):
        assert line.startswith("::error ") and "\n" not in line
        assert "%0A::" not in line.replace("%250A", "")
    assert all("\n\n" not in line or line.startswith("\n") for line in markdown_lines(summary))


def test_a_gate_of_time_counts_what_is_saved_of_the_step_first() -> None:
    summary = summary_of(SCAN, "1us")
    assert summary.failed
    assert summary.rows[0].status == GAP.severity
