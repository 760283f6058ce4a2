"""Ranks read by a Ray cluster are those that this machine's processes read, row for row."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ranks.simulated import Program, Rank, write
from tracemine.__main__ import main
from tracemine.errors import UsageError
from tracemine.ranks.find import find_job
from tracemine.ranks.reading import packed, read_each, read_on_ray
from tracemine.ranks.recognise import read_ranks


class LostNodeError(Exception):
    """What a cluster says of a task whose nodes were all lost."""


def cluster(lost: int = -1) -> Any:
    """Stand in for Ray: it does each task when it is asked for, and loses one."""

    def remote(**_: object) -> Callable[[Callable[[bytes], bytes]], Any]:
        return lambda do: SimpleNamespace(remote=lambda line: (do, line))

    asked: list[bytes] = []

    def get(task: tuple[Callable[[bytes], bytes], bytes]) -> bytes:
        asked.append(task[1])
        if len(asked) - 1 == lost:
            raise LostNodeError("the node died")
        return task[0](task[1])

    errors = SimpleNamespace(RayError=LostNodeError)
    return SimpleNamespace(init=lambda **_: None, shutdown=lambda: None, remote=remote, get=get, exceptions=errors)


def test_a_cluster_reads_what_processes_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(Program([Rank()] * 3, layers=2, kernels=2), tmp_path)
    paths[1].write_text("[]")
    monkeypatch.setitem(sys.modules, "ray", cluster())
    here, there = read_each(paths, 2), read_on_ray("auto", paths)
    assert list(map(packed, here)) == list(map(packed, there))


def test_a_file_that_the_cluster_loses_is_named_and_the_job_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(Program([Rank()] * 3, layers=2, kernels=2), tmp_path)
    monkeypatch.setitem(sys.modules, "ray", cluster(lost=2))
    read = read_ranks(paths, read=lambda each: read_on_ray("auto", each))
    assert read.left_out == {"rank2.json": "could not be read on the cluster: the node died"}
    job = find_job(read, "job")
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert any("2 of 3 ranks are recorded" in note for note in job.notes)


def test_without_ray_its_option_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="not installed"):
        list(read_on_ray("auto", []))
    write(Program([Rank()] * 2, layers=2, kernels=2), tmp_path)
    assert main(["scan", "-q", str(tmp_path), "--ray", "auto"]) == 2
    assert main(["scan", "-q", str(tmp_path / "rank0.json"), "--ray", "auto"]) == 2


@pytest.mark.filterwarnings("ignore")
def test_ray_itself_reads_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed here: pip install ray")
    paths = write(Program([Rank()] * 3, layers=2, kernels=2), tmp_path)
    assert list(map(packed, read_on_ray("local", paths))) == list(map(packed, read_each(paths, 1)))
