"""A data set holds a row of every trace, once, however often and by whatever it was made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from tests import forked
from tests.fleet.made import CHAIN, PREFILL, folder_of, scanning
from tracemine.errors import InputError, UsageError
from tracemine.fleet import machine as machines
from tracemine.fleet.dataset import TABLES, Dataset
from tracemine.fleet.machine import Limits, Machine
from tracemine.fleet.report import report
from tracemine.fleet.run import Total, on_this_machine, tasks, total
from tracemine.fleet.task import FAILED, KNOWN, REFUSED, SCANNED, Task, TaskOutcome, scan_into
from tracemine.pipeline import scan
from tracemine.processes import Ended
from tracemine.scan_settings import ScanSettings

LABELS = "{job}/{day}/*"


def made(traces: Path, dataset: Path, **how: Any) -> tuple[list[Task], int]:
    given, known, wrong = tasks([str(traces)], str(dataset), ScanSettings(), LABELS, **how)
    assert not wrong
    return given, known


def filled(traces: Path, dataset: Path, processes: int = 2, limits: Limits | None = None, **how: Any) -> Total:
    given, known = made(traces, dataset, **how)
    outcomes = list(on_this_machine(processes)(given, limits or Limits()))
    print(*(f"{one.uri}: {one.message}" for one in outcomes if one.message), sep="\n")  # shown where a test fails
    return total(outcomes, known, ())


def rows(dataset: Path, table: str) -> list[tuple[Any, ...]]:
    found = duckdb.read_parquet(f"{dataset}/{table}/*/*.parquet", hive_partitioning=True)
    return sorted(found.fetchall(), key=repr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of traces, and the data set that one call makes of it; nobody writes to either."""
    folder = tmp_path_factory.mktemp("whole")
    traces, dataset = folder_of(folder / "traces"), folder / "set"
    filled(traces, dataset)
    return traces, dataset


def test_every_trace_has_one_row_and_its_findings(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    found = filled(traces, dataset)
    assert (found.scanned, found.refused, found.failed, found.known) == (5, 2, 0, 0)
    runs = {row["uri"]: row for row in pq.read_table(dataset / "runs").to_pylist()}
    assert len(runs) == 7
    one = runs[str(traces / "vit/2026-11-22/rank0.json.gz")]
    scanned = scan(PREFILL)
    assert (one["job"], str(one["day"]), one["status"]) == ("vit", "2026-11-22", SCANNED)
    assert one["activities"] == scanned.trace.activities and one["gpu_time_ns"] == scanned.summary.gpu_time_ns
    findings = [row for row in pq.read_table(dataset / "findings").to_pylist() if row["key"] == one["key"]]
    assert [row["fingerprint"] for row in findings] == [finding.fingerprint for finding in scanned.findings]
    assert found.findings == pq.read_table(dataset / "findings").num_rows
    cut = runs[str(traces / "bad/2026-11-22/damaged.json.gz")]
    assert cut["status"] in (REFUSED, SCANNED)
    empty = runs[str(traces / "bad/2026-11-22/empty.json")]
    assert empty["status"] == REFUSED and empty["message"] and empty["activities"] is None


def test_nothing_is_scanned_twice_and_what_is_new_is(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    filled(traces, dataset)
    before = {path: path.stat().st_mtime_ns for path in dataset.rglob("*.parquet")}
    assert made(traces, dataset) == ([], 7)
    (traces / "vit/2026-11-23").mkdir()
    (traces / "vit/2026-11-23/rank0.json.gz").write_bytes(CHAIN.read_bytes())
    again = filled(traces, dataset)
    assert (again.scanned, again.known) == (1, 7)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_touched_file_is_known_by_its_content(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    filled(traces, dataset)
    os.utime(traces / "vit/2026-11-22/rank0.json.gz", ns=(1, 1))
    (task,), _ = made(traces, dataset)
    assert scan_into(task).status == KNOWN
    assert len(rows(dataset, "runs")) == 7


def test_a_touched_file_is_known_where_its_day_is_that_of_its_last_change(tmp_path: Path) -> None:
    traces, dataset = tmp_path / "traces" / "llama", tmp_path / "set"
    traces.mkdir(parents=True)
    (traces / "a.json.gz").write_bytes(CHAIN.read_bytes())
    for days, status in ((1, SCANNED), (3, KNOWN)):
        os.utime(traces / "a.json.gz", ns=(days * 86_400 * 10**9,) * 2)
        (task,), _, _ = tasks([str(traces)], str(dataset), ScanSettings())
        assert scan_into(task).status == status
    (traces / "a.json.gz").write_bytes(PREFILL.read_bytes())
    (task,), _, _ = tasks([str(traces)], str(dataset), ScanSettings())
    assert scan_into(task).status == SCANNED
    assert len({row[0] for row in rows(dataset, "runs")}) == 2  # keys


def test_other_labels_take_effect(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), str(tmp_path / "set")
    for labels, jobs in ((None, {"2026-11-21", "2026-11-22"}), (LABELS, {"llama", "vit"}), (LABELS, {"llama", "vit"})):
        given, known, _ = tasks([str(traces)], dataset, ScanSettings(), labels)
        total(on_this_machine(2)(given, Limits()), known, ())
        assert {one.name for one in report(dataset, by=("job",)).groups["job"]} - {"bad"} == jobs
    assert known == 7


def test_a_reader_of_a_table_finds_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    (task, *_), _ = made(traces, dataset)
    found, replace = list[list[str]](), Path.replace

    def looked(self: Path, target: Path) -> Path:
        found.append([path.name for one in TABLES for path in (dataset / one.name).rglob("*") if path.is_file()])
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", looked)
    scan_into(task)
    names = {name for one in found for name in one}
    assert len(found) > 1 and all(name.endswith(".parquet") and not name.startswith(".") for name in names), names


def test_tables_have_types_that_every_reader_knows(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    filled(traces, dataset)
    types = set[str]()
    for table in TABLES:
        for path in (dataset / table.name).rglob("*.parquet"):
            found = pq.ParquetFile(path)
            assert found.schema_arrow.remove_metadata() == table.schema.remove_metadata()
            types |= {str(found.schema.column(k).logical_type) for k in range(len(found.schema))}
            kinds = {str(field.type) for field in found.schema_arrow}
            assert kinds <= {"string", "int64", "double", "bool", "list<element: string>"}, kinds
    assert types == {"String", "None"}  # no unsigned or short integers


def test_one_process_and_three_make_the_same_data_set(tmp_path: Path) -> None:
    traces = folder_of(tmp_path / "traces")
    for count in (1, 3):
        filled(traces, tmp_path / str(count), processes=count)
    for table in TABLES:
        assert rows(tmp_path / "1", table.name) == rows(tmp_path / "3", table.name)


def test_cut_off_before_its_run_is_written_a_trace_is_scanned_again(
    whole: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (traces, other), dataset = whole, tmp_path / "set"
    given, _ = made(traces, dataset)
    task = next(one for one in given if "vit" in one.source.uri)
    write, names = Dataset._write, list[str]()

    def cut(self: Dataset, name: str, content: bytes) -> None:
        if name.startswith("runs/"):
            raise OSError("the machine is gone")
        names.append(name)
        write(self, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Dataset, "_write", cut)
        with pytest.raises(OSError, match="gone"):
            scan_into(task)
    assert names and not list((dataset / "runs").rglob("*.parquet"))
    assert filled(traces, dataset).scanned == 5
    keys = [row["key"] for row in pq.read_table(dataset / "runs").to_pylist()]
    assert len(keys) == len(set(keys))
    assert rows(dataset, "findings") == rows(other, "findings")


def test_a_worker_that_is_killed_is_begun_again(whole: tuple[Path, Path], tmp_path: Path) -> None:
    (traces, other), dataset = whole, tmp_path / "set"
    given, _ = made(traces, dataset)
    with Machine(Limits()) as machine:
        pid = machine._process.start()
        threading.Timer(0.05, os.kill, (pid, signal.SIGKILL)).start()
        outcomes = [machine.do(task) for task in given]
    assert {one.status for one in outcomes} == {SCANNED, REFUSED}
    assert rows(dataset, "findings") == rows(other, "findings")


def test_processes_that_are_killed_while_the_pool_runs_lose_and_double_nothing(
    whole: tuple[Path, Path], tmp_path: Path
) -> None:
    (traces, other), dataset = whole, tmp_path / "set"
    given, known = made(traces, dataset)
    outcomes, killed = list[TaskOutcome](), 0
    for outcome in on_this_machine(2)(given, Limits(attempts=6)):
        outcomes.append(outcome)
        if len(outcomes) in (1, 3):
            for pid in scanning():
                os.kill(pid, signal.SIGKILL)
                killed += 1
    assert killed
    found = total(outcomes, known, ())
    assert (found.scanned, found.refused, found.failed) == (5, 2, 0)
    for table in TABLES:
        assert rows(dataset, table.name) == rows(other, table.name)


def test_a_call_that_is_killed_goes_on_where_it_was(whole: tuple[Path, Path], tmp_path: Path) -> None:
    (traces, other), dataset = whole, tmp_path / "set"
    command = [
        sys.executable,
        "-m",
        "tracemine",
        "fleet",
        str(traces),
        "-o",
        str(dataset),
        "--labels",
        LABELS,
        "-j",
        "1",
    ]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while running.poll() is None and not list((dataset / "runs").rglob("*.parquet")):
        time.sleep(0.01)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    before = {path: path.read_bytes() for path in dataset.rglob("*.parquet") if not path.name.startswith(".")}
    done = sum("runs" in path.parts for path in before)
    assert 0 < done < 7
    found = filled(traces, dataset)
    assert found.known >= done and found.known + found.scanned + found.refused == 7
    assert {path: path.read_bytes() for path in before} == before
    for table in TABLES:
        assert rows(dataset, table.name) == rows(other, table.name)


def test_a_trace_beyond_the_time_limit_is_a_row_that_says_so(tmp_path: Path) -> None:
    traces, dataset = tmp_path / "traces", tmp_path / "set"
    traces.mkdir()
    (traces / "a.json.gz").write_bytes(CHAIN.read_bytes())
    found = filled(traces, dataset, limits=Limits(seconds=0.01))
    (row,) = pq.read_table(dataset / "runs").to_pylist()
    assert (found.failed, row["status"], row["message"]) == (1, FAILED, "took longer than 0.01 s")
    assert made(traces, dataset) == ([], 1)
    assert filled(traces, dataset, again=True).scanned == 1
    assert len(rows(dataset, "runs")) == 2  # the report takes the later one


@pytest.mark.parametrize(
    ("ended", "says", "attempts"),
    [
        (Ended(1, ["Traceback", "MemoryError"]), "needs more than 8 GiB of memory", 1),
        (Ended(-9, []), "the process that scans it was ended by SIGKILL", 2),
        (Ended(1, ["Traceback", '  File "a.py", line 1', "ValueError: odd"]), "ValueError: odd", 2),
    ],
)
def test_how_a_process_ends_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Ended, says: str, attempts: int
) -> None:
    (task,), _ = made(CHAIN, tmp_path / "set")
    asked = list[bytes]()

    def ask(line: bytes, limit_s: float) -> bytes:
        asked.append(line)
        raise ended

    monkeypatch.setattr(machines, "_PAUSE_S", 0)
    with Machine(Limits(attempts=2)) as machine:
        monkeypatch.setattr(machine._process, "ask", ask)
        outcome = machine.do(task)
    assert (outcome.status, outcome.message, len(asked)) == (FAILED, says, attempts)
    assert [row["message"] for row in pq.read_table(tmp_path / "set" / "runs").to_pylist()] == [says]


def test_other_rules_are_another_generation(tmp_path: Path) -> None:
    traces, dataset = tmp_path / "traces", tmp_path / "set"
    traces.mkdir()
    (traces / "a.json.gz").write_bytes(CHAIN.read_bytes())
    for settings in (ScanSettings(), ScanSettings(skip=("launch_gap",)), ScanSettings()):
        given, known, _ = tasks([str(traces)], str(dataset), settings)
        total(on_this_machine(1)(given, Limits()), known, ())
    assert sorted(row["generation"] for row in pq.read_table(dataset / "runs").to_pylist()) == [1, 2]
    assert len(Dataset(str(dataset)).about().generations) == 2


def begun_at_once(dataset: str, processes: int, each: int) -> list[int]:
    """Let processes begin generations of their own in one data set at the same time; return the numbers they get."""
    code = """if True:
        import sys, time
        from tracemine.fleet.dataset import Dataset, Generation
        store = Dataset(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        for k in range(int(sys.argv[3])):
            print(store.begin(Generation(digest=f"{sys.argv[2]} {k}", tracemine="0", options={})))
    """
    running = [
        subprocess.Popen([sys.executable, "-c", code, dataset, str(k), str(each)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for k in range(processes)
    ]  # fmt: skip
    for one in running:
        assert one.stdout is not None and one.stdout.readline() == "ready\n"
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    return [int(text) for one in running for text in one.communicate()[0].split()]


def test_calls_that_begin_at_once_lose_no_generation(tmp_path: Path) -> None:
    numbers = begun_at_once(str(tmp_path / "set"), 2, 40)
    assert sorted(numbers) == list(range(1, 81))
    digests = [one.digest for one in Dataset(str(tmp_path / "set")).about().generations]
    assert len(set(digests)) == 80 and numbers == [digests.index(f"{k} {n}") + 1 for k in range(2) for n in range(40)]


def test_a_folder_that_another_call_makes_meanwhile_is_listed_again(tmp_path: Path) -> None:
    """Arrow looks twice at what may not be there, and fails where it is made between the two."""
    folder = tmp_path / "set"
    dataset, looks = Dataset(str(folder)), []

    class Store:
        def get_file_info(self, selector: object) -> object:
            looks.append(selector)
            if len(looks) == 1:
                folder.mkdir()
                raise FileNotFoundError(str(folder))
            return []

    dataset._store = Store()
    assert dataset._names() == set()
    assert len(looks) == 2


def test_two_calls_at_once_over_the_same_traces_make_what_one_makes(whole: tuple[Path, Path], tmp_path: Path) -> None:
    (traces, other), dataset = whole, tmp_path / "set"
    command = [str(forked.program()), "fleet", str(traces), "-o", str(dataset), "--labels", LABELS]
    running = [subprocess.Popen([*command, "-j", "1"], stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait() for one in running] == [0, 0]
    for table in TABLES:
        assert rows(dataset, table.name) == rows(other, table.name)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="something else"):
        tasks([str(CHAIN)], str(tmp_path), ScanSettings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_a_damaged_data_set_and_another_version_are_said(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text("{}")
    with pytest.raises(InputError, match="no data set"):
        Dataset(str(tmp_path)).about()
    for version, hint in ((99, "takes a newer tracemine"), (0, "scan the traces again")):
        (tmp_path / "dataset.json").write_text(f'{{"schema_version": {version}}}')
        with pytest.raises(InputError, match=f"version {version}") as caught:
            Dataset(str(tmp_path)).about()
        assert caught.value.hint is not None and hint in caught.value.hint


def test_wrong_settings_are_said_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="abacus"):
        tasks([str(CHAIN)], str(tmp_path / "set"), ScanSettings(gpu="abacus"))
    assert not (tmp_path / "set").exists()


def test_a_link_in_the_data_set_is_not_written_through(tmp_path: Path) -> None:
    traces, dataset, victim = tmp_path / "traces", tmp_path / "set", tmp_path / "victim"
    traces.mkdir()
    victim.write_text("mine")
    (traces / "a.json.gz").write_bytes(CHAIN.read_bytes())
    (task,), _ = made(traces, dataset)
    key = scan_into(task).key
    (file,) = (dataset / "runs").rglob(f"{key}.parquet")
    file.unlink()
    file.symlink_to(victim)
    with pytest.raises((OSError, UsageError)):
        Dataset(str(dataset)).write(task.labels.day, key, {"runs": pq.read_table(dataset / "findings")})
    assert victim.read_text() == "mine"


def test_tasks_begin_while_others_run(tmp_path: Path) -> None:
    traces, dataset = folder_of(tmp_path / "traces"), tmp_path / "set"
    given, _ = made(traces, dataset)
    engine = on_this_machine(2)(given, Limits())
    assert isinstance(engine, Generator)
    first = next(engine)
    assert first.status in (SCANNED, REFUSED)
    engine.close()  # as Ctrl-C does: what runs is ended at once
    began = time.monotonic()
    assert filled(traces, dataset).known + 7 >= 7
    assert time.monotonic() - began < 60
