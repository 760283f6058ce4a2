"""Ranks that one file holds: processes under one nsys, each with its device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.formats.nsys.make import PROCESS, Export
from tracemine.formats import open_trace
from tracemine.formats.nsys import holds_ranks
from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.match import matched
from tracemine.ranks.reading import ranks_apart
from tracemine.ranks.recognise import may_be_job, read_ranks

NEXT = 1 << 24  # process
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
US = 1_000


def export(processes: int, devices: int = 1, kernel: str = NCCL) -> Export:
    """Ranks whose reductions end 7 µs apart though their clock is one; the second one comes late."""
    made = Export()
    for process in range(processes):
        own = {"globalPid": PROCESS + process * NEXT}
        for device in range(devices):
            rank = process * devices + device
            for turn in range(6):
                begin, number = (10 + turn * 100) * US, 1 + 100 * rank + turn * 2
                thread = PROCESS + process * NEXT + 5
                for at, name in enumerate(("gemm", kernel)):
                    made.call(begin + at * 2 * US, begin + at * 2 * US + US, number + at, globalTid=thread)
                    start = begin + 5 * US + at * (20 + 10 * rank) * US
                    end = begin + (80 + 7 * rank) * US if at else start + (15 + 10 * rank) * US
                    made.kernel(start, end, number + at, name=name, deviceId=rank, **own)
    return made


def test_each_process_is_a_rank_by_the_files_one_clock(tmp_path: Path) -> None:
    path = export(2).write(tmp_path / "job.sqlite")
    assert holds_ranks(path)
    assert may_be_job([path])
    read = read_ranks([path])
    assert [(rank.rank, rank.file) for rank in read.ranks] == [
        (0, "job.sqlite (rank 0)"), (1, "job.sqlite (rank 1)"),
    ]  # fmt: skip
    matches = matched(read.ranks)
    assert len(matches) == 6
    assert matches.blocks[0].synchronises.all()
    clocks = clocks_of(read.ranks, matches.blocks)
    assert (clocks.offset_ns.tolist(), clocks.bound_ns.tolist()) == ([0, 0], [0, 0])


def test_a_rank_has_its_own_activities_calls_and_none_of_the_others(tmp_path: Path) -> None:
    first, second = ranks_apart(open_trace(export(2).write(tmp_path / "job.sqlite")))
    for rank, timeline in enumerate((first, second)):
        assert set(timeline.activities["device"].to_pylist()) == {rank}
        assert timeline.meta.rank == rank
        launches = timeline.api["start_ns"].take(timeline.activities["launch_row"].drop_null())
        assert len(launches) == timeline.activities.num_rows == 12
        assert (np.asarray(launches) < np.asarray(timeline.activities["start_ns"])).all()


def test_devices_of_one_process_are_ranks_with_one_host(tmp_path: Path) -> None:
    ranks = ranks_apart(open_trace(export(1, devices=2).write(tmp_path / "job.sqlite")))
    assert [set(rank.activities["device"].to_pylist()) for rank in ranks] == [{0}, {1}]
    assert ranks[0].api.num_rows == ranks[1].api.num_rows == 24


@pytest.mark.parametrize("made", [export(1), export(2, kernel="reduce_kernel"), Export().kernel(0, 5)])
def test_one_rank_and_processes_that_do_not_communicate_are_no_job(made: Export, tmp_path: Path) -> None:
    path = made.write(tmp_path / "job.sqlite")
    assert not holds_ranks(path)
    assert len(ranks_apart(open_trace(path))) == 1


def test_a_file_that_is_no_database_or_damaged_holds_no_ranks(tmp_path: Path) -> None:
    for content in (b"", b"{}", b"SQLite format 3\0", b"SQLite format 3\0" + b"\1" * 5_000):
        (tmp_path / "f").write_bytes(content)
        assert not holds_ranks(tmp_path / "f")
