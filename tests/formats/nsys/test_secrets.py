"""An export carries the profiled process's environment, its output, hosts, users and paths: none of it comes out."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.formats.nsys.make import PROCESS, Export
from tests.formats.nsys.test_schemas import recording
from tracemine.cli import whole
from tracemine.errors import TracemineError
from tracemine.formats import open_trace

SECRET = "hunter2-9f31c7"  # noqa: S105 - to be searched for


def planted(nsys: str = "2025.3.1") -> Export:
    """A recording with the secret wherever a real export has what is nobody's business."""
    export = recording(nsys)
    about = "META_DATA_EXPORT" if nsys.startswith("2025") else "EXPORT_META_DATA"
    for key in ("ENVIRONMENT_VARIABLE", "COMMAND_LINE", "WORKING_DIRECTORY"):
        export.add("META_DATA_CAPTURE", name=f"PROCESS_0:{key}", value=f"TOKEN={SECRET}")
    for key in ("EXPORT_USER", "EXPORT_HOST_NAME", "EXPORT_PARAM_INPUT_FILE", "EXPORT_PARAM_OUTUPT_FILE", SECRET):
        export.add(about, name=key, value=f"/home/{SECRET}/x")
    export.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", devStateName=SECRET, value=SECRET)
    export.add("DIAGNOSTIC_EVENT", severity=2, text=f"Not all CUDA events might have been collected. {SECRET}")
    export.add("DIAGNOSTIC_EVENT", severity=3, text=f"see /home/{SECRET}/log")
    export.add(
        "ProcessStreams", globalPid=PROCESS, filenameId=export.text(f"/tmp/{SECRET}"), contentId=export.text(SECRET)
    )
    export.add("ThreadNames", nameId=export.text(f"worker {SECRET}"), globalTid=PROCESS | 548)
    return export


def artefacts(folder: Path, path: Path) -> Iterator[tuple[str, bytes]]:
    """What every command makes of an export, by name."""
    runner = CliRunner()
    for report in ("text", "json", "markdown"):
        result = runner.invoke(whole(), ["scan", str(path), "--format", report])
        assert result.exit_code == 0, result.output
        yield report, result.output.encode()
    result = runner.invoke(whole(), ["scan", str(path), "--parquet", str(folder / "timeline")])
    assert result.exit_code == 0, result.output
    yield "ingest", result.output.encode()
    for file in sorted((folder / "timeline").iterdir()):
        yield file.name, file.read_bytes()


@pytest.mark.parametrize(
    ("nsys", "kind"),
    [("2022.1.3", "sqlite"), ("2025.3.1", "sqlite"), ("2025.3.1", "parquetdir"), ("2025.3.1", "arrowdir")],
)
def test_the_environment_users_hosts_and_paths_come_out_nowhere(tmp_path: Path, nsys: str, kind: str) -> None:
    export = planted(nsys)
    path = export.write(tmp_path / "t.sqlite") if kind == "sqlite" else export.folder(tmp_path / "t", kind)
    found = dict(artefacts(tmp_path, path))
    assert {"text", "json", "markdown", "ingest", "meta.json", "activities.parquet", "ops.parquet"} <= set(found)
    # Compression could hide it: the timeline's tables are searched as text too.
    tables = open_trace(tmp_path / "timeline")
    found["rows"] = repr([t.to_pylist() for t in (tables.activities, tables.ops, tables.api, tables.steps)]).encode()
    assert b"aten::relu" in found["rows"]
    assert [name for name, content in found.items() if SECRET.encode() in content] == []


def test_errors_do_not_quote_the_export(tmp_path: Path) -> None:
    path = planted().write(tmp_path / "t.sqlite")
    content = path.read_bytes()
    said = []
    for at in range(0, len(content), 2731):
        path.write_bytes(content[:at] + b"\xff\xfe" * 40 + content[at + 80 :])
        try:
            said.append(repr(open_trace(path).meta))
        except TracemineError as error:
            said.append(str(error))
    assert len(said) > 20
    assert not any(SECRET in text for text in said)


def test_a_broken_table_definition_is_not_quoted(tmp_path: Path) -> None:
    path = planted().write(tmp_path / "t.sqlite")
    with sqlite3.connect(path) as database:
        database.execute("pragma writable_schema = on")
        database.execute(f"update sqlite_master set sql = 'create table {SECRET} oops' where name = 'NVTX_EVENTS'")  # noqa: S608
    database.close()
    with pytest.raises(TracemineError) as refused:
        open_trace(path)
    assert SECRET not in str(refused.value)
