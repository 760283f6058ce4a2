"""What a call may leave out or bring by standard input, which rules it looks for, and what a shell completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from tests.cli.test_cli import process
from tracemine.cli import progress
from tracemine.cli.complete import complete_gpu
from tracemine.cli.console import options
from tracemine.devices import device_named, devices

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "kineto"
TRACE = FIXTURES / "decoder_prefill.json.gz"
Run = Callable[..., tuple[int, str, str]]


def rules_of(run: Run, *arguments: str) -> set[str]:
    code, out, err = run("scan", TRACE, "--format", "json", *arguments)
    assert (code, err) == (0, "")
    return {finding["rule"] for finding in json.loads(out)["findings"]}


# --- what a new user gets wrong ---------------------------------------------------------------------------------------


def test_a_page_is_not_printed_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    said = (2, "", "--format html: is a page, and this is a terminal\n  hint: -o report.html writes it\n")
    assert run("scan", TRACE, "--format", "html") == said
    assert run("scan", TRACE, "--format", "html", "-o", tmp_path / "report.html")[0] == 0


def test_several_traces_make_one_page_whose_findings_are_read_back(run: Run, tmp_path: Path) -> None:
    several, page = (TRACE, FIXTURES / "chain.json.gz"), tmp_path / "both.html"
    assert run("scan", *several, "--format", "html", "-o", page)[0] == 0
    text = page.read_text("utf-8")
    assert text.count("<!doctype html>") == text.count('tracemine-findings">') == 1
    scans = run("scan", *several, "--format", "json")[1].splitlines()
    assert run("scan", page, "--format", "json")[1].splitlines() == scans


def test_a_rule_and_a_trace_the_other_way_round_are_said_to_be(run: Run) -> None:
    assert run("rules", "why", TRACE, "launch_gap") == (
        2,
        "",
        f"ID: '{TRACE}' is a file\n  hint: tracemine rules why launch_gap {TRACE}\n",
    )


def test_evidence_that_is_none_says_what_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    code, _, err = run("scan", TRACE, "--evidence", tmp_path / "notes.txt")
    assert code == 2
    assert err.endswith("\n  hint: name what tracemine verify wrote, or a reproduction printed\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.py",), "nothing.py: there is no such file\n"),
        (("python", "-c", "1"), "-c: code of a command line is not recorded\n  hint: write it to a file\n"),
        (("python", "-O", "x.py"), "-O: an option of Python goes before\n"),
    ],
)
def test_a_program_that_cannot_be_recorded_is_a_line(run: Run, words: tuple[str, ...], said: str) -> None:
    code, out, err = run("capture", "--", *words)
    assert (code, out) == (2, "")
    assert err.startswith(said)


# --- a command that is left out ---------------------------------------------------------------------------------------


def test_scan_may_be_left_out_where_a_file_is_named(run: Run) -> None:
    whole = run("scan", TRACE, "--top", "1")
    assert whole[0] == 0
    assert run(TRACE, "--top", "1") == whole


def test_a_command_comes_before_a_file_of_its_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "explain").write_text("{}")
    assert run("explain")[2].startswith("tracemine explain: missing argument")


def test_help_and_version_are_answered_without_dashes(run: Run) -> None:
    assert run("version") == run("--version")
    assert run("help", "scan") == run("scan", "--help")
    assert run("help", "rules", "list")[1].startswith("Usage: tracemine rules list")
    assert run("help") == run("--help")


@pytest.mark.parametrize("name", ["nothing.json", "runs/nothing", "*.nothing"])
def test_what_looks_like_a_file_and_is_none_is_said_to_be_none(run: Run, name: str) -> None:
    code, out, err = run(name)
    assert (code, out) == (2, "")
    assert err in (f"{name}: no file matches this pattern\n", f"{name}: there is no such file\n")


# --- standard input ---------------------------------------------------------------------------------------------------


def piped(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with file.open("rb") as stdin:
        started = process(*arguments, stdin=stdin)
        out, err = started.communicate()
    return subprocess.CompletedProcess(arguments, started.returncode, out, err)


def test_findings_by_standard_input_are_those_of_the_file(run: Run) -> None:
    by_name = json.loads(run("scan", TRACE, "--format", "json")[1])
    for call in (("scan", "-"), ("-",)):
        scanned = json.loads(piped(TRACE, *call, "--format", "json").stdout)
        assert scanned["trace"]["path"] == "standard input"
        assert scanned["findings"] == by_name["findings"]


def test_a_table_of_standard_input_is_that_of_the_file(run: Run) -> None:
    table = run("top", TRACE, "--format", "csv")[1]
    assert piped(TRACE, "top", "-", "--format", "csv").stdout == table != ""


def test_what_is_wrong_with_standard_input_names_it_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "no.json").write_text("{}")
    folder = tmp_path / "temporary"
    folder.mkdir()
    own = {"TMPDIR": str(folder)}
    with (tmp_path / "no.json").open("rb") as stdin, process("scan", "-", stdin=stdin, env=own) as started:
        _, err = started.communicate()
    assert started.returncode == 2
    assert err.startswith("standard input: is JSON, but not a trace")
    assert str(folder) not in err
    assert not list(folder.iterdir())


def test_a_terminal_is_no_trace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    code, _, err = run("scan", "-")
    assert (code, err.splitlines()[0]) == (2, "standard input: is a terminal, not a trace")


# --- which rules ------------------------------------------------------------------------------------------------------


def test_rules_are_chosen_by_name_and_by_pattern(run: Run) -> None:
    every = rules_of(run)
    assert rules_of(run, "--rule", "rotary_unfused") == {"rotary_unfused"}
    assert rules_of(run, "--rule", "r*_unfused", "--skip", "rotary_*") == {"rmsnorm_unfused"}
    assert "rotary_unfused" in every
    assert "rotary_unfused" not in rules_of(run, "--skip", "rotary_unfused")


def test_what_a_skipped_rule_would_claim_is_free_for_others(run: Run) -> None:
    assert rules_of(run, "--skip", "*_unfused") == {"memory_bound_chain", "launch_gap"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rule", "rmsnorm"), "--rule: there is no rule 'rmsnorm'\n  hint: did you mean rmsnorm_unfused?\n"),
        (("--skip", "launch_gaps"), "--skip: there is no rule 'launch_gaps'\n  hint: did you mean launch_gap"),
        (("--rule", "launch_gap", "--skip", "*"), "--skip: no rule is left to look for\n"),
    ],
)
def test_a_rule_that_is_none_is_answered_with_those_near_it(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run("scan", TRACE, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_both_sides_of_a_comparison_are_scanned_with_the_same_rules(run: Run) -> None:
    compiled = FIXTURES / "decoder_prefill_compiled.json.gz"
    code, out, _ = run("diff", TRACE, compiled, "--rule", "rotary_unfused", "--format", "json")
    found = [change["rule"] for change in json.loads(out)["changes"]]
    assert (code, set(found)) == (0, {"rotary_unfused"})


# --- which of how many ------------------------------------------------------------------------------------------------


def test_the_bar_says_which_trace_of_how_many_it_is(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    names: list[str] = []
    reading = progress.reading

    def told(path: Path, *, quiet: bool, position: str = "") -> object:
        names.append(f"{position}{path.name}")
        return reading(path, quiet=True)

    monkeypatch.setitem(vars(sys.modules["tracemine.cli.request"]), "reading", told)
    run("scan", TRACE, FIXTURES / "clean_gemms.json.gz")
    run("scan", TRACE)
    assert names == ["1 of 2 · decoder_prefill.json.gz", "2 of 2 · clean_gemms.json.gz", "decoder_prefill.json.gz"]


# --- colours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "color"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"CLICOLOR_FORCE": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": ""}, False),
    ],
)
def test_colours_can_be_forced_on_a_pipe_and_in_no_file(
    environment: dict[str, str], color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert options(sys.stdout, top=1, no_color=False).color is color
    assert options(StringIO(), top=1, no_color=False).color is False
    assert options(sys.stdout, top=1, no_color=True).color is False


# --- completion -------------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    environment = {
        "_TRACEMINE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    with process(env=environment) as started:
        return started.communicate()[0].split()


def test_a_shell_completes_commands_options_and_values() -> None:
    assert completed("tracemine", "sc") == ["scan"]
    assert "--rule" in completed("tracemine", "scan", "--ru")
    assert completed("tracemine", "scan", "--rule", "rmsn") == ["rmsnorm_unfused"]
    assert completed("tracemine", "scan", "--format", "mark") == ["markdown"]
    assert completed("tracemine", "scan", "--gpu", "h100") == ["h100-sxm", "h100-pcie", "h100-nvl"]


def test_every_gpu_that_is_completed_is_one_that_the_option_takes() -> None:
    assert [device_named(name) for name in complete_gpu("")] == list(devices())


def test_completion_is_installed_for_a_shell(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    command = [sys.executable, "-m", "tracemine", "--show-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0
    assert "_TRACEMINE_COMPLETE=complete_bash" in done.stdout
