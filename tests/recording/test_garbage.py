"""Collections of garbage are timed while the whole window records, and count for the line in which they come."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import torch

import tracemine
from tracemine.api.pictures import tops_of
from tracemine.pipeline import ScanOptions, analyse, mined
from tracemine.recording.profilers import GarbageClock


def collected() -> None:
    torch.ones(8).sum()
    gc.collect()
    torch.ones(8).sum()


def test_they_count_for_their_line(tmp_path: Path) -> None:
    before = list(gc.callbacks)
    with tracemine.capture(tmp_path / "run", steps=1, warmup=1, timed=1, quiet=True) as recording:
        for _ in recording.steps():
            collected()
    assert gc.callbacks == before
    spans = json.loads((tmp_path / "run" / "capture.json").read_text())["garbage_ns"]
    longest = max(end - begin for begin, end, _ in spans)
    analysis = analyse(tmp_path / "run")
    top = tops_of(analysis, mined(analysis), ScanOptions()).host("tree")
    kinds = {kind.kind: kind.host_ns for kind in top.kinds}
    assert longest <= (kinds["garbage_collection"] or 0) <= sum(end - begin for begin, end, _ in spans)
    assert kinds["lock"] is None
    row = max((row for row in top.rows if row.kind == "garbage_collection"), key=lambda row: row.host_ns)
    assert row.host_ns >= longest and row.parent is not None
    assert (top.rows[row.parent].name or "").endswith(f":{collected.__code__.co_firstlineno} collected")


def test_a_window_without_one_says_that_there_was_none(tmp_path: Path) -> None:
    gc.disable()
    try:
        with tracemine.capture(tmp_path / "run", steps=1, warmup=0, timed=0, quiet=True) as recording:
            for _ in recording.steps():
                torch.ones(8).sum()
    finally:
        gc.enable()
    analysis = analyse(tmp_path / "run")
    top = tops_of(analysis, mined(analysis), ScanOptions()).host("tree")
    assert {kind.kind: kind.host_ns for kind in top.kinds}["garbage_collection"] == 0


def test_more_than_a_file_holds_are_not_told_in_part() -> None:
    clock = GarbageClock()
    clock.begin()
    try:
        for _ in range(4_002):
            gc.collect(0)
        assert clock.spans_ns is None
    finally:
        clock.end()
