"""Every schema from 2021 on, every kind of export: the same recording is the same timeline."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.formats.nsys import make
from tests.formats.nsys.make import PROCESS, THREAD, VERSIONS, Export, timeline
from tracemine.formats import open_trace
from tracemine.timeline import TABLES, Timeline


def recording(nsys: str = "2025.3.1") -> Export:
    """A bit of everything."""
    export = Export(nsys)
    on_device = {"deviceId": 0, "contextId": 1, "globalPid": PROCESS}
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    export.add(
        "TARGET_INFO_GPU", id=0, name="NVIDIA H200", cuDevice=0, totalMemory=150_109_880_320, smCount=132,
        threadsPerWarp=32, maxWarpsPerSm=64, maxRegistersPerSm=65_536, maxShmemPerSm=233_472,
        computeMajor=9, computeMinor=0,
    )  # fmt: skip
    export.range("step 3", 0, 5000)
    export.op(1, "aten::relu", 100, "[[4, 8]]", "[(0,-1)]").op(2, "aten::neg", 200, "[[4, 8]]", "[(1,0)]")
    export.call(300, 310, 7, "cudaMemcpyAsync_ptsz_v7000")
    export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=2000, end=2040, streamId=7, correlationId=7, bytes=64, copyKind=1,
               srcKind=0, dstKind=2, **on_device)  # fmt: skip
    export.call(320, 330, 8, "cuMemsetD8Async", eventClass=1)
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        start=2100,
        end=2110,
        streamId=9,
        correlationId=8,
        bytes=32,
        memKind=2,
        **on_device,
    )
    export.call(400, 900, 9, "cudaDeviceSynchronize_v3020")
    export.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=410, end=890, streamId=0xFFFFFFFF, correlationId=9,
               syncType=4, **on_device)  # fmt: skip
    return export


def same(some: Timeline, others: Timeline) -> bool:
    """Whether all tables are equal, and all of the meta that does not name the file."""
    return all(getattr(some, name).equals(getattr(others, name)) for name in TABLES) and (
        some.meta.ingest == others.meta.ingest and some.meta.devices == others.meta.devices
    )


@pytest.mark.parametrize("nsys", VERSIONS)
def test_every_schema_says_the_same_of_the_same_recording(tmp_path: Path, nsys: str) -> None:
    found, newest = timeline(tmp_path, recording(nsys)), timeline(tmp_path, recording("2026.2.1"))
    for name in TABLES:
        assert getattr(found, name).to_pylist() == getattr(newest, name).to_pylist()
    assert found.meta.versions == ({"nsys": nsys, "nsys_schema": VERSIONS[nsys]} if nsys else {})
    assert found.meta.ingest == newest.meta.ingest


def test_each_table_becomes_rows(tmp_path: Path) -> None:
    t = timeline(tmp_path, recording())
    kinds = [(a["kind"], a["name"], a["start_ns"] - 1_700_000_000_000_000_000) for a in t.activities.to_pylist()]
    assert kinds == [
        ("kernel", "kernel of aten::relu", 1100),
        ("kernel", "kernel of aten::neg", 1200),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 2000),
        ("memset", "Memset (Device)", 2100),
    ]
    copy = t.activities.to_pylist()[2]
    assert (copy["bytes"], copy["copy_kind"], copy["source_memory"], copy["target_memory"]) == (
        64,
        "HtoD",
        "pageable",
        "device",
    )
    kernel = t.activities.to_pylist()[0]
    assert (kernel["grid"], kernel["block"], kernel["shared_memory_bytes"]) == ([4, 1, 1], [128, 1, 1], 1040)
    assert t.ops["name"].to_pylist() == ["step 3", "aten::relu", "aten::neg"]
    assert t.ops["input_shapes"].to_pylist() == [None, "[[4,8]]", "[[4,8]]"]
    assert t.ops["record_function_id"].to_pylist() == [None, 1, 2]
    assert [a["op_row"] for a in t.activities.to_pylist()] == [1, 2, None, None]
    assert t.activities["step_row"].to_pylist() == [0, 0, 0, 0]
    assert t.steps.to_pylist()[0]["number"] == 3
    calls = [(c["kind"], c["name"]) for c in t.api.to_pylist()]
    assert calls[-3:] == [("driver", "cuMemsetD8Async"), ("runtime", "cudaDeviceSynchronize"), ("sync", "Context Sync")]
    assert ("runtime", "cudaMemcpyAsync") in calls
    assert t.api.to_pylist()[-1]["stream"] is None
    assert t.api.to_pylist()[0]["pid"] == (PROCESS >> 24) & 0xFFFFFF
    assert t.api.to_pylist()[0]["tid"] == THREAD & 0xFFFFFF
    (gpu,) = t.meta.devices
    assert (gpu.name, gpu.compute_capability, gpu.max_threads_per_sm) == ("NVIDIA H200", "9.0", 2048)


@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_a_folder_of_tables_is_the_same_timeline(tmp_path: Path, kind: str) -> None:
    database = timeline(tmp_path, recording())
    folder = open_trace(recording().folder(tmp_path / f"t.{kind}", kind))
    assert same(folder, database)
    assert folder.meta.source == f"t.{kind}"


@pytest.mark.parametrize("kind", ["sqlite", "parquetdir", "arrowdir"])
def test_an_export_whose_name_is_not_text_is_the_same_timeline(tmp_path: Path, kind: str) -> None:
    database = timeline(tmp_path, recording())
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff%20?#"))
    folder.mkdir()
    path = folder / f"t\udcff.{kind}"
    found = open_trace(recording().write(path) if kind == "sqlite" else renamed(tmp_path, path, kind))
    assert same(found, database)
    assert found.meta.source == f"t?.{kind}"


def renamed(folder: Path, path: Path, kind: str) -> Path:
    """The export with a name that Arrow does not write to."""
    return recording().folder(folder / kind, kind).rename(path)


_ACTIVITIES = {"CUPTI_ACTIVITY_KIND_KERNEL": 2, "CUPTI_ACTIVITY_KIND_MEMCPY": 1, "CUPTI_ACTIVITY_KIND_MEMSET": 1}


@pytest.mark.parametrize("table", recording().tables())
def test_a_table_that_is_missing_takes_only_its_own_rows(tmp_path: Path, table: str) -> None:
    export = recording()
    export.rows.pop(table, None)
    if table == "StringIds":
        export.texts.clear()
    t = timeline(tmp_path, export)
    assert t.activities.num_rows == 4 - _ACTIVITIES.get(table, 0)
    assert t.ops.num_rows == (0 if table == "NVTX_EVENTS" else 3)
    assert t.activities["launch_row"].null_count == (t.activities.num_rows if "RUNTIME" in table else 0)


@pytest.mark.parametrize(
    ("table", "column"), [(table, c) for table, (columns, _) in recording().tables().items() for c in columns]
)
def test_a_column_that_is_missing_takes_only_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, column: str
) -> None:
    monkeypatch.setitem(make.COLUMNS, table, [c for c in make.COLUMNS[table] if c != column])
    t = timeline(tmp_path, recording())
    without_time = column in ("start", "end")
    assert t.activities.num_rows == 4 - (_ACTIVITIES.get(table, 0) if without_time else 0)
    assert bool(t.meta.ingest.dropped) == without_time


def test_an_export_with_shifted_times_has_no_epoch(tmp_path: Path) -> None:
    export = recording()
    export.add("META_DATA_EXPORT", name="EXPORT_PARAM_TIME_SHIFT", value="-100")
    assert timeline(tmp_path, export).activities["start_ns"].to_pylist()[0] == 1100
