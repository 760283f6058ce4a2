"""Ranks of one job in a fleet: one run, each cause once, and one ticket of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.fleet.made import CHAIN
from tests.ranks.simulated import Program, Rank, write
from tracemine.fleet.job import do_task
from tracemine.fleet.report import report
from tracemine.fleet.run import Total, tasks, total
from tracemine.fleet.task import SCANNED
from tracemine.fleet.tickets import tickets_of
from tracemine.scan_settings import ScanSettings

LABELS = "{job}/{day}/*"
LATE = Program([Rank(), Rank(silence_ns=2_000_000), Rank()], layers=3, kernels=4)


def filled(traces: Path, dataset: Path) -> Total:
    given, known, wrong = tasks([str(traces)], str(dataset), ScanSettings(), LABELS)
    assert not wrong
    return total(map(do_task, given), known, ())


def rows(dataset: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(dataset / table).to_pylist()
    return found


def test_a_job_is_one_run_and_its_cause_one_finding_and_one_ticket(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    traces, dataset = tmp_path / "traces", tmp_path / "set"
    write(LATE, traces / "llama" / "2026-11-22")
    done = filled(traces, dataset)
    assert (done.scanned, done.cpu_seconds > 0, done.peak_bytes > 0) == (1, True, True)
    (run,) = rows(dataset, "runs")
    assert (run["job"], run["ranks"], run["world_size"], run["rank"], run["status"]) == ("llama", 3, 3, None, SCANNED)
    (late,) = [row for row in rows(dataset, "findings") if row["rule"] == "straggler_host"]
    assert 0 < late["per_step_saving_ns"] <= run["unprofiled_step_ns"]
    assert late["step_saving_share"] == pytest.approx(late["per_step_saving_ns"] / run["unprofiled_step_ns"])
    assert "communication_exposed" not in {row["rule"] for row in rows(dataset, "findings")}
    assert run["step_saving_ns"] >= late["per_step_saving_ns"] * run["steps"]  # all fixes save no less than one
    said = [row["per_step_saving_ns"] for row in rows(dataset, "findings") if row["reported"]]
    assert sum(said) <= 1.1 * late["per_step_saving_ns"]  # what holds rank 1 up is not said again of that rank alone
    assert filled(traces, dataset).known == 3
    assert "straggler_host" in {cause.rule for cause in report(str(dataset)).causes}
    (ticket,) = [t for t in tickets_of(str(dataset), "mine").drafts if "Rank 1's host is late" in t.title]
    assert "tracemine scan llama/2026-11-22" in str(ticket)
    assert "tracemine explain" not in str(ticket)


def test_a_damaged_rank_is_left_out_and_the_job_still_stored(tmp_path: Path) -> None:
    traces, dataset = tmp_path / "traces", tmp_path / "set"
    damaged = write(LATE, traces / "llama" / "2026-11-22")[2]
    damaged.write_text(damaged.read_text()[:700])
    filled(traces, dataset)
    (run,) = rows(dataset, "runs")
    assert (run["ranks"], run["world_size"]) == (2, 3)


def test_what_seems_a_job_and_is_none_is_a_run_each(tmp_path: Path) -> None:
    folder = tmp_path / "traces" / "llama" / "2026-11-22"
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"rank{rank}.json.gz").write_bytes(CHAIN.read_bytes())
    assert filled(tmp_path / "traces", tmp_path / "set").scanned == 2
    assert [run["ranks"] for run in rows(tmp_path / "set", "runs")] == [None, None]
    assert filled(tmp_path / "traces", tmp_path / "set") == Total(known=2)


def test_two_runs_in_a_folder_are_not_taken_for_one_job(tmp_path: Path) -> None:
    folder = tmp_path / "traces" / "llama" / "2026-11-22"
    for name in ("first", "second"):
        for path in write(Program([Rank(), Rank()], layers=2, kernels=2), tmp_path / name):
            folder.mkdir(parents=True, exist_ok=True)
            path.rename(folder / f"{path.stem}_{name}.json")
    given, _, _ = tasks([str(tmp_path / "traces")], str(tmp_path / "set"), ScanSettings(), LABELS)
    assert [task.ranks for task in given] == [()] * 4
