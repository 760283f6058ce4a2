"""`--et` and folders of recordings, on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tracemine.cli import main

FIXTURES = Path(__file__).parents[2] / "fixtures"
CAPTURE = FIXTURES / "captures" / "chain"
TRACE, EXECUTION_TRACE = CAPTURE / "trace.json.gz", CAPTURE / "et.json.gz"


def _recording(folder: Path) -> Path:
    """A folder as tracemine.capture leaves it."""
    folder.mkdir(parents=True)
    (folder / "trace.json.gz").write_bytes(TRACE.read_bytes())
    (folder / "et.json.gz").write_bytes(EXECUTION_TRACE.read_bytes())
    (folder / "capture.json").write_text("{}")
    return folder


def test_ingest_writes_the_edges_with_their_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(TRACE), "--et", str(EXECUTION_TRACE), "--parquet", str(tmp_path / "out")]) == 0
    edges = pq.read_table(tmp_path / "out" / "edges.parquet").to_pylist()
    assert len(edges) == 6
    assert {edge["evidence"] for edge in edges} == {"proven"}
    assert all(edge["producer_row"] < edge["consumer_row"] for edge in edges)
    assert main(["scan", str(TRACE), "-q", "--parquet", str(tmp_path / "out")]) == 0
    edges = pq.read_table(tmp_path / "out" / "edges.parquet").to_pylist()
    assert edges and {edge["evidence"] for edge in edges} <= {"consistent", "adjacent"}
    assert {edge["read_row"] for edge in edges} == {None}


def test_scan_reads_a_recording_s_folder_as_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = _recording(tmp_path / "runs" / "a"), _recording(tmp_path / "runs" / "b")
    assert main(["scan", str(tmp_path / "runs"), "--format", "json", "-q"]) == 0
    paths = [json.loads(line)["trace"]["path"] for line in capsys.readouterr().out.splitlines()]
    assert paths == [str(first), str(second)]
    assert main(["scan", str(first), "--format", "json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["trace"]["path"] == str(first)


def test_an_execution_trace_belongs_to_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(TRACE), "--et", str(EXECUTION_TRACE), "--format", "json", "-q"]) == 0
    other = str(FIXTURES / "kineto" / "clean_gemms.json.gz")
    with_both = [str(TRACE), other, "--et", str(EXECUTION_TRACE)]
    capsys.readouterr()
    assert main(["scan", *with_both]) == 2
    assert "--et: belongs to one trace, and 2 are named" in capsys.readouterr().err
    assert main(["scan", str(TRACE), "--et", other]) == 2
    assert "is no PyTorch execution trace" in capsys.readouterr().err
    assert main(["scan", str(TRACE), "--et", str(tmp_path / "nowhere.json")]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_reading_an_execution_trace_imports_neither_pandas_nor_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from tracemine.cli import main\n"
        f"assert main(['scan', {str(CAPTURE)!r}, '--parquet', {str(tmp_path / 'out')!r}]) == 0\n"
        "assert not {'pandas', 'torch', 'triton'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
