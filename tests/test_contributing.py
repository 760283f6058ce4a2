"""The worked examples of CONTRIBUTING.md, run as they stand there."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tracemine.cli import main
from tracemine.findings import device_of, find
from tracemine.formats import open_trace
from tracemine.matching import load_rules, mine
from tracemine.report import Options, render
from tracemine.rows import row_sets

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.+?)\n```", TEXT, re.S))
COMMANDS = [
    line for block in re.findall(r"<!-- run -->\n```bash\n(.+?)\n```", TEXT, re.S) for line in block.splitlines()
]
TRACE = ROOT / "fixtures" / "kineto" / "decoder_prefill.json.gz"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file of the examples, as the current one."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    shutil.copy(TRACE, tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def imported(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_all_found() -> None:
    assert len(FILES) == 5
    assert len(COMMANDS) == 3


@pytest.mark.parametrize("command", COMMANDS)
def test_the_rule_lints_passes_its_cases_and_scans(
    written: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = command.split()
    assert program == "tracemine"
    assert main(arguments) == 0, capsys.readouterr().err


def test_the_rule_finds_what_it_says(written: Path) -> None:
    assert "dropout_before_add" in {rule.id for rule in load_rules("rules/dropout_before_add")}


def test_the_format_is_recognised_and_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (written / "kernels.csv").write_text("name,stream,start_ns,dur_ns\nadd,7,100,5000\nmul,7,6000,7000\n")
    try:
        imported(written / "use_kernel_table.py", "use_kernel_table")
    finally:
        for name in ("kernel_table", "use_kernel_table"):
            sys.modules.pop(name, None)


def test_the_report_draws_a_scan(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "tracemine.report.table", imported(written / "tracemine/report/table.py", "example_report")
    )
    timeline = open_trace(TRACE)
    rows = row_sets(timeline)
    scan = find(timeline, rows, mine(rows, load_rules()), device_of(timeline))
    out = io.StringIO()
    render("table", scan, out, Options(top=2))
    lines = out.getvalue().splitlines()
    assert lines[0] == "fingerprint,rule,occurrences,gpu_saving_ns,step_saving_ns"
    assert len(lines) == 3
    assert lines[1].split(",")[0] == scan.findings[0].fingerprint
