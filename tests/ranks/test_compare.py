"""Two recordings of a job: what is gone, what is new, and what only moved within what is known of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ranks.simulated import Program, Rank, write
from tracemine.__main__ import main
from tracemine.ranks.compare import compare_jobs
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks
from tracemine.ranks.record import Job


def job(folder: Path, at: int = 1, silence_ns: int = 0, **more: Any) -> Job:
    ranks = [Rank(silence_ns=silence_ns if rank == at else 0) for rank in range(4)]
    return find_job(read_ranks(write(Program(ranks=ranks, **more), folder)), folder.name)


def statuses(before: Job, after: Job) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(one.status, one.rule, one.ranks) for one in compare_jobs(before, after).changes]


def test_a_late_rank_that_is_cured_is_fixed_and_the_other_way_round_new(tmp_path: Path) -> None:
    late, clean = job(tmp_path / "late", silence_ns=2_000_000), job(tmp_path / "clean")
    assert statuses(late, clean) == [("fixed", "straggler_host", (1,))]
    assert statuses(clean, late) == [("new", "straggler_host", (1,))]
    assert statuses(clean, clean) == []


def test_another_rank_that_is_late_is_another_finding(tmp_path: Path) -> None:
    one, other = job(tmp_path / "one", 1, 2_000_000), job(tmp_path / "other", 2, 2_000_000)
    assert statuses(one, other) == [("new", "straggler_host", (2,)), ("fixed", "straggler_host", (1,))]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [(2_000_000, 2_100_000, "same"), (1_500_000, 6_000_000, "worse"), (6_000_000, 1_500_000, "improved")],
)
def test_what_meets_what_was_is_the_same(before: int, after: int, status: str, tmp_path: Path) -> None:
    sides = (job(tmp_path / name, silence_ns=ns) for name, ns in (("before", before), ("after", after)))
    assert statuses(*sides) == [(status, "straggler_host", (1,))]


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_diff_of_two_folders(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "before", silence_ns=2_000_000)
    job(tmp_path / "after")
    assert main(["diff", str(tmp_path / "before"), str(tmp_path / "after"), "--format", form]) == 0
    said = capsys.readouterr().out
    assert "fixed" in said
    assert "Rank 1's host is late" in said
    if form == "json":
        assert json.loads(said)["step_before_ns"]["mid"] > json.loads(said)["step_after_ns"]["mid"]


def test_a_page_of_two_jobs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "before")
    job(tmp_path / "after")
    arguments = ["diff", str(tmp_path / "before"), str(tmp_path / "after"), "--format", "html"]
    assert main([*arguments, "-o", str(tmp_path / "d.html")]) == 2
    assert "jobs of several ranks" in capsys.readouterr().err
