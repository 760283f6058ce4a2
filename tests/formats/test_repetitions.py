"""Events that stand in a file twice are read once: a trace and its double are one and the same timeline."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import tracemine
from tests.formats.kineto_file import Event, call, event, frame, kernel, op, timeline
from tests.formats.nsys.test_jsonlines import events as json_events
from tests.formats.nsys.test_jsonlines import strings
from tests.formats.nsys.test_jsonlines import written as json_lines
from tests.formats.nsys.test_schemas import recording
from tests.formats.nsys.test_stats import _GPU, _GPU_ROWS
from tests.formats.nsys.test_stats import written as stats
from tracemine.formats import open_trace
from tracemine.formats.kineto import decoder
from tracemine.formats.kineto.read import assemble
from tracemine.formats.kineto.scanner import scan
from tracemine.formats.repetitions import REPEATED
from tracemine.formats.source import FileSource
from tracemine.timeline import TABLES, IngestReport, Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures"
TRACES = sorted((FIXTURES / "kineto").glob("*.json.gz"))
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
DOUBLED: dict[str, Callable[[list[Event]], list[Event]]] = {
    "each twice": lambda events: [copy for each in events for copy in (each, each)],
    "those of the device twice": lambda events: [
        copy for each in events for copy in (each,) * (1 + (each.get("cat") in DEVICE))
    ],
    "all once more": lambda events: events * 2,
}
READERS = [False, True] if decoder.AVAILABLE else [False]


def same(some: Timeline, other: Timeline) -> bool:
    """Whether two timelines differ in nothing but what is said of how they were read."""
    without = [replace(each.meta, ingest=IngestReport(), source="") for each in (some, other)]
    tables = (plain(getattr(some, name)).equals(plain(getattr(other, name))) for name in TABLES)
    return without[0] == without[1] and all(tables)


def plain(table: pa.Table) -> pa.Table:
    """The table with its texts written out: which dictionary has them says nothing."""
    fields = ((one.name, one.type.value_type if pa.types.is_dictionary(one.type) else one.type) for one in table.schema)
    return table.cast(pa.schema([pa.field(*each) for each in fields]))


def left_out(found: Timeline) -> int:
    return found.meta.ingest.dropped.get(REPEATED, 0)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".")[0])
def test_a_trace_and_its_double_are_one_timeline_by_either_reader(path: Path, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(path.read_bytes()))
    alone = open_trace(path)
    assert not left_out(alone)
    for number, doubled in enumerate(DOUBLED.values()):
        content = json.dumps(document | {"traceEvents": doubled(document["traceEvents"])}).encode()
        copy = tmp_path / ("trace.json.gz" if number else "trace.json")
        copy.write_bytes(gzip.compress(content, 1) if number else content)
        for by_compiled_code in READERS:
            with FileSource(copy) as source:
                double = assemble(scan(source, by_compiled_code=by_compiled_code), path.name)
            assert same(alone, double)
            assert left_out(double) >= alone.activities.num_rows


@pytest.mark.parametrize("doubled", DOUBLED.values(), ids=DOUBLED)
def test_what_is_found_in_a_trace_is_found_in_its_double(
    doubled: Callable[[list[Event]], list[Event]], tmp_path: Path
) -> None:
    document = json.loads(gzip.decompress((FIXTURES / "kineto" / "chain.json.gz").read_bytes()))
    reports = []
    for events in (document["traceEvents"], doubled(document["traceEvents"])):
        path = tmp_path / "trace.json"
        path.write_text(json.dumps(document | {"traceEvents": events}))
        reports.append(tracemine.scan(path).scan)
    alone, double = reports
    assert alone.findings
    assert (double.summary, double.findings) == (alone.summary, alone.findings)
    told = [text for text in double.warnings if text not in alone.warnings]
    assert len(told) == 1
    assert told[0].endswith("in the file once more, the same in all: each was read once.")


PROGRAM = (
    event("user_annotation", "ProfilerStep#1", 0, 5000),
    frame("model.py(3): forward", 0, 900),
    op("aten::mul", 100, 800, args={"External id": 4, "Input Dims": [[8]]}),
    call("cudaLaunchKernel", 200, 300, 9),
    kernel("mul", 1000, 2000, 9),
    event("cuda_sync", "Stream Sync", 2000, 2500, tid=7, cuda_sync_kind="Stream Sync", stream=7, device=0),
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 11, "ts": 0.15, "s": "t",
     "args": {"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 512, "Total Allocated": 512}},
)  # fmt: skip


def test_each_kind_of_event_is_left_out_where_it_is_repeated_and_counted(tmp_path: Path) -> None:
    alone = timeline(tmp_path, *PROGRAM)
    for each in PROGRAM:
        double = timeline(tmp_path, *PROGRAM, each)
        assert left_out(double) == 1, each
        assert "1 event stands in the file once more, the same in all: each was read once." in (
            double.meta.ingest.warnings
        )
        assert same(alone, double)


@pytest.mark.parametrize(
    "change",
    [
        lambda each: each | {"tid": 12, "args": each["args"] | ({"stream": 12} if "stream" in each["args"] else {})},
        lambda each: each | {"dur": each.get("dur", 0) + 0.001, "ts": each["ts"] - 0.001},
        lambda each: each | {"args": each["args"] | {"graph node id": 5, "correlation": 10, "External id": 6,
                                                     "Bytes": -512, "cuda_sync_kind": "Event Sync"}},
        lambda each: each | {"name": each["name"] + "_", "args": each["args"] | {"cuda_sync_kind": "Event Sync"}},
    ],
    ids=["another thread or stream", "another time", "another number", "another name"],
)  # fmt: skip
def test_what_differs_in_one_thing_is_no_repetition(change: Callable[[Event], Event], tmp_path: Path) -> None:
    without_numbers = ("python_function", "user_annotation")  # two of one time and name would be one
    program = [each for each in PROGRAM if each["cat"] not in without_numbers or change(each)["tid"] == 12]
    found = timeline(tmp_path, *PROGRAM, *(change(each) for each in program))
    assert not left_out(found)


def test_kernels_of_a_replay_that_share_their_launch_and_their_time_are_two(tmp_path: Path) -> None:
    nodes = [kernel("add", 500, 900, 3, **{"graph id": 1, "graph node id": node}) for node in (1, 2)]
    found = timeline(tmp_path, call("cudaGraphLaunch", 0, 100, 3), *nodes)
    assert (found.activities.num_rows, left_out(found)) == (2, 0)


# Streams that overlap themselves


def overlaps(found: Timeline) -> list[str]:
    return [text for text in found.meta.ingest.warnings if "overlaps itself" in text]


def test_a_stream_that_overlaps_itself_is_told_of(tmp_path: Path) -> None:
    work = [kernel("k", at * 1000, at * 1000 + 900, at + 1) for at in range(8)]
    copies = [kernel("k", at * 1000 + 300, at * 1000 + 1200, at + 100) for at in range(8)]
    assert overlaps(timeline(tmp_path, *work)) == []
    assert overlaps(timeline(tmp_path, *work, *copies)) == [
        "Stream 7 of device 0 overlaps itself for 6.20 µs of 14.4 µs: a stream runs one thing at a time, so several "
        "recordings may stand in this file, and GPU time is the sum of all."
    ]


def test_streams_beside_each_other_and_kernels_that_begin_a_little_early_are_usual(tmp_path: Path) -> None:
    beside = [kernel("k", 0, 900, stream, stream=stream) for stream in (1, 2, 3)]
    early = [kernel("k", at * 900, at * 900 + 1000, at + 10) for at in range(8)]
    assert overlaps(timeline(tmp_path, *beside, *early)) == []


# Nsight Systems


@pytest.mark.parametrize("path", sorted((FIXTURES / "nsys").glob("*.sqlite")), ids=lambda path: path.stem)
def test_a_database_whose_rows_stand_there_twice_is_one_timeline(path: Path, tmp_path: Path) -> None:
    alone = open_trace(path)
    copy = shutil.copy(path, tmp_path)
    database = sqlite3.connect(copy)
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for name in names:
        if name == "NVTX_EVENTS" or name.startswith("CUPTI_ACTIVITY_KIND_"):
            database.execute(f"INSERT INTO {name} SELECT * FROM {name}")  # noqa: S608
    database.commit()
    database.close()
    double = open_trace(Path(copy))
    assert same(alone, double)
    assert not left_out(alone)
    assert left_out(double) >= alone.activities.num_rows + alone.api.num_rows + alone.ops.num_rows


def test_lines_of_json_that_stand_there_twice_are_one_timeline(tmp_path: Path) -> None:
    export = recording("2025.3.1")
    lines: list[dict[str, Any]] = list(json_events(export))
    alone = open_trace(json_lines(tmp_path / "alone.json", [*lines, strings(export)]))
    double = open_trace(json_lines(tmp_path / "double.json", [*lines, *lines, strings(export)]))
    assert same(alone, double)
    assert left_out(double) == alone.activities.num_rows + alone.api.num_rows + alone.ops.num_rows


def test_rows_of_nsys_stats_that_stand_there_twice_are_one_timeline(tmp_path: Path) -> None:
    timelines = []
    for folder, times in (("alone", 1), ("double", 2)):
        (tmp_path / folder).mkdir()
        timelines.append(
            open_trace(stats(tmp_path / folder, "r_cuda_gpu_trace.csv", _GPU.format(u="ns") + _GPU_ROWS * times))
        )
    alone, double = timelines
    assert same(alone, double)
    assert (left_out(alone), left_out(double)) == (0, alone.activities.num_rows)
