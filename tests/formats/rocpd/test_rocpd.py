"""Databases of rocprofv3: kernels, copies, launches, ranges, and GPUs that are known or said to be unknown."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from tests.formats.rocpd.make import PID, TID, Recording, two_steps
from tracemine.errors import InputError, TracemineError
from tracemine.formats import open_trace
from tracemine.pipeline import scan


def test_kernels_copies_and_calls_are_joined(tmp_path: Path) -> None:
    timeline = open_trace(two_steps(tmp_path).written())
    assert (timeline.meta.format, timeline.meta.producer) == ("rocpd", "rocprofv3")
    rows = timeline.activities.to_pylist()
    assert [(row["kind"], row["start_ns"], row["dur_ns"]) for row in rows[:4]] == [
        ("memcpy", 1_020_000, 10_000),
        ("kernel", 1_120_000, 50_000),
        ("kernel", 1_230_000, 100_000),
        ("kernel", 1_330_500, 40_000),
    ]
    assert (rows[0]["bytes"], rows[0]["copy_kind"]) == (1 << 20, "HtoD")
    assert (rows[1]["grid"], rows[1]["block"], rows[1]["registers_per_thread"]) == ([4, 2, 1], [256, 1, 1], 32)
    assert {(row["device"], row["stream"]) for row in rows} == {(0, 3)}
    called = [timeline.api["name"][row["launch_row"]].as_py() for row in rows[:4]]
    assert called == ["hipMemcpyAsync", "hipLaunchKernel", "hipGraphLaunch", "hipGraphLaunch"]
    assert {(row["pid"], row["tid"]) for row in timeline.api.to_pylist()} == {(PID, TID)}
    assert rows[2]["unowned_reason"] == "graph_replay"


def test_ranges_of_roctx_are_operators_and_steps(tmp_path: Path) -> None:
    timeline = open_trace(two_steps(tmp_path).written())
    assert timeline.steps["name"].to_pylist() == ["step 0", "step 1"]
    assert timeline.activities["step_row"].to_pylist() == [0] * 4 + [1] * 4
    op = timeline.activities["op_row"].to_pylist()[1]
    assert timeline.ops["name"][op].as_py() == "aten::add"


def test_the_gpu_is_found_in_the_table_or_said_to_be_unknown(tmp_path: Path) -> None:
    known = scan(two_steps(tmp_path).written())
    assert known.trace.gpu == "AMD Instinct MI300X"
    assert not any("device table" in each for each in known.warnings)
    (tmp_path / "other").mkdir()
    unknown = scan(two_steps(tmp_path / "other", product="AMD Instinct MI999").written())
    assert any("'AMD Instinct MI999' is not in the device table" in each for each in unknown.warnings)
    (tmp_path / "none").mkdir()
    unnamed = scan(two_steps(tmp_path / "none", product=None).written())
    assert any("'AMD gfx942'" in each and "MI300X" in each for each in unnamed.warnings)


def test_gaps_are_told_and_torchs_profiler_is_not_blamed(tmp_path: Path) -> None:
    found = scan(two_steps(tmp_path).written())
    assert found.summary.bound is not None
    assert found.summary.bound.idle_share > 0.5
    assert not any("nsys" in each.casefold() or "nsight" in each.casefold() for each in found.warnings)


def test_nothing_of_the_process_is_kept(tmp_path: Path) -> None:
    timeline = open_trace(two_steps(tmp_path).written())
    tables = (timeline.activities, timeline.ops, timeline.api, timeline.stacks)
    assert "SECRET" not in str([table.to_pylist() for table in tables]) + str(timeline.meta)


@pytest.mark.parametrize(
    "left_out", ["region", "memory_copy", "info_kernel_symbol", "event", "info_agent", "info_thread"]
)
def test_a_table_that_is_not_there_says_nothing(tmp_path: Path, left_out: str) -> None:
    timeline = open_trace(two_steps(tmp_path, left_out=left_out).written())
    assert timeline.activities.num_rows == (6 if left_out == "memory_copy" else 8)


def test_tables_without_a_suffix_are_read(tmp_path: Path) -> None:
    assert open_trace(two_steps(tmp_path, suffix="").written()).activities.num_rows == 8


def test_queues_are_streams_where_no_streams_were_recorded(tmp_path: Path) -> None:
    run = Recording(tmp_path)
    run.kernel("k", 10, 5, run.call("hipLaunchKernel", 1, 2), stream=0)
    assert open_trace(run.written()).activities["stream"].to_pylist() == [7]


def test_a_database_of_rocm_profile_data_is_refused(tmp_path: Path) -> None:
    """The profiler before rocprofv3 named its tables alike, one of them the same."""
    path = tmp_path / "trace.rpd"
    with sqlite3.connect(path) as db:
        db.executescript(
            "create table rocpd_api (id, start); create table rocpd_op (id); create table rocpd_string (id)"
        )
        db.execute("insert into rocpd_string values (1)")
    with pytest.raises(InputError, match="of another layout than is known"):
        open_trace(path)


def test_views_are_not_read(tmp_path: Path) -> None:
    """A view could run anything, and take for ever."""
    path = tmp_path / "x_results.db"
    with sqlite3.connect(path) as db:
        db.execute("create view rocpd_kernel_dispatch as select 1 as start, 2 as end")
    with pytest.raises(InputError, match="of another layout than is known"):
        open_trace(path)


def test_what_is_no_number_counts_as_not_recorded(tmp_path: Path) -> None:
    run = two_steps(tmp_path)
    run.db.execute("""update rocpd_kernel_dispatch_00aa_11bb set start = 'soon', grid_size_x = 3.5 where id = 1""")
    timeline = open_trace(run.written())
    assert timeline.activities.num_rows == 7
    assert timeline.meta.ingest.repaired["value that is no integer, read as not recorded"] >= 1


def test_cut_and_changed_files_end_in_a_report_or_one_line(tmp_path: Path) -> None:
    content = two_steps(tmp_path).written().read_bytes()
    path, chance, read = tmp_path / "changed.db", random.Random(3), 0
    cuts = [content[: len(content) * at // 20] for at in range(20)]
    for number in range(60):
        changed = bytearray(content)
        for _ in range(1 + number % 6):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        cuts.append(bytes(changed))
    for each in cuts:
        path.write_bytes(each)
        try:
            scan(path)
            read += 1
        except TracemineError as error:
            assert "\n" not in error.message
    assert read
