"""Tickets of a job: one a cause, found again by its rule and whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ranks.simulated import Program, Rank, write
from tracemine.__main__ import main
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks
from tracemine.ranks.record import Job
from tracemine.tickets.of_job import tickets_of_job
from tracemine.tickets.written import text_of


def job(folder: Path, late: int = 1, **more: object) -> Job:
    ranks = [Rank(silence_ns=2_000_000 if rank == late else 0) for rank in range(4)]
    return find_job(read_ranks(write(Program(ranks=ranks, **more), folder)), folder.name)  # type: ignore[arg-type]


def test_a_cause_of_all_ranks_has_one_ticket(tmp_path: Path) -> None:
    drafts = tickets_of_job(job(tmp_path, late=9, overlapped=False), "model").drafts
    assert [draft.title.split(":")[0] for draft in drafts] == ["All-reduces that nothing hides, 6 a step"]
    assert "0, 1, 2, 3 of 4" in text_of(drafts[0])
    assert "tracemine diff before/ after/" in text_of(drafts[0])


def test_a_ticket_is_found_again_by_its_rank(tmp_path: Path) -> None:
    first, again, other = (
        tickets_of_job(job(tmp_path / str(at), late), "model").drafts[0].mark.key for at, late in enumerate((1, 1, 2))
    )
    assert first == again != other


def test_what_names_operators_is_left_out_where_asked(tmp_path: Path) -> None:
    found = job(tmp_path)
    open_, hidden = (text_of(tickets_of_job(found, "model", redact=redact).drafts[0]) for redact in (False, True))
    assert "aten::" in open_
    assert "aten::" not in hidden


def test_tickets_of_a_folder_are_of_its_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path / "job")
    call = ["tickets", str(tmp_path / "job"), "--project", "model"]
    assert main([*call, "--out", str(tmp_path / "out")]) == 0
    (file,) = (tmp_path / "out").iterdir()
    assert "Rank 1's host is late" in file.read_text()
    assert main([*call, "--out", str(tmp_path / "out"), "--finding", "1"]) == 2
    assert "a job of several ranks" in capsys.readouterr().err
