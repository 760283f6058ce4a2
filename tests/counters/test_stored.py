"""Reports of Nsight Compute in a timeline directory: what goes in comes out, and damage is an error of one line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.counters.tables import RULES, details, row
from tracemine.cli import main
from tracemine.counters import counters_table, match, stored_reports
from tracemine.counters.record import CounterReport, ProfiledKernel
from tracemine.errors import TimelineError
from tracemine.formats import open_trace
from tracemine.formats.ncu import read_counters
from tracemine.formats.ncu.kernels import arithmetic
from tracemine.timeline import COUNTERS, Meta, Timeline

RECORDED = Path(__file__).parents[2] / "fixtures" / "ncu"
TABLES = sorted(RECORDED.rglob("*.csv.gz"))
CHAIN = RECORDED / "chain"
EMPTY = Timeline(meta=Meta(tracemine_version="0", source="t.json", format="kineto"))

Run = Callable[..., tuple[int, str, str]]


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def stored(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(path / "counters.parquet").read().to_pylist()
    return rows


def change(directory: Path, column: str, alter: Callable[[list[Any]], list[Any]]) -> None:
    path = directory / "counters.parquet"
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index(column)
    values = pa.array(alter(rows.column(column).to_pylist()), rows.schema.field(at).type)
    pq.write_table(rows.set_column(at, rows.schema.field(at), values), path)


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scanned") / "tl"
    trace, counters = str(CHAIN / "trace.json.gz"), str(CHAIN / "raw.csv.gz")
    assert main(["scan", trace, "--ncu", counters, "-q", "--parquet", str(path)]) == 0
    return path


@pytest.fixture
def with_trace(scanned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(scanned, tmp_path / "tl"))


# --- what goes in comes out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", TABLES, ids=name_of)
def test_what_a_report_says_of_its_kernels_comes_back_equal(path: Path, tmp_path: Path) -> None:
    report = read_counters(path)
    EMPTY.write(tmp_path / "out", counters=counters_table([report, report]))
    first, second = stored_reports(tmp_path / "out")
    assert first == second
    assert (first.source, first.page, first.kernels) == (report.source, report.page, report.kernels)


def test_every_field_of_a_kernel_has_a_column(tmp_path: Path) -> None:
    flops = {dtype: i + 1 for i, dtype in enumerate(dict.fromkeys(dtype for dtype, *_ in arithmetic()))}
    known: dict[str, Any] = {"name": "k", "grid": (1, 2, 3), "block": (4, 5, 6), "gpu": "G", "flops": flops}
    known |= {"order": 0, "dram_bytes_from": "rate", "flops_complete": True, "rules": "OPT A: b\nINF C: d"}
    known |= {name: i + 7 for i, name in enumerate(ProfiledKernel.__struct_fields__) if name not in known}
    report = CounterReport(source="r.csv", page="raw", kernels=(ProfiledKernel(**known),))
    EMPTY.write(tmp_path / "out", counters=counters_table([report]))
    assert stored_reports(tmp_path / "out") == (report,)


@pytest.mark.parametrize("path", TABLES, ids=name_of)
def test_a_timeline_with_counters_is_scanned_as_its_trace_with_the_report(path: Path, run: Run, tmp_path: Path) -> None:
    trace, out = path.parent / "trace.json.gz", tmp_path / "out"
    stored, first, _ = run("scan", trace, "--ncu", path, "--format", "json", "--why-not", "--parquet", out)
    code, text, _ = run("scan", out, "--format", "json", "--why-not")
    assert (stored, code) == (0, 0)
    assert text.replace(json.dumps(str(out)), "@") == first.replace(json.dumps(str(trace)), "@")
    assert text != run("scan", trace, "--format", "json", "--why-not")[1].replace(str(trace), str(out))
    for form in ("text", "json", "markdown"):
        assert run("top", out, "--ncu", out, "--format", form) == run("top", trace, "--ncu", path, "--format", form)


@pytest.mark.parametrize("path", TABLES, ids=name_of)
def test_each_kernel_says_which_activities_it_is_and_how_that_is_known(path: Path, run: Run, tmp_path: Path) -> None:
    trace, out = path.parent / "trace.json.gz", tmp_path / "out"
    assert run("scan", trace, "--ncu", path, "-q", "--parquet", out)[0] == 0
    joined = match(open_trace(trace), [read_counters(path)])
    rows = stored(out)
    of = {activity: at for at, each in enumerate(rows) for activity in each["activity_rows"] or ()}
    assert of == {activity: at for activity, at in enumerate(joined.of.tolist()) if at >= 0}
    evidence = [each["evidence"] for each in rows]
    assert {each: evidence.count(each) for each in set(evidence) if each} == joined.matched
    assert all((each["evidence"] is None) != (each["unmatched_reason"] is None) for each in rows)


def test_what_is_of_no_activity_says_why(run: Run, tmp_path: Path) -> None:
    trace = RECORDED / "compiled" / "trace.json.gz"
    assert run("scan", trace, "--ncu", CHAIN / "raw.csv.gz", "-q", "--parquet", tmp_path / "out")[0] == 0
    assert {
        (each["activity_rows"], each["evidence"], each["unmatched_reason"]) for each in stored(tmp_path / "out")
    } == {(None, None, "not_in_timeline")}


def test_several_reports_keep_their_names_and_their_order(run: Run, tmp_path: Path) -> None:
    trace, out = CHAIN / "trace.json.gz", tmp_path / "out"
    reports = ("--ncu", CHAIN / "details.csv.gz", "--ncu", CHAIN / "raw.csv.gz")
    assert run("scan", trace, *reports, "-q", "--parquet", out)[0] == 0
    assert [report.source for report in stored_reports(out)] == ["details.csv.gz", "raw.csv.gz"]
    scanned, again = (run("scan", *each, "--format", "json")[1] for each in ((out,), (trace, *reports)))
    assert scanned.replace(str(out), "@") == again.replace(str(trace), "@")


def test_a_report_that_lies_in_the_timeline_already_counts_once(run: Run, with_trace: Path) -> None:
    once = run("scan", with_trace, "--format", "json")
    assert run("scan", with_trace, "--ncu", CHAIN / "raw.csv.gz", "--format", "json") == once
    assert run("scan", with_trace, "--ncu", with_trace, "--format", "json") == once
    before = stored(with_trace)
    assert run("scan", with_trace, "--ncu", CHAIN / "raw.csv.gz", "-q", "--parquet", with_trace)[0] == 0
    assert stored(with_trace) == before


def test_counters_of_a_directory_go_with_another_trace(run: Run, with_trace: Path) -> None:
    trace = CHAIN / "trace.json.gz"
    by_file = run("scan", trace, "--ncu", CHAIN / "raw.csv.gz", "--format", "json")
    assert run("scan", trace, "--ncu", with_trace, "--format", "json") == by_file


def test_a_timeline_without_counters_replaces_one_with_them_whole(run: Run, with_trace: Path) -> None:
    assert (with_trace / "counters.parquet").is_file()
    assert run("scan", CHAIN / "trace.json.gz", "-q", "--parquet", with_trace)[0] == 0
    assert not (with_trace / "counters.parquet").exists()
    assert stored_reports(with_trace) == ()
    code, _, said = run("top", with_trace, "--ncu", with_trace)
    assert code == 2
    assert "is a folder without counters of Nsight Compute\n  hint: put them there: tracemine scan" in said


# --- a report alone --------------------------------------------------------------------------------------------------


def test_a_table_behind_what_the_program_printed_is_told_by_its_name(run: Run, tmp_path: Path) -> None:
    content = gzip.decompress((CHAIN / "raw.csv.gz").read_bytes())
    plain = run("top", CHAIN / "raw.csv.gz", "--format", "json")
    for name, text in (
        ("a.csv", b"step done\n" * 20_000 + content),
        ("b.csv", b"\xff\xfe" + content.decode().encode("utf-16-le")),
        ("c.csv.gz", gzip.compress(b"step done\n" * 20_000 + content)),
    ):
        (tmp_path / name).write_bytes(text)
        assert run("top", tmp_path / name, "--format", "json") == plain, name


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.csv", b"a,b\n1,2\n", "has no table of Nsight Compute in it"),
        ("r.ncu-rep", b"\1\2\0", "is no report of Nsight Compute"),
        ("r.txt", b"a,b\n1,2\n", "is not JSON, so it is not a trace"),
        ("r.csv", b"", "is empty"),
    ],
)
def test_what_is_no_report_is_refused(name: str, content: bytes, said: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    code, out, err = run("top", tmp_path / name)
    assert (code, out) == (2, "")
    assert f"{name}: {said}\n" in err


# --- what ncu's own rules say ----------------------------------------------------------------------------------------


def test_results_of_rules_are_kept_as_lines(tmp_path: Path) -> None:
    rules = [each.rules for each in read_counters(CHAIN / "details.csv.gz").kernels]
    assert all(each and each.startswith("OPT SOLBottleneck: Compute is more heavily") for each in rules[:1])
    lines = [line for each in rules for line in (each or "").splitlines()]
    printed = gzip.decompress((CHAIN / "details.csv.gz").read_bytes()).decode()
    assert len(lines) == sum(printed.count(f'","{kind}","') for kind in ("OPT", "INF", "WRN")) > 0
    assert [each.rules for each in read_counters(CHAIN / "raw.csv.gz").kernels] == [None] * 8


def test_rules_beyond_what_a_kernel_has_room_for_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    text = details([(0, "k", "S", "Duration", "ns", "10")], header=RULES)
    cells = (0, 7, "python3", "127.0.0.1", "k", 1, 7, "(128, 1, 1)", "(4, 1, 1)", 0, "9.0", "S", "", "", "")
    path.write_text(text + "".join(row(*cells, f"R{i}", "OPT", "x" * 40_000) for i in range(4)))
    report = read_counters(path)
    assert report.dropped == {"rule_beyond_bound": 2}
    assert [line[:7] for line in (report.kernels[0].rules or "").splitlines()] == ["OPT R0:", "OPT R1:"]


# --- what a stranger may have written --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("activity_rows", [8], "activity_rows holds a number that is no row of activities"),
        ("activity_rows", [-1], "activity_rows holds a number that is no row of activities"),
        ("activity_rows", [0, None], "activity_rows holds a number that is no row of activities"),
        ("grid", [1, -1, 1], "grid holds what no report says"),
        ("block", [1, None, 1], "block holds what no report says"),
        ("dur_ns", -1, "dur_ns holds what no report says"),
        ("dram_bytes", 2**63 - 1, "dram_bytes holds what no report says"),
        ("fp32_flops", -(2**63), "fp32_flops holds what no report says"),
        ("memory_percent", float("nan"), "memory_percent holds what no report says"),
        ("waves", float("inf"), "waves holds what no report says"),
        ("compute_percent", -0.5, "compute_percent holds what no report says"),
        ("dram_bytes_from", "guess", "dram_bytes_from holds what no report says"),
        ("evidence", "hearsay", "evidence holds what no report says"),
        ("unmatched_reason", "x", "unmatched_reason holds what no report says"),
        ("name", "k" * (1 << 21), "name holds what no report says"),
        ("report", 1, "report and order do not count its rows"),
        ("report", -1, "report and order do not count its rows"),
        ("order", 3, "report and order do not count its rows"),
    ],
)
def test_what_no_report_says_is_refused(column: str, value: object, said: str, run: Run, with_trace: Path) -> None:
    change(with_trace, column, lambda values: [*values[:-1], value])
    code, text, err = run("scan", with_trace, "-q")
    assert (code, text) == (2, "")
    assert err.splitlines()[0].endswith(f"counters.parquet: is damaged: {said}")


def test_amounts_up_to_the_largest_of_a_report_are_read(run: Run, with_trace: Path) -> None:
    change(with_trace, "dram_bytes", lambda values: [1 << 60] * len(values))
    change(with_trace, "waves", lambda values: [0.0] * len(values))
    assert run("top", with_trace, "--ncu", with_trace, "-q")[0] == 0


def other_schema(path: Path) -> None:
    pq.write_table(pa.table({"name": ["k"]}), path)


def other_type(path: Path) -> None:
    rows = pq.ParquetFile(path).read()
    at = rows.schema.get_field_index("dur_ns")
    pq.write_table(rows.set_column(at, "dur_ns", rows.column("dur_ns").cast(pa.float64())), path)


def nulls(path: Path) -> None:
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.set_column(3, "order", pa.nulls(rows.num_rows, pa.int64())), path)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (other_schema, "table counters: missing columns"),
        (other_type, "table counters, column dur_ns: double instead of int64"),
        (nulls, "table counters, column order: 8 nulls where none may be"),
        (cut_off, "is not a readable timeline"),
        (fifo, "counters.parquet is not a regular file"),
        (folder, "counters.parquet is a folder, not a file"),
        (dangling, "counters.parquet there is no such file"),
    ],
)
@pytest.mark.parametrize("call", [["scan", "@"], ["top", "@", "--ncu", "@"], ["scan", "@", "--parquet", "new"]])
def test_a_damaged_table_is_an_error_of_one_line(
    call: list[str], damage: Callable[[Path], None], said: str, run: Run, with_trace: Path
) -> None:
    damage(with_trace / "counters.parquet")
    code, text, err = run(*(with_trace if one == "@" else one for one in call))
    assert (code, text) == (2, "")
    assert said in err.splitlines()[0]


def test_a_table_of_equal_rows_is_not_inflated_without_bound(with_trace: Path) -> None:
    path = with_trace / "counters.parquet"
    part = pa.concat_tables([pq.ParquetFile(path).read().slice(0, 1)] * 50_000).combine_chunks()
    with pq.ParquetWriter(path, part.schema, compression="zstd") as out:
        for _ in range(20):
            out.write_table(part)
    with pytest.raises(TimelineError, match=r"counters\.parquet inflates to more than 200 times its size"):
        stored_reports(with_trace)


def test_the_columns_are_those_that_are_documented(with_trace: Path) -> None:
    assert pq.read_schema(with_trace / "counters.parquet").names == COUNTERS.schema.names
