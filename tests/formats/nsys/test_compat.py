"""Exports of other projects and machines, nsys 2021 to 2026: counts are those that SQL itself gives."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pyarrow.compute as pc
import pytest

from tests.formats.nsys.test_schemas import same
from tracemine.formats import open_trace

_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere")) / "nsys"
_OWN = Path(__file__).parents[3] / "fixtures" / "nsys"
_DATABASES = sorted([*_ROOT.glob("*.sqlite"), *_OWN.glob("*.sqlite")])
_ACTIVITIES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_ANY = pytest.mark.skipif(not _ROOT.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder of traces")


def counted(path: Path, table: str, what: str = "count(*)", where: str = "1") -> int:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as database:
        known = {name for (name,) in database.execute("select name from sqlite_master")}
        found = database.execute(f"select {what} from {table} a where {where}").fetchone()[0] if table in known else 0  # noqa: S608
    database.close()
    return int(found or 0)


@pytest.mark.parametrize("path", _DATABASES, ids=lambda path: path.stem)
def test_no_row_is_lost_and_joins_are_those_of_sql(path: Path) -> None:
    t = open_trace(path)
    tables = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in _ACTIVITIES]
    assert t.activities.num_rows == sum(counted(path, table) for table in tables)
    assert (pc.sum(t.activities["dur_ns"]).as_py() or 0) == sum(
        counted(path, table, 'sum("end" - start)') for table in tables
    )
    calls = counted(path, "CUPTI_ACTIVITY_KIND_RUNTIME"), counted(path, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    assert t.api.num_rows == sum(calls)
    ranges = "eventType in (59, 60, 70, 71)"
    assert t.ops.num_rows == counted(path, "NVTX_EVENTS", where=f'{ranges} and "end" is not null')
    assert sum(t.meta.ingest.dropped.values()) == counted(path, "NVTX_EVENTS", where=f'{ranges} and "end" is null')
    launched = (
        "exists (select 1 from CUPTI_ACTIVITY_KIND_RUNTIME r where r.correlationId = a.correlationId"
        " and (r.globalTid & -16777216) = a.globalPid)"
    )
    joined = t.activities.num_rows - t.activities["launch_row"].null_count
    assert joined == sum(counted(path, table, where=launched) for table in tables)
    assert t.activities["op_row"].null_count == t.activities.num_rows - t.activities["unowned_reason"].null_count


@_ANY
@pytest.mark.parametrize("kind", ["parquetdir", "arrowdir"])
def test_the_three_exports_of_one_recording_are_one_timeline(kind: str) -> None:
    database = open_trace(_ROOT / "h200_seed_chains_nvtx.sqlite")
    assert same(open_trace(_ROOT / f"h200_seed_chains_nvtx.{kind}"), database)


@_ANY
@pytest.mark.parametrize("report", ["cuda_gpu_trace", "cuda_kern_exec_trace", "nvtx_gpu_proj_trace"])
def test_tables_of_nsys_stats_have_the_kernels_of_the_export(report: str) -> None:
    database = open_trace(_ROOT / "h200_seed_chains_nvtx.sqlite").activities
    table = open_trace(_ROOT / f"seed_chains_nvtx_{report}.csv").activities
    for column in ("name", "dur_ns", "stream", "grid", "block", "registers_per_thread", "device"):
        assert table[column].to_pylist() == database[column].to_pylist()
    epoch = database["start_ns"][0].as_py() - table["start_ns"][0].as_py()
    assert [start + epoch for start in table["start_ns"].to_pylist()] == database["start_ns"].to_pylist()
    assert table["op_row"].null_count == 0
