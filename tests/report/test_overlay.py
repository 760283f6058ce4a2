"""Findings over their trace: slices that no viewer refuses, at the times of the trace's own file."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracemine
from tests.report.scans import GAP, HOSTILE_STRINGS, SCAN, hostile
from tests.report.test_html import activities
from tracemine.errors import InputError, UsageError
from tracemine.formats.kineto.insert import with_events
from tracemine.formats.source import FileSource
from tracemine.report.overlay import PROCESS, TraceSlice, events, idle_since_ns, overlay, slices_of, tracks

FIXTURES = Path(__file__).parents[2] / "fixtures"
PREFILL = FIXTURES / "kineto" / "decoder_prefill.json.gz"
Run = Callable[..., tuple[int, str, str]]


def read(path: Path) -> Any:
    content = path.read_bytes()
    return json.loads(gzip.decompress(content) if path.suffix == ".gz" else content, parse_float=str)


def ns(text: str) -> int:
    """Microseconds as the file writes them, in nanoseconds."""
    whole, _, part = str(text).partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0") or 0)


def partly_overlap(one: TraceSlice, other: TraceSlice) -> bool:
    first, second = sorted((one, other), key=lambda each: (each.begin_ns, -each.end_ns))
    return second.begin_ns < first.end_ns < second.end_ns


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=30))
def test_slices_of_a_track_nest_or_stand_apart(given_: list[tuple[int, int]]) -> None:
    slices = [TraceSlice(begin, begin + length, number) for number, (begin, length) in enumerate(given_)]
    found = tracks(slices)
    assert sorted(at for track in found for at in track) == list(range(len(slices)))
    for track in found:
        members = [slices[at] for at in track]
        assert not any(partly_overlap(one, other) for one in members for other in members)
    starts = [slices[at].begin_ns for track in found[:1] for at in track]
    assert starts == sorted(starts)


def test_a_second_track_is_only_made_where_it_is_needed() -> None:
    assert tracks([TraceSlice(0, 10, 1), TraceSlice(10, 20, 2), TraceSlice(12, 15, 3)]) == [[0, 1, 2]]
    assert tracks([TraceSlice(0, 10, 1), TraceSlice(9, 20, 2)]) == [[0], [1]]


@pytest.mark.parametrize("name", ["decoder_prefill", "convnet_train", "decoder_decode_graph", "compiled_loop"])
def test_slices_begin_and_end_with_kernels_of_the_file(name: str, tmp_path: Path) -> None:
    path = FIXTURES / "kineto" / f"{name}.json.gz"
    trace = read(path)
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    ran = [event for event in trace["traceEvents"] if event.get("cat") in kinds]
    starts, ends = {ns(one["ts"]) for one in ran}, {ns(one["ts"]) + ns(one["dur"]) for one in ran}
    report = tracemine.scan(path)
    report.to_perfetto(tmp_path / "findings.json.gz")
    found = read(tmp_path / "findings.json.gz")
    assert found["baseTimeNanoseconds"] == trace.get("baseTimeNanoseconds", 0)
    slices = [event for event in found["traceEvents"] if event["ph"] == "X"]
    assert slices
    idle = {finding.fingerprint for finding in report if not finding.on_gpu}
    for one in slices:
        begin, end = ns(one["ts"]), ns(one["ts"]) + ns(one["dur"])
        if one["args"]["fingerprint"] in idle:  # between an end and a start
            assert (begin in ends or begin == end) and end in starts
        else:
            assert begin in starts and end in ends
    counted = {finding.fingerprint: finding.occurrences for finding in report if finding.on_gpu}
    for fingerprint, occurrences in counted.items():
        assert sum(one["args"]["fingerprint"] == fingerprint for one in slices) == occurrences


def test_a_rule_is_a_track_and_no_track_overlaps_partly(tmp_path: Path) -> None:
    found = json.loads(tracemine.scan(FIXTURES / "captures" / "convnet_train").to_perfetto())["traceEvents"]
    assert {event["pid"] for event in found} == {PROCESS}
    names = {event["tid"]: event["args"]["name"] for event in found if event["name"] == "thread_name"}
    of_track: dict[int, list[TraceSlice]] = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            begin = ns(event["ts"])
            of_track[event["tid"]].append(TraceSlice(begin, begin + ns(event["dur"]), 0))
            assert names[event["tid"]].partition(" (")[0] == event["args"]["rule"]
    assert set(of_track) == set(names)
    for track in of_track.values():
        assert not any(partly_overlap(one, other) for one in track for other in track)


def test_an_idle_gap_is_the_time_in_which_the_device_did_nothing() -> None:
    ran = activities("a")  # 60 ns each, every 100 ns
    gap = GAP.__class__(**{name: getattr(GAP, name) for name in GAP.__struct_fields__} | {"activities": ((0, 3),)})
    clock = ran.begin_ns
    assert slices_of(gap, ran, idle_since_ns(ran)) == [
        TraceSlice(clock, clock, 1),
        TraceSlice(clock + 260, clock + 300, 1),
    ]


@pytest.mark.parametrize("text", HOSTILE_STRINGS)
def test_names_are_texts_and_events_stay_json(text: str) -> None:
    made = json.loads(b"".join(overlay(hostile(text), activities(text, count=200))))["traceEvents"]
    ordinary = json.loads(b"".join(overlay(hostile("name"), activities("name", count=200))))["traceEvents"]
    assert [event.keys() for event in made] == [event.keys() for event in ordinary]


def test_rows_that_are_no_activity_are_left_out() -> None:
    assert [json.loads(event)["ph"] for event in events(SCAN, activities("a", count=0))] == ["M", "M"]


def test_what_was_loaded_does_not_know_when_activities_ran(tmp_path: Path) -> None:
    tracemine.scan(FIXTURES / "captures" / "chain").to_json(tmp_path / "findings.json")
    with pytest.raises(UsageError, match="does not hold when activities ran"):
        tracemine.load(tmp_path / "findings.json").to_perfetto()


# --- both in one file -------------------------------------------------------------------------------------------------


def test_a_merged_trace_has_all_of_the_trace_and_the_findings(run: Run, tmp_path: Path) -> None:
    alone, both = tmp_path / "findings.json", tmp_path / "both.json.gz"
    assert tracemine.scan(PREFILL).to_perfetto(alone)
    code, _, said = run("scan", PREFILL, "--format", "perfetto", "-o", both)
    assert (code, "and the trace; open it in" in said) == (0, True)
    trace, merged = read(PREFILL), read(both)
    added = read(alone)["traceEvents"]
    assert merged.pop("traceEvents") == added + trace.pop("traceEvents")
    assert merged == trace
    before, after = (tracemine.scan(path) for path in (PREFILL, both))
    assert [one.fingerprint for one in before] == [one.fingerprint for one in after]
    assert before.summary == after.summary


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        (b'{"a": 1, "traceEvents": []}', {"a": 1, "traceEvents": [{"new": 1}, {"new": 2}]}),
        (b'{"traceEvents": [\n {"x": 1}], "z": 2}', {"traceEvents": [{"new": 1}, {"new": 2}, {"x": 1}], "z": 2}),
        (b'[{"x": 1}]', [{"new": 1}, {"new": 2}, {"x": 1}]),
        (b"  [ ]", [{"new": 1}, {"new": 2}]),
        (b'{"t": "\\"traceEvents\\": [", "traceEvents": [{}]}', None),
    ],
)
def test_events_go_before_the_first(text: bytes, merged: Any, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(text)
    with FileSource(tmp_path / "t.json") as source:
        found = json.loads(b"".join(with_events(source, [b'{"new":1}', b'{"new":2}'])))
    if merged is None:
        assert found["traceEvents"] == [{"new": 1}, {"new": 2}, {}]
    else:
        assert found == merged


@pytest.mark.parametrize("text", [b'{"a": 1}', b'{"traceEvents": {}}', b'{"a": '])
def test_what_has_no_list_of_events_is_an_error(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(text)
    with FileSource(tmp_path / "t.json") as source, pytest.raises(InputError, match="no list of traceEvents"):
        b"".join(with_events(source, [b"{}"]))


class Endless:
    """A trace of many events that lies nowhere."""

    path, truncated, size, position = "endless.json", False, 0, 0

    def __init__(self, events_: int) -> None:
        self.left = self.pieces(events_)
        self.rest = b""

    @staticmethod
    def pieces(count: int) -> Iterator[bytes]:
        yield b'{"traceEvents": [{"n": 0}'
        for _ in range(count):
            yield b',{"ph": "X", "name": "kernel", "ts": 1.5, "dur": 2.5}' * 1000
        yield b"]}"

    def readinto(self, view: memoryview) -> int:
        while len(self.rest) < len(view) and (piece := next(self.left, b"")):
            self.rest += piece
        count = min(len(view), len(self.rest))
        view[:count], self.rest = self.rest[:count], self.rest[count:]
        return count


def test_merging_holds_little_of_a_long_trace() -> None:
    tracemalloc.start()
    total = sum(map(len, with_events(Endless(1000), [b"{}"] * 10)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total > 50_000_000
    assert peak < 12_000_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("no/such.json",), "there is no such file"),
        ((FIXTURES / "captures",), "--format perfetto: belongs to one trace, and 5 are named"),
    ],
)
def test_what_cannot_be_merged_is_said(arguments: tuple[object, ...], says: str, run: Run, tmp_path: Path) -> None:
    code, _, said = run("scan", *arguments, "-f", "perfetto", "-o", tmp_path / "both.json", "--quiet")
    assert (code, says in said) == (2, True), said
    assert not (tmp_path / "both.json").exists()


def test_an_export_of_another_profiler_has_an_overlay_of_its_own(run: Run, tmp_path: Path) -> None:
    assert (
        run("scan", FIXTURES / "nsys" / "block_train.sqlite", "-f", "perfetto", "-o", tmp_path / "o.json", "-q")[0] == 0
    )
    assert any(event["ph"] == "X" for event in read(tmp_path / "o.json")["traceEvents"])
