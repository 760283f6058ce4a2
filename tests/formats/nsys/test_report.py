"""A report is exported by the nsys on PATH; without one, the command is said."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.formats.nsys.test_schemas import recording, same
from tracemine.errors import InputError
from tracemine.formats import open_trace

_BINARY = b"\x01\x02\0\0QuadD"


def nsys_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> Path:
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nsys").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    report = folder / "a b;c.nsys-rep"
    report.write_bytes(_BINARY)
    return report


def test_without_nsys_the_command_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(_BINARY)
    with pytest.raises(InputError) as refused:
        open_trace(path)
    first, hint = str(refused.value).splitlines()
    assert first == f"{path}: is an Nsight Systems report, which only nsys can open, and no nsys is on PATH"
    assert "nsys export --type sqlite run.nsys-rep" in hint


def test_nsys_exports_into_a_folder_that_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = recording().write(tmp_path / "ready.sqlite")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    # nsys export --type sqlite --output TARGET REPORT
    report = nsys_on_path(monkeypatch, tmp_path, f'test "$3" = sqlite && test -f "$6" && cp "{ready}" "$5"')
    t = open_trace(report)
    assert same(t, open_trace(ready))
    assert t.meta.source == "a b;c.nsys-rep"
    assert list(temporary.iterdir()) == []


def test_a_report_that_nsys_cannot_export_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = nsys_on_path(monkeypatch, tmp_path, "echo secret >&2; exit 1")
    with pytest.raises(InputError, match="is an Nsight Systems report that nsys could not export") as refused:
        open_trace(report)
    assert "secret" not in str(refused.value)


def test_an_export_under_a_reports_name_is_read_as_what_it_is(tmp_path: Path) -> None:
    path = recording().write(tmp_path / "t.nsys-rep")
    assert open_trace(path).activities.num_rows == 4
