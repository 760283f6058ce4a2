"""Jobs with one thing planted in the program, simulated apart from what reads them: who is named, and what it costs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from tests.ranks.simulated import Program, Rank, run, true_loss, write
from tracemine.__main__ import main
from tracemine.errors import InputError
from tracemine.ranks import reading
from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.find import find_job
from tracemine.ranks.match import matched
from tracemine.ranks.reading import packed, rank_in
from tracemine.ranks.recognise import RanksRead, may_be_job, read_ranks
from tracemine.ranks.record import Job, JobFinding
from tracemine.ranks.replay import JobReplay
from tracemine.report.job import render_json

SLOW = {
    "silence": (Rank(silence_ns=2_000_000), "straggler_host"),
    "slow kernels": (Rank(slow_kernels=1.3), "straggler_gpu"),
    "more work": (Rank(more_work=1.5), "straggler_work"),
}
SHAPES: dict[str, dict[str, Any]] = {
    "device-bound": {},
    "host-bound": {"kernel_ns": 5_000},
    "eight ranks": {"ranks": 8},
    "two ranks": {"ranks": 2},
    "clocks apart": {"offset_ns": (0, 5_000_000, -3_000_000, 77_000_000)},
    "on the computing stream": {"overlapped": False},
}


USUAL = Rank()


def program(planted: Rank = USUAL, at: int = 1, ranks: int = 4, **more: Any) -> Program:
    everyone = [Rank()] * ranks
    everyone[at] = planted
    return Program(ranks=everyone, **more)


_read: dict[str, RanksRead] = {}  # of each program what its files say: several tests ask different things of one


def read_of(given: Program, folder: Path) -> RanksRead:
    if (said := repr(given)) not in _read:
        _read[said] = read_ranks(write(given, folder))
    return _read[said]


_jobs: dict[str, Job] = {}


def job_of(given: Program, folder: Path) -> Job:
    if (said := repr(given)) not in _jobs:
        _jobs[said] = find_job(read_of(given, folder), "job")
    return _jobs[said]


def stragglers(job: Job) -> list[JobFinding]:
    return [one for one in job.findings if one.rule.startswith("straggler") or one.rule == "expert_imbalance"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("what", SLOW)
def test_a_planted_rank_is_named_and_costs_what_it_costs(what: str, shape: str, tmp_path: Path) -> None:
    planted, rule = SLOW[what]
    given = program(planted, **SHAPES[shape])
    loss = true_loss(given, [Rank()] * len(given.ranks))
    job = job_of(given, tmp_path)
    step, _ = run(given, recorded=False)
    if loss < 0.03 * step:  # the host is the limit, and nothing is lost
        assert stragglers(job) == []
        return
    (found,) = stragglers(job)
    assert (found.rule, found.ranks) == (rule, (1,))
    assert found.step_saving_ns is not None
    if what == "more work":  # work does not vanish: it moves to the others
        moved = [Rank(more_work=1 + 0.5 / len(given.ranks))] * len(given.ranks)
        loss = true_loss(given, moved)
    assert found.step_saving_ns.low <= loss * 1.1
    assert found.step_saving_ns.high >= loss * 0.9
    assert found.step_saving_ns.mid == pytest.approx(loss, rel=0.25)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_none_is_named_where_nothing_is_planted(shape: str, seed: int, tmp_path: Path) -> None:
    given = program(seed=seed, **SHAPES[shape])
    assert stragglers(job_of(given, tmp_path)) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_none_is_named_whose_host_recording_alone_slows_down(shape: str, tmp_path: Path) -> None:
    given = program(Rank(recorded_host=2.0), **SHAPES[shape])
    assert stragglers(job_of(given, tmp_path)) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_without_the_profiler_lies_in_its_interval(shape: str, tmp_path: Path) -> None:
    given = program(**SHAPES[shape])
    job = job_of(given, tmp_path)
    true, _ = run(given, recorded=False)
    assert job.step_ns.low <= true <= job.step_ns.high * 1.001
    assert job.step_ns.mid == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_ranks_time_is_its_own_and_what_it_waits(shape: str, tmp_path: Path) -> None:
    for rank in read_of(program(Rank(slow_kernels=1.3), **SHAPES[shape]), tmp_path).ranks:
        whole = rank.window[1] - rank.window[0]
        assert int(rank.stretches.own.sum()) + int(rank.wait_ns_by_step.sum()) == whole
        assert (rank.exposed >= 0).all()
        assert (rank.exposed <= rank.dur).all()
        assert (rank.stretches.busy <= rank.stretches.own + 1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_unchanged_replay_ends_when_the_job_did(shape: str, tmp_path: Path) -> None:
    job = job_of(program(Rank(silence_ns=2_000_000), **SHAPES[shape]), tmp_path)
    assert job.replay_error_percent is not None
    assert job.replay_error_percent < 1.0
    assert job.unmatched == {}


def test_clocks_are_found(tmp_path: Path) -> None:
    offsets = (0, 5_000_000, -3_000_000, 77_000_000)
    job = job_of(program(offset_ns=offsets), tmp_path)
    for rank, offset in zip(job.ranks, offsets, strict=True):
        assert rank.clock_offset_ns is not None
        assert rank.clock_bound_ns is not None
        assert abs(rank.clock_offset_ns + offset) <= 5_000
        assert abs(rank.clock_offset_ns + offset) <= rank.clock_bound_ns


def test_a_rank_that_is_missing_or_damaged_is_named_and_the_others_are_reported(tmp_path: Path) -> None:
    paths = write(program(Rank(silence_ns=2_000_000)), tmp_path)
    paths[3].write_text("{")
    paths[0].unlink()
    read = read_ranks([path for path in paths if path.exists()])
    job = find_job(read, "job")
    assert list(read.left_out) == ["rank3.json"]
    assert [rank.rank for rank in job.ranks] == [1, 2]
    assert any("2 of 4 ranks are recorded" in note for note in job.notes)
    assert [one.ranks for one in stragglers(job)] == [(1,)]


def test_a_rank_whose_file_is_cut_off_is_left_out_whatever_is_left_of_it(tmp_path: Path) -> None:
    paths = write(program(), tmp_path)
    text = paths[2].read_text()
    paths[2].write_text(text[: len(text) - 400])
    read = read_ranks(paths)
    assert (list(read.left_out), [rank.rank for rank in read.ranks]) == (["rank2.json"], [0, 1, 3])
    assert "cut off" in read.left_out["rank2.json"]


def test_of_two_recordings_of_a_rank_the_later_is_kept(tmp_path: Path) -> None:
    write(program(), tmp_path / "first")
    write(program(offset_ns=[10**9] * 4), tmp_path / "second")
    read = read_ranks(sorted(tmp_path.rglob("*.json")))
    begins = {rank.window[0] // 10**9 for rank in read.ranks}
    assert begins == {2}
    assert len(read.ranks) == 4
    assert len(read.left_out) == 4 or set(read.left_out) == {f"rank{rank}.json" for rank in range(4)}


def test_a_folder_of_several_jobs_is_an_error_that_says_how_to_scan_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        write(Program(ranks=[Rank()] * 2), tmp_path / name)
    assert main(["scan", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "holds 2 jobs of several ranks" in said
    assert f"tracemine fleet {tmp_path} -o fleet/" in said
    assert main(["scan", str(tmp_path / "first"), "-q"]) == 0


def test_another_jobs_rank_is_left_out(tmp_path: Path) -> None:
    write(program(ranks=4), tmp_path)
    (other,) = write(program(ranks=6), tmp_path / "other")[5:]
    read = read_ranks([*sorted(tmp_path.glob("rank*.json")), other])
    assert [rank.rank for rank in read.ranks] == [0, 1, 2, 3]
    assert "is of a job of 6 ranks" in read.left_out["rank5.json"]


def test_ranks_are_recognised_by_header_and_by_name(tmp_path: Path) -> None:
    by_header = write(program(), tmp_path / "header")
    by_name = write(program(), tmp_path / "name", distributed=False)
    renamed = [path.rename(path.with_name(f"host_{100 + at}.pt.trace.json")) for at, path in enumerate(by_header)]
    unnamed = [path.rename(path.with_name(f"run{at}.json")) for at, path in enumerate(by_name[:2])]
    assert may_be_job(renamed)
    assert may_be_job(by_name[2:])
    assert not may_be_job(unnamed)
    assert not may_be_job(renamed[:1])


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.json", 3), ("rank12_trace.json", 12), ("worker7_step_12.1694.pt.trace.json", 7),
        ("1700-TP-2.trace.json.gz", 2), ("frank1.json", None), ("host_17.1694.pt.trace.json", None),
    ],
)  # fmt: skip
def test_names_of_frameworks(name: str, rank: int | None) -> None:
    assert rank_in(name) == rank


def test_what_is_equal_on_all_ranks_is_found_once(tmp_path: Path) -> None:
    job = job_of(program(overlapped=False), tmp_path)
    exposed: Sequence[JobFinding] = [one for one in job.findings if one.rule == "exposed_collective"]
    assert [one.ranks for one in exposed] == [(0, 1, 2, 3)]
    saving = exposed[0].step_saving_ns
    assert saving is not None
    given = program(overlapped=False)
    hidden, _ = run(replace(given, transfer_ns=0), recorded=False)
    gain = run(given, recorded=False)[0] - hidden
    assert saving.low <= gain <= saving.high * 1.05


def test_a_tail_that_nothing_can_hide_is_no_finding(tmp_path: Path) -> None:
    assert [one.rule for one in job_of(program(), tmp_path).findings] == []


def test_ranks_that_wait_in_a_circle_are_an_error_not_a_hang(tmp_path: Path) -> None:
    read = read_ranks(write(program(ranks=2), tmp_path))
    first, second = read.ranks
    matches = matched(read.ranks)
    (block,) = matches.blocks
    crossed = block.at.copy()
    crossed[[-3, -1], 1] = crossed[[-1, -3], 1]
    of = changed(matches, blocks=(changed(block, at=crossed),))
    with pytest.raises(InputError, match="circle"):
        JobReplay((first, second), of, clocks_of(read.ranks, matches.blocks))


def test_processes_read_what_one_reads_and_name_what_is_damaged(tmp_path: Path) -> None:
    paths = write(program(Rank(silence_ns=2_000_000), ranks=6), tmp_path)
    damaged = dict(zip(paths[2:5], ("{", "", '{"traceEvents": [{"ph": "X"}]}'), strict=True))
    for path, text in damaged.items():
        path.write_text(text)
    alone, together = (read_ranks(paths, processes=count) for count in (1, 2))
    assert together.left_out == alone.left_out
    assert list(alone.left_out) == [path.name for path in damaged]
    assert render_json(find_job(together, "job")) == render_json(find_job(alone, "job"))


def test_a_file_whose_process_is_lost_is_read_again_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(program(), tmp_path)
    monkeypatch.setattr(reading, "worker", lambda module: (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"))
    read = read_ranks(paths, processes=2)
    assert read.ranks == ()
    assert set(read.left_out) == {path.name for path in paths}
    assert "the process that read it" in read.left_out["rank0.json"]


def test_of_two_late_ranks_one_saves_no_more_than_the_other_leaves(tmp_path: Path) -> None:
    other = Rank(silence_ns=4_000_000, loads=True)
    given = program(Rank(silence_ns=6_000_000), overlapped=False)
    given = replace(given, ranks=[*given.ranks[:2], other, *given.ranks[3:]])
    loss = true_loss(given, [Rank(), Rank(), other, Rank()])
    late = stragglers(job_of(given, tmp_path))[0]
    assert (late.rule, late.ranks) == ("straggler_host", (1,))
    assert late.step_saving_ns is not None
    assert late.step_saving_ns.mid == pytest.approx(loss, rel=0.3)


def test_of_two_ranks_with_more_work_each_saves_what_moves_from_it(tmp_path: Path) -> None:
    given = program(Rank(more_work=1.8), ranks=8)
    given = replace(given, ranks=[*given.ranks[:2], Rank(more_work=1.4), *given.ranks[3:]])
    loss = true_loss(given, [Rank(more_work=1.1), Rank(more_work=1.1), Rank(more_work=1.5), *[Rank(more_work=1.1)] * 5])
    named = stragglers(job_of(given, tmp_path))
    assert [(one.rule, one.ranks) for one in named] == [("straggler_work", (1,))]
    assert named[0].step_saving_ns is not None
    assert named[0].step_saving_ns.mid == pytest.approx(loss, rel=0.1)


def test_what_others_wait_for_and_is_not_recorded_makes_no_link_slow_and_no_transfer_long(tmp_path: Path) -> None:
    paths = write(program(Rank(silence_ns=20_000_000)), tmp_path)
    assert [one.rule for one in find_job(read_ranks(paths[:1] + paths[2:]), "job").findings] == []


@pytest.mark.parametrize(("at", "processes"), [(1, 1), (3, 2)])
def test_of_ranks_that_recorded_other_steps_those_count_that_all_did(at: int, processes: int, tmp_path: Path) -> None:
    given = program(Rank(silence_ns=2_000_000), steps=7)
    paths = write(given, tmp_path)
    document = json.loads(paths[at].read_text())
    marks = sorted(each["ts"] for each in document["traceEvents"] if each["name"].startswith("ProfilerStep"))
    document["traceEvents"] = [each for each in document["traceEvents"] if each["ts"] >= marks[3]]
    paths[at].write_text(json.dumps(document))
    read = read_ranks(paths, processes=processes)
    assert {rank.numbers for rank in read.ranks} == {(4, 5, 6)}
    job = find_job(read, "job")
    assert job.step_ns.mid == pytest.approx(run(given, recorded=False)[0], rel=0.1)
    assert [(one.rule, one.ranks) for one in stragglers(job)] == [("straggler_host", (1,))]


def test_a_summary_of_many_collectives_is_small(tmp_path: Path) -> None:
    (first, *_) = read_ranks(write(program(layers=60, kernels=1, steps=8), tmp_path)).ranks
    assert len(first.start) > 400
    assert len(packed([first])) / len(first.start) < 200  # bytes of each: 1 MB of 5,000


def test_scan_of_a_folder_names_a_damaged_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(program(Rank(silence_ns=2_000_000)), tmp_path)
    paths[2].write_text('{"distributedInfo": {"rank": 2, "world_size": 4}, "traceEvents": [')
    main(["scan", str(tmp_path)])
    said = capsys.readouterr()
    assert "rank2.json" in said.out + said.err
    assert "Rank 1's host is late" in said.out


def test_ranks_that_wait_in_what_nothing_records_widen_the_saving_and_are_named(tmp_path: Path) -> None:
    given = program(Rank(tail_ns=20_000_000), barrier=True)
    moved = [Rank(tail_ns=5_000_000)] * 4
    loss = true_loss(given, moved)
    job = job_of(given, tmp_path)
    (late,) = stragglers(job)
    assert (late.rule, late.ranks) == ("straggler_work", (1,))
    assert late.step_saving_ns is not None
    assert late.step_saving_ns.low <= 0.3 * loss  # if the others' idle time is their own
    assert late.step_saving_ns.high >= 0.9 * loss
    (barrier,) = [one for one in job.findings if one.rule == "unrecorded_barrier"]
    assert (barrier.ranks, barrier.step_saving_ns) == ((0, 2, 3), None)


@pytest.mark.parametrize("planted", [Rank(), Rank(silence_ns=2_000_000), Rank(slow_kernels=1.3)])
def test_a_barrier_that_nobody_is_waited_for_in_is_not_named(planted: Rank, tmp_path: Path) -> None:
    for barrier in (False, True):
        job = job_of(program(planted, barrier=barrier), tmp_path / str(barrier))
        assert "unrecorded_barrier" not in {one.rule for one in job.findings}


def _uneven(job: Job) -> list[JobFinding]:
    return [one for one in job.findings if one.rule == "length_imbalance"]


def test_work_that_differs_by_another_rank_in_each_step_is_no_straggler_but_lengths(tmp_path: Path) -> None:
    given = program(ranks=12, lengths=0.3, steps=6)
    loss = run(given, recorded=False)[0] - run(replace(given, lengths=0.0), recorded=False)[0]
    job = job_of(given, tmp_path)
    (found,) = _uneven(job)
    assert stragglers(job) == []
    assert found.ranks == tuple(range(12))
    assert found.step_saving_ns is not None
    assert found.step_saving_ns.mid == pytest.approx(loss, rel=0.25)


@pytest.mark.parametrize(
    "near", [{}, {"lengths": 0.02}, {"planted": Rank(slow_kernels=1.3)}, {"kernel_ns": 5_000, "lengths": 0.3}]
)
def test_equal_work_one_slow_rank_and_hosts_that_are_the_limit_are_no_lengths(
    near: dict[str, Any], tmp_path: Path
) -> None:
    assert _uneven(job_of(program(ranks=12, steps=6, **near), tmp_path)) == []
