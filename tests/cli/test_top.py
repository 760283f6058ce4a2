"""tracemine top: a table that fits on a screen, and the same as data."""

from __future__ import annotations

import csv
import json
from io import StringIO
from pathlib import Path

import pytest

from tests.top.raw import Recording
from tracemine.cli import main
from tracemine.report.top import render_text
from tracemine.report.top_lines import Shown
from tracemine.top import BY

TRACE = "fixtures/captures/decoder_prefill"
SCREEN = 24  # lines


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["top", *map(str, arguments), "--quiet"])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("by", BY)
def test_a_table_fits_on_a_screen(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (TRACE, "fixtures/kineto/convnet_train.json.gz", "fixtures/nsys/block_train.sqlite"):
        code, out, err = run(capsys, path, "--by", by)
        assert (code, err) == (0, "")
        assert len(out.splitlines()) <= SCREEN
        assert all(len(line) <= 110 for line in out.splitlines())


def test_what_is_not_shown_is_said_and_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, TRACE, "--limit", "3")
    table = out.splitlines()[3:8]
    assert table[-1].split()[2:] == ["14", "more:", "--all"]
    shares = [float(line.split()[1].rstrip("%")) for line in table[1:]]
    assert sum(shares) == pytest.approx(100, abs=1.5)
    _, every, _ = run(capsys, TRACE, "--all")
    assert "more: --all" not in every
    assert len(every.splitlines()) == len(out.splitlines()) - 4 + 17


def test_modules_open_as_deep_as_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, TRACE, "--by", "module", "--depth", "2")
    assert "DecoderLayer ×2" in out
    assert "Attention" not in out
    _, out, _ = run(capsys, TRACE, "--by", "module", "--depth", "3")
    assert "      Attention ×2" not in out.replace("    Attention", "")
    assert "Attention ×2" in out


def test_json_and_csv_hold_all_rows(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, TRACE, "--by", "module", "--format", "json")
    found = json.loads(out)
    assert found["by"] == "module"
    assert sum(row["own_ns"] for row in found["rows"]) == found["gpu_time_ns"]
    _, out, _ = run(capsys, TRACE, "--by", "module", "--format", "csv")
    rows = list(csv.DictReader(StringIO(out)))
    assert [row["module"] for row in rows] == [row["name"] for row in found["rows"]]
    assert [int(row["gpu_time_ns"]) for row in rows] == [row["gpu_time_ns"] for row in found["rows"]]


def test_a_trace_of_the_host_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Recording()
    made.around("aten::mul", 10, 20)
    for by in BY:
        code, out, err = run(capsys, made.written(tmp_path), "--by", by)
        assert (code, err) == (0, "")
        assert "no GPU activity was recorded, the CPU alone was" in out


def test_names_of_a_stranger_are_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Recording()
    made.kernel("=cmd()\x1b[2J\nx", 10, 20, 5)
    path = made.written(tmp_path)
    for form in ("text", "json", "csv"):
        _, out, _ = run(capsys, path, "--format", form)
        assert "\x1b" not in out
    _, out, _ = run(capsys, path, "--format", "csv")
    assert not any(line.startswith("=") for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "colour"], "--by: nothing is added up by 'colour'"),
        (["--format", "xml"], "--format: there is no report 'xml'"),
        (["--limit", "0"], "--limit and --depth: are 1 or more"),
        (["--depth", "0"], "--limit and --depth: are 1 or more"),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, TRACE, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(says)


def test_names_that_are_cut_keep_what_differs(tmp_path: Path) -> None:
    from tests.top.test_sums import tops

    made = Recording()
    for at, tile in enumerate(("32x64", "64x32")):
        made.kernel(f"library_gemm_with_a_long_name_{'x' * 40}_{tile}_{'y' * 60}", 10 + 20 * at, 20 + 20 * at, 5)
    text = render_text(tops(made.written(tmp_path))["kernel"], Shown(width=80))
    assert "32x64" in text
    assert "64x32" in text
