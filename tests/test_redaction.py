"""What a trace's header says of the machine and its environment stays in the trace: no output holds a word of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tracemine.cli import main

FIXTURES = Path(__file__).parent.parent / "fixtures" / "kineto"
SECRET = "hunter2-0123456789abcdef"  # noqa: S105 - planted to be looked for


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in whose header, metadata events and unused arguments secrets were planted."""
    document = json.loads(gzip.decompress((FIXTURES / "decoder_prefill.json.gz").read_bytes()))
    environment = {"HF_TOKEN": SECRET, "PATH": f"/home/{SECRET}/bin"}
    planted = {
        "metadata": {"env": environment, "command_line": ["train.py", f"--key={SECRET}"]},
        "environment": environment,
        "env": json.dumps(environment),
        "host_name": SECRET,
        "hostname": SECRET,
        "user": SECRET,
        "trace_id": SECRET,
        "traceName": f"/home/{SECRET}/trace.json",
        "cupti_version": SECRET,
        "cuda_driver_version": SECRET,
        "distributedInfo": {"rank": 0, "backend": SECRET, "pg_config": [{"pg_desc": SECRET}], "nccl_version": SECRET},
        "PYTORCH_CUDA_ALLOC_CONF": SECRET,
        SECRET: SECRET,
    }
    for device in document["deviceProperties"]:
        device |= {"uuid": SECRET, "pciBusId": SECRET, SECRET: 1}
    events = document.pop("traceEvents")
    for event in events:
        if event.get("ph") == "X":
            event["args"] = {**event.get("args", {}), "env": SECRET, "Process Group Description": SECRET}
    for name, args in (("process_name", {"name": SECRET}), ("process_labels", {"labels": SECRET})):
        events.append({"ph": "M", "name": name, "pid": 7, "tid": 0, "ts": 0, "args": args})
    events.append(
        {"ph": "i", "name": SECRET, "cat": "instant", "pid": 7, "tid": 0, "ts": events[-2].get("ts", 0), "s": "g"}
    )
    path = tmp_path_factory.mktemp("planted") / "trace.json"
    path.write_text(json.dumps({**planted, **document, "traceEvents": events, "tail": environment}))
    return path


@pytest.mark.parametrize("report", ["text", "json", "markdown"])
def test_no_report_repeats_the_environment(trace: Path, report: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scan", str(trace), "--format", report, "--top", "0", "--min-saving", "0ns"]) == 0
    said = capsys.readouterr()
    assert "NVIDIA H200" in said.out
    assert SECRET not in said.out + said.err


def test_no_file_of_a_timeline_holds_the_environment(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = trace.parent / "timeline"
    assert main(["scan", str(trace), "--parquet", str(directory)]) == 0
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    for path in sorted(directory.iterdir()):
        assert SECRET.encode() not in path.read_bytes(), path.name
        if path.suffix == ".parquet":  # whose columns are compressed
            table = pq.ParquetFile(path).read()
            assert not any(SECRET in str(value) for column in table.columns for value in column.to_pylist()), path.name
            assert SECRET not in str(table.schema), path.name
