"""`tracemine scan FOLDER` of one job's ranks: together, alone, as JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.ranks.simulated import Program, Rank, write
from tracemine.cli import main
from tracemine.ranks.record import JobReport


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    write(Program(ranks=[Rank(), Rank(silence_ns=2_000_000), Rank(), Rank()], layers=3, steps=3), folder)
    (folder / "meta.json").write_text("{}")
    return folder


def out_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["scan", "-q", *arguments]) == code
    return capsys.readouterr().out


def test_the_screen_says_who_is_late_in_fifteen_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = out_of(capsys, str(folder)).splitlines()
    assert lines[0].startswith("Job of 4 ranks: ")
    assert any("Rank 1's host is late" in line for line in lines[:15])
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 24


def test_json_is_the_contract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = msgspec.json.decode(out_of(capsys, str(folder), "--format", "json"), type=JobReport)
    assert [rank.file for rank in report.job.ranks] == [f"rank{rank}.json" for rank in range(4)]
    first = report.job.findings[0]
    assert (first.rule, first.cause, first.ranks) == ("straggler_host", "late_host", (1,))


def test_files_named_one_by_one_are_the_same_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(path) for path in sorted(folder.glob("rank*.json"))]
    together, named = (
        json.loads(out_of(capsys, *paths, "--format", "json"))["job"] for paths in ([str(folder)], files)
    )
    assert {**together, "name": ""} == {**named, "name": ""}


def test_one_rank_alone_is_a_trace_as_any(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (alone,) = out_of(capsys, str(folder), "--rank", "1", "--format", "json").splitlines()
    assert json.loads(alone)["trace"]["path"].endswith("rank1.json")
    assert len(out_of(capsys, str(folder), "--rank", "all", "--format", "json").splitlines()) == 4


def test_a_rank_that_is_not_there_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", "-q", str(folder), "--rank", "9"]) == 2
    assert "there are: 0, 1, 2, 3" in capsys.readouterr().err


def test_markdown_and_a_file(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out_of(capsys, str(folder), "--format", "markdown", "-o", str(tmp_path / "job.md"))
    text = (tmp_path / "job.md").read_text()
    assert text.startswith("## Job of 4 ranks")
    assert "### 1. Rank 1's host is late" in text


def test_a_page_has_each_rank(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out_of(capsys, str(folder), "--format", "html", "-o", str(tmp_path / "job.html"))
    page = (tmp_path / "job.html").read_text()
    assert all(f"rank{rank}.json" in page for rank in range(4))


def test_limits_on_findings_are_of_single_traces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(out_of(capsys, str(folder), "--fail-on", "99%", "--format", "json").splitlines()) == 4


def test_names_from_a_trace_cannot_move_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(Program(ranks=[Rank(), Rank(silence_ns=2_000_000)], layers=3, steps=3), tmp_path)
    for path in paths:
        path.write_text(
            path.read_text().replace("aten::kernel_0", "aten::\\u001b[2Jkernel").replace("H100", "\\u001b]0;H")
        )
    for form in ("text", "json", "markdown"):
        assert "\x1b" not in out_of(capsys, str(tmp_path), "--all", "--format", form)
