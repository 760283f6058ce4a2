"""The command line as its users meet it: what is printed where, and with which exit code."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from docs.pages_cli import cli_page
from tests import forked
from tracemine.cli import COMMANDS, GROUPS, main, whole
from tracemine.perfmodel import calibration_of
from tracemine.report import REPORTS
from tracemine.version import __version__

ROOT = Path(__file__).parent.parent.parent
FIXTURES = ROOT / "fixtures" / "kineto"
TRACE = str(FIXTURES / "decoder_prefill.json.gz")
CHAIN = str(FIXTURES / "chain.json.gz")
CLEAN = str(FIXTURES / "clean_gemms.json.gz")
FOLDER = str(ROOT / "fixtures" / "captures" / "chain")

Said = tuple[int, str, str]
Run = Callable[..., Said]


def process(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "tracemine", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **more,
    )


def trace_without_gpu(path: Path) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0, "args": {}}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    return path


# --- starting ---------------------------------------------------------------------------------------------------------

MOST_DATACLASSES = 24  # that a plain scan makes of ours
HEAVY = {"numpy", "pyarrow", "msgspec", "isal", "rich.console", "pandas", "torch"}


def loaded_after(code: str) -> tuple[set[str], int]:
    """Modules that a new interpreter has after some code, and how many dataclasses of ours."""
    code = (
        f"import sys; {code}; from dataclasses import is_dataclass; "
        "ours = {one for name, module in list(sys.modules.items()) if name.startswith('tracemine') "
        "for one in vars(module).values() if isinstance(one, type) and is_dataclass(one)}; "
        "print(); print(*sys.modules); print(sum(one.__module__.startswith('tracemine') for one in ours))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    modules, count = said.stdout.splitlines()[-2:]
    return set(modules.split()), int(count)


def test_help_imports_nothing_heavy() -> None:
    calls = (["--help"], ["--version"], ["scan", "--help"], ["rules", "show", "--help"])
    assert loaded_after(f"from tracemine.cli import main; [*map(main, {calls})]")[0].isdisjoint(HEAVY)


def test_importing_tracemine_imports_nothing_but_the_standard_library() -> None:
    loaded = loaded_after("import tracemine")[0] - loaded_after("pass")[0]
    assert {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "tracemine",
        "tracemine.on_demand",
        "tracemine.version",
    }


def test_json_is_printed_without_what_draws_on_terminals_and_readers_of_other_formats() -> None:
    """With few dataclasses: one is compiled when its module is imported, a millisecond each, and a struct is not."""
    loaded, count = loaded_after(f"from tracemine.cli import main; main(['scan', {FOLDER!r}, '--format', 'json'])")
    assert {"pyarrow", "tracemine.formats.kineto.read"} <= loaded
    assert loaded.isdisjoint({"rich", "pandas"})
    assert loaded.isdisjoint({"sqlite3", "tracemine.formats.nsys.assemble", "tracemine.formats.ncu", "jinja2"})
    readers = ("xla.assemble", "tensorrt.timeline", "onnxruntime.timeline", "proton.trace", "rocpd.database")
    assert loaded.isdisjoint({f"tracemine.formats.{name}" for name in readers})
    assert 0 < count <= MOST_DATACLASSES


def test_a_scan_loads_nothing_of_other_commands() -> None:
    loaded, _ = loaded_after(f"from tracemine.cli import main; main(['scan', {CLEAN!r}])")
    others = ("agents", "api", "apply", "calibrate", "codegen", "comparison", "doctor", "fleet", "recording", "tickets")
    found = {name for name in loaded if name.split(".")[:1] == ["tracemine"]}
    assert {
        name for name in found if name.split(".")[1:2] in ([other] for other in (*others, "top", "validate", "verify"))
    } == set()
    commands_loaded = {name for name in (*COMMANDS, *GROUPS) if f"tracemine.cli.{name}" in found}
    assert commands_loaded <= {"scan", "baseline"}  # --save-baseline keeps one
    assert loaded.isdisjoint(
        {"pydantic", "jinja2", "sqlite3", "numpy.ma", "rich.markdown", "rich.progress", "rich.table"}
    )


def test_it_runs_as_a_module() -> None:
    with process("--version") as started:
        out, err = started.communicate()
    assert (started.returncode, out, err) == (0, f"tracemine {__version__}\n", "")


# --- help -------------------------------------------------------------------------------------------------------------


def commands(command: Any = None, name: str = "tracemine") -> list[tuple[str, Any]]:
    command = typer.main.get_command(whole()) if command is None else command
    inner = getattr(command, "commands", {})
    return [(name, command), *(one for child in inner for one in commands(inner[child], f"{name} {child}"))]


@pytest.mark.parametrize(("name", "command"), commands())
def test_the_help_of_every_command_has_an_example_and_a_sentence_for_every_option(name: str, command: Any) -> None:
    assert "\b\n" in command.help
    example = command.help.partition("\b\n")[2].splitlines()[1].strip()
    assert example.startswith("tracemine ")
    assert all(parameter.help for parameter in command.params)


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_command_and_option_is_on_the_page(name: str, command: Any) -> None:
    section = cli_page().partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert section
    assert all(option in section for parameter in command.params for option in parameter.opts if option[0] == "-")


@pytest.mark.parametrize("arguments", [(), ("rules",), ("baseline",), ("fleet",)])
def test_a_call_without_a_command_prints_the_help_and_is_wrong(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: tracemine")


# --- errors, word for word --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["scan"],
            "tracemine scan: missing argument 'PATH'\n"
            "  hint: tracemine scan [OPTIONS] PATH...; tracemine scan --help says more\n",
        ),
        (
            ["explain", CLEAN],
            "tracemine explain: missing argument 'FINDINGS.json|TRACE'\n"
            "  hint: tracemine explain [OPTIONS] N|FINGERPRINT FINDINGS.json|TRACE; "
            "tracemine explain --help says more\n",
        ),
        (["bogus"], "tracemine: no such command 'bogus'\n  hint: tracemine --help\n"),
        (["scan", "no/such.json"], "no/such.json: there is no such file\n"),
        (["scan", "no/*.json"], "no/*.json: no file matches this pattern\n"),
        (
            ["scan", "s3://bucket/t.json"],
            "s3://bucket/t.json: s3:// is not supported yet\n  hint: copy the trace here and pass the file's path\n",
        ),
        (
            ["scan", "x", "--min-saving", "3"],
            "--min-saving: '3' is not a time\n  hint: write a time or a share of the trace: 0.1ms, 50us, 1%\n",
        ),
        (
            ["scan", "x", "--min-saving", "300%"],
            "--min-saving: '300%' is not a percentage\n  hint: write a time or a share of the trace: 0.1ms, 50us, 1%\n",
        ),
        (
            ["scan", "x", "--fail-on", "severe"],
            "--fail-on: 'severe' is no severity, no time and no share\n"
            "  hint: write high, medium, low, a time (1ms) or a share (5%)\n",
        ),
        (
            ["scan", "x", "--format", "htm"],
            f"--format: there is no report 'htm'\n  hint: there are: {', '.join(REPORTS)}\n",
        ),
        (["scan", "x", "--top", "-1"], "--top: -1 is negative\n  hint: 0 prints all findings\n"),
        (["scan", "x", "--rules", "no/such"], "no/such: there is no such directory\n"),
    ],
)
def test_an_error_is_one_line_and_a_hint(run: Run, arguments: list[str], said: str) -> None:
    assert run(*arguments) == (2, "", said)


def test_an_unknown_option_is_named(run: Run) -> None:
    code, out, err = run("scan", "--colour", "x")
    assert (code, out) == (2, "")
    assert err.startswith("tracemine scan: no such option: --colour")
    assert err.endswith("\n  hint: tracemine scan --help\n")


def test_an_unknown_gpu_is_answered_with_those_that_are_known(run: Run) -> None:
    code, out, err = run("scan", "x", "--gpu", "Voodoo 2")
    assert (code, out) == (2, "")
    assert err.startswith("--gpu: 'Voodoo 2' is not in the device table\n  hint: there are: ")
    assert "NVIDIA H200" in err
    near = run("scan", "x", "--gpu", "h2000")[2]
    assert "hint: did you mean NVIDIA H200 SXM or NVIDIA H200 NVL? there are: NVIDIA V100" in near


def test_a_folder_without_traces_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    code, out, err = run("scan", tmp_path)
    assert (code, out) == (2, "")
    assert err == (
        f"{tmp_path}: no trace lies in this folder or below it\n"
        "  hint: a trace is a .json or .json.gz that torch.profiler's export_chrome_trace wrote, an .xplane.pb that "
        "JAX wrote, or an export of nsys\n"
    )


def test_an_error_repeats_no_escape_sequence_of_a_file_name(run: Run) -> None:
    _, _, err = run("scan", "\x1b]0;x\x07.json")
    assert err == "\N{REPLACEMENT CHARACTER}]0;x\N{REPLACEMENT CHARACTER}.json: there is no such file\n"


def test_a_file_name_that_is_not_text_is_scanned_all_the_same(run: Run, tmp_path: Path) -> None:
    path = trace_without_gpu(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")))
    for report in ("text", "json", "markdown"):
        code, out, err = run("scan", path, "--format", report)
        assert (code, err) == (0, "")
        assert "?.json" in out


def test_a_timeline_whose_name_is_not_text_is_written_and_scanned(run: Run, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    trace = trace_without_gpu(folder / "t\udcff.json")
    assert run("scan", trace, "--parquet", folder / "o\udcfe", "-q", "-o", folder / "text") == (0, "", "")
    code, out, err = run("scan", folder / "o\udcfe", "--format", "json", "-o", folder / "f\udcff")
    assert (code, out, err) == (0, "", "")
    assert json.loads((folder / "f\udcff").read_text())["trace"]["path"] == f"{tmp_path}/?/o?"


def test_what_the_machine_refuses_is_no_bug(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = run("scan", CLEAN, "--parquet", tmp_path / "file" / "timeline")
    assert (code, out) == (2, "")
    assert err == f"{tmp_path / 'file' / 'timeline'}: cannot be written: Not a directory\n"


# --- a bug ------------------------------------------------------------------------------------------------------------


def test_a_bug_is_one_line_that_names_the_place(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEMINE_DEBUG", raising=False)
    monkeypatch.setattr("tracemine.pipeline.find", lambda *a, **k: 1 / 0)
    code, out, err = run("scan", CLEAN)
    assert (code, out) == (3, "")
    first, second = err.splitlines()
    assert first.startswith(f"tracemine {__version__} has a bug in tracemine/pipeline.py:")
    assert first.endswith(": ZeroDivisionError: division by zero")
    assert second.startswith("  hint: please report it with the traceback that TRACEMINE_DEBUG=1 prints")


def test_the_traceback_of_a_bug_is_printed_where_it_was_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEMINE_DEBUG", "1")
    monkeypatch.setattr("tracemine.pipeline.find", lambda *a, **k: 1 / 0)
    code, _, err = run("scan", CLEAN)
    assert code == 3
    assert err.startswith("Traceback (most recent call last):")


# --- scan -------------------------------------------------------------------------------------------------------------


def test_on_a_terminal_of_ascii_other_characters_stand_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["scan", TRACE]) == 0
    shown = raw.getvalue().decode("ascii")
    assert "?" not in shown
    assert "GEMM/conv ######" in shown
    assert "idle ....." in shown
    assert "1,360 > 923 us per step" in shown


def test_a_trace_is_reported_for_a_person(run: Run) -> None:
    code, out, err = run("scan", TRACE)
    assert (code, err) == (0, "")
    headline, about, text = out.splitlines()[0], " ".join(out.splitlines()[1:3]), " ".join(out.split())
    assert headline == "GPU-bound, 87% busy: GEMM/conv 37%, memory-bound 36%, copies 11% of the step"
    assert about.startswith(TRACE)
    assert "NVIDIA H200 · 2 steps · 1,360 µs per step unprofiled" in about
    assert "1 252 19% Unfused RMSNorm ×5 record.py:45 forward low 4 lines" in text
    assert "Together with 1 smaller (--all): 438 µs (32%), 1,360 → 923 µs per step; each row: its fix alone." in text
    assert "\x1b" not in out


@pytest.mark.parametrize("asked", [["--all"], ["--top", "3"], ["--why-not"]])
def test_all_findings_are_listed_where_that_is_asked_for(run: Run, asked: list[str]) -> None:
    code, out, _ = run("scan", TRACE, *asked)
    assert code == 0
    assert out.startswith("GPU-bound, 87% busy: GEMM/conv 37%, memory-bound 36%, copies 11% of the step\n")
    assert f"{TRACE}\nkineto · NVIDIA H200 · 2 steps · 186 activities" in out
    assert out.count("    fix  ") == (3 if "3" in asked else 4)


def test_a_trace_without_gpu_activity_is_no_error(run: Run, tmp_path: Path) -> None:
    code, out, err = run("scan", trace_without_gpu(tmp_path / "cpu.json"))
    assert (code, err) == (0, "")
    assert out.startswith("There is nothing to judge: no GPU activity was recorded.\n")


def test_several_traces_are_one_json_object_a_line_each(run: Run) -> None:
    code, out, _ = run("scan", TRACE, CLEAN, TRACE, "--format", "json")
    assert code == 0
    assert [json.loads(one)["trace"]["path"] for one in out.splitlines()] == [TRACE, CLEAN]


def test_a_folder_stands_for_the_traces_and_timelines_below_it(run: Run, tmp_path: Path) -> None:
    trace = trace_without_gpu(tmp_path / "b.json")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.pt.trace.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
    (tmp_path / "settings.json").write_text('{"lr": 1}')
    (tmp_path / "notes.txt").write_text("no")
    assert run("scan", trace, "--parquet", tmp_path / "timeline", "-q", "-o", tmp_path / "text") == (0, "", "")
    code, out, err = run("scan", tmp_path, "--format", "json")
    found = [json.loads(one)["trace"]["path"] for one in out.splitlines()]
    assert code == 0
    assert found == [str(tmp_path / name) for name in ("b.json", "deep/a.pt.trace.json.gz", "timeline")]
    assert err == f"{tmp_path}: left out, no traces: settings.json (1 file)\n"
    assert run("scan", tmp_path, "--quiet", "--format", "json")[2] == ""


def test_a_quoted_pattern_is_expanded(run: Run, tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "c.txt"):
        trace_without_gpu(tmp_path / name)
    code, out, _ = run("scan", tmp_path / "*.json", "--format", "json")
    assert (code, out.count("\n")) == (0, 2)


def test_a_timeline_is_scanned_like_its_trace(run: Run, tmp_path: Path) -> None:
    run("scan", TRACE, "--parquet", tmp_path / "timeline")
    of_trace = json.loads(run("scan", TRACE, "--format", "json")[1])
    of_timeline = json.loads(run("scan", tmp_path / "timeline", "--format", "json")[1])
    assert of_timeline.pop("trace") | {"path": TRACE} == of_trace.pop("trace")
    assert of_timeline == of_trace


def test_one_trace_that_cannot_be_read_does_not_stop_the_others(run: Run) -> None:
    code, out, err = run("scan", "no/such.json", CLEAN, "--format", "json", "--fail-on", "low")
    assert code == 2
    assert json.loads(out)["trace"]["path"] == CLEAN
    assert err == "no/such.json: there is no such file\n"


def test_top_0_prints_all_findings(run: Run) -> None:
    findings = json.loads(run("scan", TRACE, "--format", "json")[1])["findings"]
    assert len(findings) > 1
    assert "1 of 4 findings shown" in run("scan", TRACE, "--top", 1)[1]
    assert "findings shown" not in run("scan", TRACE, "--top", 0)[1]


def test_a_higher_threshold_leaves_findings_out_and_counts_them(run: Run) -> None:
    few = json.loads(run("scan", TRACE, "--format", "json", "--min-saving", "99%")[1])
    assert few["findings"]
    assert not any(finding["reported"] for finding in few["findings"])
    assert few["dropped"]["below_threshold"] > 0
    all_of_them = json.loads(run("scan", TRACE, "--format", "json", "--min-saving", "0ns")[1])
    assert "below_threshold" not in all_of_them["dropped"]


@pytest.mark.parametrize(
    ("trace", "fail_on", "code"),
    [
        (TRACE, "high", 1),
        (TRACE, "low", 1),
        (TRACE, "10us", 1),
        (TRACE, "1%", 1),
        (TRACE, "1s", 0),
        (TRACE, "100%", 0),
        (CLEAN, "low", 0),
    ],
)
def test_fail_on_decides_the_exit_code_and_prints_the_report_all_the_same(
    run: Run, trace: str, fail_on: str, code: int
) -> None:
    got, out, err = run("scan", trace, "--fail-on", fail_on)
    assert got == code
    assert err.startswith(f"tracemine: {trace}: failed, ") if code else err == ""
    assert any(line.startswith(trace) for line in out.splitlines()[1:3])  # below the first, which may be wrapped


def test_a_gpu_that_the_trace_names_is_not_overridden(run: Run) -> None:
    code, out, err = run("scan", TRACE, "--gpu", "NVIDIA A100-SXM4-80GB", "--format", "json")
    assert code == 0
    assert err.startswith(f"{TRACE}: the trace says NVIDIA H200 SXM; --gpu is for traces whose GPU is not known")
    assert json.loads(out) == json.loads(run("scan", TRACE, "--format", "json")[1])


def test_a_gpu_that_is_not_known_is_given_by_the_caller(run: Run, tmp_path: Path) -> None:
    content = gzip.decompress(Path(TRACE).read_bytes()).replace(b"NVIDIA H200", b"Brand New")
    (tmp_path / "new.json").write_bytes(content)
    without = json.loads(run("scan", tmp_path / "new.json", "--format", "json")[1])
    given = json.loads(run("scan", tmp_path / "new.json", "--format", "json", "--gpu", "NVIDIA H200")[1])
    assert without["summary"]["gpu_saving_ns"]["mid"] == 0 < given["summary"]["gpu_saving_ns"]["mid"]
    assert any("Brand New" in warning for warning in without["warnings"])
    assert "estimates are for NVIDIA H200 SXM, as --gpu says" in given["warnings"]


def test_a_gpu_is_given_as_people_write_it(run: Run, tmp_path: Path) -> None:
    content = gzip.decompress(Path(TRACE).read_bytes()).replace(b"NVIDIA H200", b"Brand New")
    (tmp_path / "new.json").write_bytes(content)
    for name in ("h200", "H200 SXM", "nvidia h200 141 GB"):
        given = json.loads(run("scan", tmp_path / "new.json", "--format", "json", "--gpu", name)[1])
        assert given["trace"]["estimated_for"] == "NVIDIA H200 SXM"


def test_a_gpu_that_may_be_several_is_answered_with_those(run: Run) -> None:
    code, out, err = run("scan", "x", "--gpu", "a100 pcie")
    assert (code, out) == (2, "")
    assert err.startswith("--gpu: 'a100 pcie' may be any of several GPUs\n  hint: there are: NVIDIA A100 40 GB, NVIDIA")


def test_without_a_gpu_nothing_is_estimated_and_the_hint_says_how(run: Run, tmp_path: Path) -> None:
    content = gzip.decompress(Path(TRACE).read_bytes()).replace(b"NVIDIA H200", b"Brand New")
    (tmp_path / "new.json").write_bytes(content)
    for report in ("text", "markdown", "html"):
        out = run("scan", tmp_path / "new.json", "--format", report, "--min-saving", "1s")[1]
        assert "No rule found" not in out
        text = " ".join(out.partition("<script")[0].split())
        assert text.count("savings of GPU time are not estimated") == text.count("--gpu h100") == 1
        named = run("scan", tmp_path / "new.json", "--format", report, "--min-saving", "1s", "--gpu", "h100")[1]
        assert "No rule found a saving worth listing." in named


def _slower(factor: int) -> bytes:
    """A calibration of an H200 on which everything takes so many times as long."""
    one = calibration_of("NVIDIA H200 SXM")
    assert one is not None
    points = (msgspec.structs.replace(p, cold_ns=factor * p.cold_ns, warm_ns=factor * p.warm_ns) for p in one.points)
    return msgspec.structs.replace(one, points=tuple(points)).to_json()


def test_a_scan_reads_fused_times_off_the_named_calibration_else_the_users_else_the_packages(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*more: object) -> tuple[int, str | None]:
        scan = json.loads(run("scan", TRACE, "--format", "json", "--min-saving", "0ms", *more)[1])
        return scan["summary"]["gpu_saving_ns"]["mid"], scan["trace"].get("calibration")

    shipped, of_package = found()
    own, named = tmp_path / "tracemine/calibration/mine.json", tmp_path / "named.json"
    own.parent.mkdir(parents=True)
    own.write_bytes(_slower(2))
    named.write_bytes(_slower(4))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    of_user, path = found()
    of_file, named_path = found("--calibration", named)
    assert 0 < of_file < of_user < shipped
    assert (of_package, path, named_path) == (None, str(own), str(named))
    assert "in named.json" in run("scan", TRACE, "--format", "json", "--calibration", named)[1]


def test_calibrate_writes_where_scan_looks_unless_it_is_told_another_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = pytest.importorskip("tracemine.calibrate.measure", reason="torch and Triton are not installed")
    monkeypatch.setattr(measure, "measure", lambda progress: calibration_of("NVIDIA H200 SXM"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("calibrate")
    own = tmp_path / "data/tracemine/calibration/nvidia_h200.json"
    assert (code, own.is_file()) == (0, True)
    assert str(own) in out
    assert json.loads(run("scan", TRACE, "--format", "json")[1])["trace"]["calibration"] == str(own)
    own.unlink()
    assert run("calibrate", "-q", "-o", "mine.json")[0] == 0
    assert (tmp_path / "mine.json").is_file()
    assert not own.exists()


def test_a_calibration_that_is_none_is_an_error_where_it_is_named_and_a_note_in_the_users_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "tracemine/calibration/mine.json"
    own.parent.mkdir(parents=True)
    own.write_text("{}")
    code, _, err = run("scan", CLEAN, "--calibration", own)
    assert (code, len(err.splitlines())) == (2, 2)
    assert err.startswith(f"{own}: no calibration: ")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code, _, err = run("scan", CLEAN)
    assert code == 0
    assert f"A calibration was not used: {own}: no calibration: " in err
    assert run("scan", "-q", CLEAN)[2] == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", ""],
        ["scan", "-q", CLEAN, ""],
        ["scan", CLEAN, "-o", ""],
        ["scan", CLEAN, "--output="],
        ["scan", CLEAN, "--et", ""],
        ["scan", CLEAN, "--rules", ""],
        ["scan", CLEAN, "--calibration", ""],
        ["scan", "", "--parquet", "timeline"],
        ["scan", CLEAN, "--parquet", ""],
        ["top", ""],
        ["top", CLEAN, "--ncu", ""],
        ["verify", ""],
        ["verify", CLEAN, "--emit="],
        ["explain", "1", ""],
        ["calibrate", "-o", ""],
        ["rules", "lint", "--rules", ""],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_no_path(
    run: Run, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(CLEAN, tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    said, hint = err.splitlines()
    assert said.startswith(f"tracemine {arguments[0]}: an argument is empty: ")
    assert "variable" in hint
    assert [path.name for path in tmp_path.iterdir()] == [Path(CLEAN).name]


def test_the_current_folder_is_scanned_where_it_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(CLEAN, tmp_path)
    assert run("scan", ".")[0] == 0
    assert run("scan", f"--output={tmp_path / 'a=.txt'}", ".")[0] == 0


# --- where it is written ----------------------------------------------------------------------------------------------


def test_output_is_written_whole_and_nothing_is_printed(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")
    assert run("scan", TRACE, "--format", "json", "--output", target) == (0, "", "")
    assert json.loads(target.read_text())["trace"]["path"] == TRACE
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_output_is_left_alone_when_nothing_could_be_read(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text("old")
    assert run("scan", "no/such.json", "-o", target)[0] == 2
    assert target.read_text() == "old"


def test_output_into_a_folder_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "no" / "report.txt"
    code, out, err = run("scan", CLEAN, "-o", target)
    assert (code, out) == (2, "")
    assert err == f"{target}: cannot be written: No such file or directory\n"


def test_output_to_a_link_keeps_the_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert run("scan", CLEAN, "-o", tmp_path / "link") == (0, "", "")
    assert (tmp_path / "link").is_symlink()
    assert CLEAN in (tmp_path / "target").read_text().splitlines()[1]


def test_output_to_a_loop_of_links_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    code, out, err = run("scan", CLEAN, "-o", tmp_path / "loop")
    assert (code, out) == (2, "")
    assert err == f"{tmp_path / 'loop'}: is a link that leads back to itself\n  hint: name another place\n"


def test_output_may_have_a_name_as_long_as_the_system_lets_it(run: Run, tmp_path: Path) -> None:
    target = tmp_path / ("a" * 255)
    assert run("scan", CLEAN, "-o", target) == (0, "", "")
    assert CLEAN in target.read_text().splitlines()[1]


def test_output_to_a_pipe_is_written_to_it() -> None:
    with process("scan", CLEAN, "--output", "/dev/stdout") as started:
        out, err = started.communicate()
    assert (started.returncode, err) == (0, "")
    assert CLEAN in out.splitlines()[1]


def test_a_reader_that_goes_away_is_no_error() -> None:
    with process("scan", TRACE, TRACE, CLEAN, "--format", "json") as started:
        assert started.stdout is not None
        started.stdout.close()
        assert started.stderr is not None
        assert started.stderr.read() == ""
    assert started.returncode == 0


# Runs command lines one after another, each in a fork that ends as Python ends: to begin takes longer than most do.
FORKS = """\
import json, os, runpy, sys
import tracemine.cli.scan, tracemine.pipeline, tracemine.formats.kineto.read, tracemine.report.text
target, codes = sys.argv[1], []
for arguments in json.loads(sys.argv[2]):
    if not (child := os.fork()):
        sys.argv[1:] = arguments
        runpy.run_module("tracemine", run_name="__main__", alter_sys=True)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with open(target, "w") as file:
    json.dump(codes, file)
"""


def redirected(how: str, folder: Path, calls: Sequence[Sequence[str]]) -> tuple[list[int], str]:
    """Exit codes of command lines whose streams are what a shell makes of them, and what is read of their errors."""
    command = [sys.executable, "-c", FORKS, str(folder / "codes"), json.dumps(calls)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # what is held back is written, or not, as the process ends
    shell = ["sh", "-c", f'"$@" {how}', "sh", *command]
    done = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "codes").read_text()), done.stderr


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", "2>&- >&-", "2>&- >&- <&-", "2>/dev/full >/dev/full"])
def test_what_cannot_be_said_is_told_by_the_exit_code(how: str, tmp_path: Path) -> None:
    """Errors, and a gate; what is written to files is whole, though a note or an error is said of the first trace."""
    trace, target = str(trace_without_gpu(tmp_path / "t.json")), tmp_path / "out.json"
    wrong = [["scan", "nothere"], ["scan", CLEAN, "--top", "-1"], ["scan", "--nope"], []]
    files = ["scan", trace, CLEAN, "--format", "json", "-o", str(target)]
    codes, _ = redirected(how, tmp_path, [*wrong, ["scan", CHAIN, "--fail-on", "low", "-o", "text"], files])
    assert codes[:5] == [2, 2, 2, 2, 1]
    assert codes[5] in (0, 2)
    assert [json.loads(one)["schema_version"] for one in target.read_text().splitlines()]


@pytest.mark.parametrize("how", [">&-", "<&- >&- 2>&-"])
def test_output_that_is_closed_is_read_by_no_one_as_behind_head(how: str, tmp_path: Path) -> None:
    calls = [["scan", CLEAN], ["scan", CLEAN, "--format", "json"], ["rules", "list"], ["--version"], ["--help"]]
    assert redirected(how, tmp_path, calls) == ([0] * len(calls), "")


def test_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    calls = [["scan", CLEAN], ["rules", "list"], ["--version"], ["--help"], ["scan", "--help"]]
    said = "standard output: cannot be written to: No space left on device\n"
    assert redirected(">/dev/full", tmp_path, calls) == ([2] * len(calls), said * len(calls))


def test_an_interrupt_is_quiet(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "wait.toml")  # opening it waits for a writer: the process is there when the signal comes
    code = (
        "import signal, sys, tracemine.formats as f\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "def wait(*a, **k): print('ready', flush=True); open(sys.argv[1])\n"
        "f.open_trace = wait\n"
        "from tracemine.cli import main\n"
        f"sys.exit(main(['scan', {CLEAN!r}]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "wait.toml")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.send_signal(signal.SIGINT)
        out, err = started.communicate()
    assert (started.returncode, out, err) == (130, "", "")


def told_to_end(name: str, where: Path, *arguments: str, before: str = "") -> Said:
    """What a process says that gets a signal while it writes its first table."""
    code = (
        "import signal, sys, time, pyarrow.parquet as pq\n"
        "begun = []\n"
        "def wait(*a, **k):\n"
        "    begun.append(a)\n"
        "    if len(begun) == 1: print('ready', flush=True)\n"
        "    elif len(begun) > 2: print('one more table', flush=True)\n"  # two are written at once
        "    time.sleep(2)\n"
        "pq.write_table = wait\n"
        f"signal.signal(signal.{name}, signal.SIG_DFL)\n"  # whatever the shell that runs the tests passes over
        f"{before}\n"
        "from tracemine.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=where, env=environment
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        assert any(path.suffix == ".tmp" for path in where.iterdir())
        started.send_signal(getattr(signal, name))
        try:
            out, err = started.communicate(timeout=1 if before else 30)
        except subprocess.TimeoutExpired:
            started.kill()
            out, err = started.communicate()
    return started.returncode, out, err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU"])
def test_an_ingest_that_is_told_to_end_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    assert told_to_end(name, tmp_path, "scan", CLEAN, "--parquet", "out") == (130, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_is_to_be_passed_over_is_passed_over(tmp_path: Path) -> None:
    nohup = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert told_to_end("SIGHUP", tmp_path, "scan", CLEAN, "--parquet", "out", before=nohup)[0] == -signal.SIGKILL


def on_a_terminal(*arguments: str, columns: int = 80, **env: str) -> str:
    """What a command prints where standard output is a terminal; it begins loaded."""
    import pty

    environment = {"TERM": "xterm-256color", "COLUMNS": str(columns), "PATH": os.environ["PATH"], **env}
    ours, theirs = pty.openpty()
    command = [str(forked.program()), *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT):
        os.close(theirs)
        said = b""
        try:
            while piece := os.read(ours, 65536):
                said += piece
        except OSError:  # Linux says the other end is closed by an error
            pass
    os.close(ours)
    return said.decode()


def test_a_terminal_gets_colours_and_its_own_width() -> None:
    said = on_a_terminal("scan", TRACE, columns=70)
    assert "\x1b[1m" in said
    plain = on_a_terminal("scan", TRACE, "--no-color", columns=70)
    text = [one for one in plain.splitlines() if " = " not in one and "return " not in one]  # code is never broken
    assert 60 < max(len(one) for one in text) <= 70


def test_colours_can_be_switched_off() -> None:
    assert "\x1b" not in on_a_terminal("scan", CLEAN, TERM="dumb")
    assert not re.search(
        r"\x1b\[[0-9;]*m", on_a_terminal("scan", CLEAN, NO_COLOR="1")
    )  # a slow scan draws its progress


def test_an_empty_no_color_switches_nothing_off() -> None:
    assert "\x1b" in on_a_terminal("scan", CLEAN, NO_COLOR="")


# --- what a terminal would act on -------------------------------------------------------------------------------------

ACTS = "\x1b[2J\x1b]0;P\x07\x9b\u202e\u200b"


def unseen(text: str) -> list[str]:
    """Characters that are not seen, line ends aside."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def test_names_of_files_reach_no_terminal_as_they_are(run: Run, tmp_path: Path) -> None:
    shutil.copy(CLEAN, tmp_path / "ok.json.gz")
    (tmp_path / f"x{ACTS}\nnote: all is well.json").write_text('{"a": 1}')
    code, out, err = run("scan", tmp_path)
    assert code == 0
    assert (unseen(out), unseen(err)) == ([], [])
    assert "left out, no traces: x\N{REPLACEMENT CHARACTER}[2J" in err
    assert len(err.splitlines()) == 1
    shutil.copy(CLEAN, tmp_path / f"t{ACTS}.json.gz")
    code, out, err = run("scan", tmp_path / f"t{ACTS}.json.gz", "--gpu", "NVIDIA A100-SXM4-80GB")
    assert (code, unseen(out), unseen(err)) == (0, [], [])
    assert "the trace says" in err


def test_names_of_counter_reports_reach_no_terminal_as_they_are(run: Run, tmp_path: Path) -> None:
    report = tmp_path / f"r{ACTS}.csv"
    report.write_text(f'"ID","Process ID","Kernel Name","Grid Size"\n"0","1","k{ACTS}","(1, 1, 1)"\n"x')
    for form in ("text", "json", "markdown"):
        code, out, err = run("top", report, "--format", form)
        assert (code, unseen(out), unseen(err)) == (0, [], [])
        assert "left out 1 row" in err


def test_help_and_tracebacks_keep_their_lines(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError(ACTS)

    code, _, err = run()
    assert code == 2
    assert len(err.splitlines()) > 5
    monkeypatch.setenv("TRACEMINE_DEBUG", "1")
    monkeypatch.setattr("tracemine.pipeline.open_trace", broken)
    code, _, err = run("scan", CLEAN)
    assert (code, unseen(err)) == (3, [])
    assert '\n  File "' in err


RULE = """
title = "t{0}"
status = "experimental"
what = "w{0} <img src=x> ![a](https://b.c/d) <https://b.c>, 1 < 2"
why = "y{0}\\n```\\n"
fix = '''
Do:

    a <b>
'''
references = ["https://b.c> <img src=x>"]
limits = ["- l{0}\\n\\n    <img src=x>"]
saving = "fuse"
pattern = "a"
[define]
a = {{ name.re = "k{0}" }}
"""


def test_what_a_rule_says_reaches_no_terminal_as_it_is(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / f"up{ACTS}" / "mine"
    folder.mkdir(parents=True)
    (folder / "rule.toml").write_text(RULE.format("".join(f"\\u{ord(c):04x}" for c in ACTS)))
    cases = f"## It matches{ACTS}\n\n| kind | name | expect |\n|---|---|---|\n| kernel | b | a |\n"
    (folder / "cases.md").write_text(cases)
    for what in (["list"], ["show", folder.name], ["lint"], ["test"]):
        code, out, err = run("rules", *what, "--rules", folder)
        assert code in (0, 1), err
        assert "\N{REPLACEMENT CHARACTER}" in out
        assert (unseen(out), err) == ([], "")


def test_a_rule_is_shown_as_markdown_without_html(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rule.toml").write_text(RULE.format(""))
    cases = "## It matches <img src=x>\n\n| kind | name | expect |\n|---|---|---|\n| kernel | b | a |\n"
    (folder / "cases.md").write_text(cases)
    _, out, _ = run("rules", "show", "mine", "--rules", folder)
    assert "w &lt;img src=x> !\\[a](https://b.c/d) <https://b.c>, 1 < 2\n" in out
    assert "\n```python\na <b>\n```\n" in out
    fences = [one for one in out.splitlines() if one.startswith("```")]
    assert fences == ["```python", "```", "```python", "```", "```text", "```"]
    assert "<img" not in re.sub(r"^```\w+\n.*?^```$", "", out, flags=re.MULTILINE | re.DOTALL)


# --- timelines and rules ---------------------------------------------------------------------------------------------


def test_a_timeline_that_is_kept_says_what_became_of_the_events(run: Run, tmp_path: Path) -> None:
    code, _, err = run("scan", CLEAN, "--parquet", tmp_path / "timeline")
    assert code == 0
    assert err.startswith(f"{tmp_path / 'timeline'}: rows of 22 activities, ")
    assert "; no operator: 6 " in err
    assert (tmp_path / "timeline" / "activities.parquet").is_file()


def test_parquet_leaves_a_folder_alone_that_is_no_timeline(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    code, out, err = run("scan", CLEAN, "--parquet", tmp_path)
    assert (code, out) == (2, "")
    assert err.startswith(f"{tmp_path}: exists and is not a timeline directory, so it is left alone\n  hint: ")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_rules_are_listed_shown_linted_and_tested(run: Run) -> None:
    code, listed, _ = run("rules", "list")
    assert code == 0
    assert "rmsnorm_unfused" in listed
    code, shown, _ = run("rules", "show", "rmsnorm_unfused")
    assert code == 0
    assert shown.startswith("## rmsnorm_unfused\n")
    assert "**Cases.**" in shown
    assert run("rules", "lint") == (0, "nothing to fix\n", "")
    code, tested, _ = run("rules", "test", "rmsnorm_unfused")
    assert code == 0
    assert tested.endswith(" passed, 0 failed\n")


def test_on_a_terminal_rules_are_laid_out_in_its_width() -> None:
    listed = on_a_terminal("rules", "list", columns=80, NO_COLOR="1").splitlines()
    assert all(len(one) <= 80 for one in listed)
    first = next(at for at, one in enumerate(listed) if one.startswith("gradient_zeroing"))
    assert listed[first + 1].startswith(" " * 30), "the title goes on below itself"
    shown = on_a_terminal("rules", "show", "launch_gap", columns=80, NO_COLOR="1")
    assert not any(mark in shown for mark in ("## ", "**", "```"))
    assert "stood idle until" in " ".join(shown.split())
    assert all(len(one) <= 80 for one in shown.splitlines())


def test_a_folder_of_rules_stands_for_its_rules(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("rules", "new", "bias_apart")[0] == 0
    for arguments in (["my_rules"], ["my_rules/bias_apart"], ["--rules", "my_rules"]):
        code, said, _ = run("rules", "lint", *arguments)
        assert (code, {one.partition("/rule.toml")[0] for one in said.splitlines()}) == (1, {"my_rules/bias_apart"})
        assert run("rules", "test", *arguments)[:2] == (0, "2 cases passed, 0 failed\n")
    passed = [run("rules", "test", *arguments)[1] for arguments in (["launch_gap"], ["launch_gap", "my_rules"])]
    counts = [int(one.partition(" ")[0]) for one in passed]
    assert counts[1] == counts[0] + 2
    monkeypatch.chdir(tmp_path / "my_rules")  # where an id is a folder's name too
    assert run("rules", "test", "bias_apart", "--rules", ".")[:2] == (0, "2 cases passed, 0 failed\n")


def test_an_unknown_rule_is_an_error(run: Run) -> None:
    code, out, err = run("rules", "show", "rmsnorm")
    assert (code, out) == (2, "")
    assert err.startswith("there is no rule 'rmsnorm'\n  hint: ")
    for arguments in (["rules", "show", "zzzz"], ["scan", CLEAN, "--rule", "zzzz"]):  # forty names are no hint
        assert run(*arguments)[2].endswith("there is no rule 'zzzz'\n  hint: tracemine rules list names them\n")


def test_a_rule_that_fails_its_checks_gives_exit_code_1(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "rule.toml").write_text(
        'title = "t"\nstatus = "experimental"\nwhat = "w"\nwhy = "y"\nfix = "f"\nsaving = "fuse"\npattern = "a"\n'
        '[define]\na = { op = "aten::add" }\n'
    )
    (folder / "cases.md").write_text("## It matches\n\n| op | expect |\n|---|---|\n| aten::mul | a |\n")
    assert run("rules", "lint", "mine", "--rules", tmp_path)[0] == 1
    code, out, _ = run("rules", "test", "mine", "--rules", tmp_path)
    assert code == 1
    assert "It matches: row 1: expected a, found nothing" in out
    assert out.endswith("0 cases passed, 1 failed\n")


def test_it_is_said_that_a_file_goes_on_behind_its_trace(run: Run, tmp_path: Path) -> None:
    text = gzip.decompress(Path(CLEAN).read_bytes())
    (tmp_path / "two.json").write_bytes(text + text)
    said = f"Behind the trace's end the file goes on: {len(text):,} bytes of content were left out."
    printed = json.loads(run("scan", str(tmp_path / "two.json"), "--format", "json")[1])
    assert said in printed["warnings"]
    code, out, err = run("scan", tmp_path / "two.json")
    assert (code, said in " ".join((out + err).split())) == (0, True)


def test_a_graphs_capture_belongs_to_one_trace_and_must_fit_it(run: Run) -> None:
    code, _, err = run("scan", TRACE, CLEAN, "--graph-capture", TRACE)
    assert (code, err.splitlines()[0]) == (2, "--graph-capture: belongs to one trace, and 2 are named")
    code, out, err = run("scan", CLEAN, "--graph-capture", TRACE)
    assert (code, out) == (2, "")
    assert err.startswith(f"{TRACE}: holds no launch that went into a graph: it is no trace of a capture")
