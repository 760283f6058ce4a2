"""A job as a page and as a trace for Perfetto: what is drawn is what was recorded, and text stays text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from tests.ranks.simulated import Program, Rank, write
from tracemine.__main__ import main
from tracemine.ranks.find import find_and_draw
from tracemine.ranks.picture import JobPicture
from tracemine.ranks.recognise import RanksRead, read_ranks
from tracemine.ranks.record import Job
from tracemine.report.html.job_page import page, render
from tracemine.report.job import render_text
from tracemine.report.job_overlay import overlay

LATE = Program(ranks=[Rank(), Rank(silence_ns=2_000_000), Rank(), Rank()], offset_ns=(0, 5_000_000, -7_000, 9_000))


@pytest.fixture
def drawn(tmp_path: Path) -> tuple[Job, JobPicture]:
    return find_and_draw(read_ranks(write(LATE, tmp_path)), "job")


def test_the_last_step_lies_on_one_clock(drawn: tuple[Job, JobPicture]) -> None:
    _, picture = drawn
    ends: dict[int, list[int]] = {}
    for rank in picture.ranks:
        for one in rank.collectives:
            assert rank.begin_ns <= one.begin_ns <= one.waits_until_ns <= one.end_ns <= picture.span_ns
            ends.setdefault(one.number, []).append(one.end_ns)
        assert all(0 <= begin < end <= picture.span_ns for begin, end in rank.computing_ns)
    assert all(len(each) == 4 and max(each) - min(each) <= 1_000 for each in ends.values())
    waited = [sum(one.waits_until_ns - one.begin_ns for one in rank.collectives) for rank in picture.ranks]
    assert waited[1] < min(waited[0], waited[2], waited[3]) / 2


def test_a_late_rank_is_a_red_row_and_has_the_first_heading(drawn: tuple[Job, JobPicture]) -> None:
    shown = page(*drawn)
    assert shown.findings[0].title == "Rank 1's host is late"
    slow = {cell.y for cell in shown.heat if "slow" in dict(shown.shades)[cell.colour]}
    assert slow == {16}
    assert len(shown.heat) == 4 * shown.steps
    assert [strip.name for strip in shown.strips] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert all(re.fullmatch(r"(M[\d.]+ 0h[\d.]+v1h-[\d.]+z)*", strip.waiting) for strip in shown.strips)


def test_text_of_a_trace_is_no_markup(drawn: tuple[Job, JobPicture]) -> None:
    job, picture = drawn
    hostile = "</title><script>alert(1)</script>\x1b[2J"
    job = changed(
        job, name=hostile, notes=(hostile,), ranks=tuple(changed(rank, file=hostile) for rank in job.ranks),
        groups=tuple(changed(group, description=hostile, kind=hostile) for group in job.groups),
        findings=tuple(changed(one, title=hostile, facts=(hostile,), fix=hostile) for one in job.findings),
    )  # fmt: skip
    out = render(job, picture)
    assert "<script>alert" not in out
    assert "\x1b" not in out
    assert out.count("<script>") == 1


def test_of_many_ranks_those_are_drawn_that_stand_out() -> None:
    import tests.ranks.simulated as made

    summaries = _summaries(made)
    many = [changed(summaries[1 if at == 200 else 0], rank=at) for at in range(300)]
    job, picture = find_and_draw(RanksRead(tuple(many), {}), "job")
    shown = page(job, picture)
    assert len(shown.strips) == 128
    assert shown.left_out == 172
    assert "rank 200" in [strip.name for strip in shown.strips]
    out = render(job, picture)
    assert len(out) < 1_000_000


def _summaries(made: Any) -> Any:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return read_ranks(made.write(replace(LATE, offset_ns=()), Path(folder))).ranks


def test_arrows_lead_from_the_last_rank_to_those_that_waited(drawn: tuple[Job, JobPicture]) -> None:
    _, picture = drawn
    events = json.loads(overlay(picture))["traceEvents"]
    arrows: dict[str, dict[str, Any]] = {}
    for event in events:
        if event["ph"] in "sf":
            arrows.setdefault(event["id"], {})[event["ph"]] = event
    assert arrows
    assert all(set(ends) == {"s", "f"} for ends in arrows.values())
    first = {number.split(".")[0] for number in arrows}
    assert sum(ends["s"]["pid"] == 1 for ends in arrows.values()) > len(arrows) / 2
    assert len(first) <= 6
    slices = [event for event in events if event["ph"] == "X"]
    for ends in arrows.values():
        assert ends["s"]["ts"] <= ends["f"]["ts"]
        for end in ends.values():  # Perfetto drops an arrow that ends outside of any slice
            assert any(one["pid"] == end["pid"] and one["ts"] <= end["ts"] <= one["ts"] + one["dur"] for one in slices)


def test_no_arrow_leads_back_where_clocks_are_off(drawn: tuple[Job, JobPicture]) -> None:
    _, picture = drawn
    late = max(picture.ranks, key=lambda rank: rank.collectives[0].begin_ns)
    moved = [changed(one, begin_ns=one.begin_ns + 90_000, end_ns=one.end_ns + 90_000) for one in late.collectives]
    ranks = tuple(changed(rank, collectives=tuple(moved)) if rank is late else rank for rank in picture.ranks)
    events = json.loads(overlay(changed(picture, ranks=ranks)))["traceEvents"]
    begins, ends = ({event["id"]: event["ts"] for event in events if event["ph"] == kind} for kind in "sf")
    assert begins.keys() == ends.keys() != set()
    assert all(begins[number] <= ends[number] for number in begins)


def test_a_job_that_cannot_be_judged_is_not_called_sound(drawn: tuple[Job, JobPicture]) -> None:
    job, picture = drawn
    note = "no savings: no collective could be matched over the ranks"
    unknown = changed(job, findings=(), notes=(note,))
    sound = changed(job, findings=(), notes=())
    for text in (render_text(unknown, 100), render(unknown, picture)):
        assert "cannot be said" in text
        assert "No rank holds" not in text
    assert "No rank holds" in render_text(sound, 100)


@pytest.mark.parametrize("form", ["html", "perfetto"])
def test_scan_of_a_folder_writes_one_file_of_all_ranks(form: str, tmp_path: Path) -> None:
    write(LATE, tmp_path / "job")
    target = tmp_path / f"out.{form}"
    assert main(["scan", str(tmp_path / "job"), "--format", form, "-o", str(target)]) == 0
    text = target.read_text()
    assert all(f"rank {number}" in text for number in range(4))
