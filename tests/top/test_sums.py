"""What tables add up to: against sums over raw events that read the file with json, event by event."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.answers.top_totals import compared
from tests.screens import Events, Reading, in_turn
from tests.top.raw import Recording, brute
from tracemine.api.pictures import tops_of
from tracemine.errors import InputError
from tracemine.pipeline import ScanOptions, analyse, mined
from tracemine.top import BY, Top

TRACES = os.environ.get("TRACEMINE_COMPAT_TRACES")
ROOT = Path(__file__).parents[2]
FIXTURES = sorted([*(ROOT / "fixtures/kineto").glob("*.json.gz"), *(ROOT / "fixtures/nsys").glob("*.sqlite")])


def tops(path: Path, *, whole: bool = False) -> dict[str, Top]:
    analysis = analyse(path)
    found = tops_of(analysis, mined(analysis), ScanOptions(), whole=whole)
    return {by: found.by(by) for by in BY}


def faults(found: dict[str, Top], expected: dict[str, object]) -> list[str]:
    """What in tables is not as raw events say."""
    wrong = []
    for by in ("kernel", "operator", "stream", "device"):
        sums = {row.name: row.gpu_time_ns for row in found[by].rows}
        if sums != expected[by]:
            wrong.append(f"{by}: {sums} != {expected[by]}")
    for by, top in found.items():
        outermost = [row for row in top.rows if row.parent is None]
        if sum(row.gpu_time_ns for row in outermost) != top.gpu_time_ns:
            wrong.append(f"{by}: rows are not all")
        if top.rows and abs(sum(row.share for row in outermost) - 1) > 1e-4 and top.gpu_time_ns:
            wrong.append(f"{by}: shares are not one")
        if sum(row.own_ns for row in top.rows) != top.gpu_time_ns:
            wrong.append(f"{by}: own times are not all")
        if sum(left.gpu_time_ns for left in top.left_out) != expected["outside"]:
            wrong.append(f"{by}: left out {top.left_out} != {expected['outside']}")
        if top.busy_ns != expected["busy"]:
            wrong.append(f"{by}: busy {top.busy_ns} != {expected['busy']}")
    return wrong


PIECE = st.tuples(
    st.sampled_from(("small", "large", "other")),
    st.sampled_from(("aten::add", "aten::mul", None)),
    st.integers(0, 1),  # device
    st.sampled_from((7, 20)),  # stream
    st.integers(0, 40),  # duration
    st.integers(0, 15),  # rest before it
)


def recorded(pieces: list[tuple[str, str | None, int, int, int, int]], steps: int) -> Recording:
    made, ends = Recording(), dict[tuple[int, int], int]()
    for at, (name, op, device, stream, dur, rest) in enumerate(pieces):
        launch = 1000 + 10 * at
        begin = max(launch + 3, ends.get((device, stream), 0)) + rest
        ends[device, stream] = begin + dur
        made.kernel(name, launch, begin, dur, op=op, device=device, stream=stream)
    half = len(pieces) // 3
    for number in range(steps):  # what comes last lies in no step
        made.step(1000 + 10 * half * number - 5, 1000 + 10 * half * (number + 1) - 5, number)
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECE, min_size=6, max_size=24), st.sampled_from((0, 2)))
def test_tables_add_up_to_what_raw_events_say(
    pieces: list[tuple[str, str | None, int, int, int, int]], steps: int
) -> None:
    with TemporaryDirectory() as folder:
        path = recorded(pieces, steps).written(Path(folder))
        found = tops(path, whole=steps == 0)
        assert faults(found, brute(path)) == []


def test_a_fault_is_noticed(tmp_path: Path) -> None:
    pieces: list[tuple[str, str | None, int, int, int, int]] = [
        ("small", "aten::add", 0, 7 + 13 * (at % 2), 20, 0) for at in range(9)
    ]
    path = recorded(pieces, 2).written(tmp_path)
    found = tops(path)
    assert faults(found, brute(path)) == []
    damages: tuple[Callable[[Top], Top], ...] = (
        lambda top: replace(top, rows=top.rows[1:]),
        lambda top: replace(top, busy_ns=top.gpu_time_ns),
        lambda top: replace(top, left_out=()),
        lambda top: replace(top, rows=(replace(top.rows[0], own_ns=top.rows[0].own_ns + 1), *top.rows[1:])),
    )
    for damage in damages:
        assert faults({by: damage(top) for by, top in found.items()}, brute(path)) != []


def test_what_overlaps_is_said_and_adds_up(tmp_path: Path) -> None:
    made = Recording()
    made.kernel("one", 100, 110, 50, stream=7)
    made.kernel("two", 105, 120, 50, stream=20)
    made.kernel("none", 120, 130, 0, stream=30)
    top = tops(made.written(tmp_path))["stream"]
    assert (top.gpu_time_ns, top.busy_ns, top.overlap_ns) == (100_000, 60_000, 40_000)
    assert [row.busy_ns for row in top.rows] == [50_000, 50_000, 0]
    assert sum(row.share for row in top.rows) == 1


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_gpu_time_is_that_of_the_file(path: Path) -> None:
    ours, raw, _ = compared(path)
    assert ours == raw


@pytest.mark.skipif(not TRACES, reason="TRACEMINE_COMPAT_TRACES is not set")
def test_gpu_time_of_traces_in_the_wild_is_that_of_their_files(
    reading: Callable[[Path], Reading], gpu_events: Callable[[Path], Events]
) -> None:
    seen, apart = 0, []
    for path in in_turn(sorted(Path(TRACES or "").glob("kineto/*.json.gz"))):
        try:
            read = reading(path)
        except InputError:
            continue
        ours, raw = read.gpu_time_ns, gpu_events(path).rounded_ns
        seen += 1
        if abs(ours - raw) > raw / 1000 and not read.reason:  # what was left out is said
            apart.append((path.name, ours, raw))
    assert seen >= 20
    assert apart == []
