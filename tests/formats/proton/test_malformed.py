"""Damaged files of Proton: a report, or one line that says so."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tests.formats.proton.make import node, three_steps, tree
from tracemine.errors import TracemineError
from tracemine.formats import open_trace
from tracemine.pipeline import scan


def _files(folder: Path) -> list[Path]:
    leaf = node("step", node("norm_kernel", time=18_301, count=3, bytes=2.5e7), node("a.py:3@f", time=9, count=1))
    return [three_steps().written(folder), three_steps().written_by_stream(folder), tree(folder, leaf)]


def _opens(path: Path) -> bool:
    try:
        scan(path)
    except TracemineError as error:
        assert "\n" not in error.message
        return False
    return True


def test_files_that_are_cut_are_refused_or_read(tmp_path: Path) -> None:
    for path in _files(tmp_path):
        content = path.read_bytes()
        for at in range(20):
            path.write_bytes(content[: len(content) * at // 20])
            _opens(path)


def test_changed_bytes_end_in_a_report_or_one_line(tmp_path: Path) -> None:
    chance = random.Random(7)
    read = 0
    for path in _files(tmp_path):
        content = path.read_bytes()
        for _ in range(60):
            changed = bytearray(content)
            for _ in range(chance.randint(1, 8)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            path.write_bytes(changed)
            read += _opens(path)
    assert read


@pytest.mark.parametrize(
    "text",
    [
        '[{"frame": {"name": "ROOT"}, "metrics": {}, "children": [3]}]',
        '[{"frame": {"name": 7}, "metrics": {}, "children": []}]',
        '[{"frame": {"name": "ROOT"}, "metrics": {"time (ns)": 1e300}, "children": []}]',
        '[{"metrics": {"time (ns)": true}, "frame": {"name": "x"}}, {"CUDA": 3}]',
        '{"traceEvents": [{"args": {"call_stack": ["a"]}, "cat": "kernel", "ph": "X", "ts": -5, "dur": 1e300}]}',
        '{"traceEvents": [{"args": {"call_stack": [3]}, "cat": "kernel", "ph": "X", "ts": 1, "dur": 1}]}',
        '[{"children": ' * 30_000 + '"frame": {',
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    assert not _opens(path)


def test_odd_numbers_and_names_are_kept_from_the_report(tmp_path: Path) -> None:
    path = tree(
        tmp_path,
        node("", time=5, count=-1, bytes=float("1e19")),
        node("k", time=5.5, count=1e300, flops=[1, 2]),
        device={"arch": 3, "num_sms": "many", "bus_width": -1},
    )
    timeline = open_trace(path)
    assert timeline.activities["name"].to_pylist() == ["(unnamed)", "k"]
    assert timeline.activities["calls"].to_pylist() == [1, 1]
    assert timeline.activities["stated_bytes"].null_count == 2


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.hatchet.gz"
    path.write_bytes(gzip.compress(tree(tmp_path, node("k", time=5, count=1)).read_bytes()))
    assert open_trace(path).activities.num_rows == 1
    path.write_bytes(path.read_bytes()[:-12])
    assert not _opens(path)
