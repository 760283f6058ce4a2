"""Defaults of options: the call before the environment, the environment before pyproject.toml; and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tracemine.cli import whole
from tracemine.cli.settings import SETTINGS, defaults, variable

TRACE = str(Path(__file__).parents[2] / "fixtures" / "kineto" / "decoder_prefill.json.gz")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository; the current folder lies two below its root."""
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    monkeypatch.chdir(inner)
    for key in SETTINGS:
        monkeypatch.delenv(variable(key), raising=False)
    return tmp_path / "repo"


def write(folder: Path, text: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(f"[tool.tracemine]\n{text}\n")
    return file


def found(run: Run, *arguments: str) -> list[str]:
    """The rules of the findings that a scan prints."""
    code, out, err = run("scan", TRACE, "--format", "json", *arguments)
    assert (code, err) == (0, "")
    return sorted({finding["rule"] for finding in json.loads(out)["findings"]})


def test_the_call_comes_before_the_environment_and_that_before_the_file(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = found(run)
    assert {"rmsnorm_unfused", "rotary_unfused"} < set(every)
    write(project, 'rule = "rotary_unfused"')
    assert found(run) == ["rotary_unfused"]
    monkeypatch.setenv("TRACEMINE_RULE", "rmsnorm_unfused,launch_gap")
    assert found(run) == ["launch_gap", "rmsnorm_unfused"]
    assert found(run, "--rule", "launch_gap") == ["launch_gap"]


@pytest.mark.parametrize("key", SETTINGS)
def test_every_setting_is_the_default_of_an_option(key: str) -> None:
    known = defaults(Path("/"), {variable(key): "3" if SETTINGS[key] == "integer" else "1"})
    assert list(known.values) == [key]
    taken = known.of_commands(getattr(typer.main.get_command(whole()), "commands", {}))
    assert any(taken[name] for name in taken if name not in ("baseline", "rules"))


def test_the_nearest_file_with_the_table_counts_as_far_as_the_root(project: Path, tmp_path: Path, run: Run) -> None:
    write(tmp_path, "top = 1")  # above the root
    assert defaults(Path.cwd(), {}).values == {}
    write(project, "top = 2")
    (project / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert defaults(Path.cwd(), {}).values == {"top": 2}
    write(project / "a", "top = 3")
    assert defaults(Path.cwd(), {}).values == {"top": 3}


def test_outside_of_a_repository_only_the_current_folder_counts(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write(tmp_path, "top = 1")
    assert defaults(inner, {}).values == {}
    assert defaults(tmp_path, {}).values == {"top": 1}


def test_a_path_is_meant_from_the_file_not_from_the_current_folder(project: Path) -> None:
    write(project, 'rules = ["my_rules"]\nbaseline = "b.json"')
    values = defaults(Path.cwd(), {}).values
    assert values == {"rules": [str(project / "my_rules")], "baseline": str(project / "b.json")}
    paths = os.pathsep.join(("x", "y"))
    assert defaults(Path.cwd(), {"TRACEMINE_RULES": paths}).values["rules"] == ["x", "y"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpuu = 1", "tool.tracemine.gpuu: there is no such setting\n  hint: did you mean gpu?"),
        ('output = "x"', "tool.tracemine.output: there is no such setting"),
        ('top = "3"', "tool.tracemine.top: must be an integer"),
        ("top = true", "tool.tracemine.top: must be an integer"),
        ("rules = [1]", "tool.tracemine.rules: must be a list of paths"),
        ('gpu = "Voodoo 2"', "tool.tracemine.gpu: 'Voodoo 2' is not in the device table"),
        ('min-saving = "3"', "tool.tracemine.min-saving: '3' is not a time"),
        ('skip = "nothing"', "tool.tracemine.skip: there is no rule 'nothing'"),
        ("top = -1", "tool.tracemine.top: -1 is negative"),
        ("x = ", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_a_line_with_the_file_and_the_key(
    project: Path, run: Run, text: str, said: str
) -> None:
    file = write(project, text)
    code, out, err = run("scan", TRACE)
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}: {said}")
    assert len(err.splitlines()) <= 2


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TRACEMINE_TOP", "many", "TRACEMINE_TOP: must be an integer, not 'many'\n"),
        ("TRACEMINE_QUIET", "perhaps", "TRACEMINE_QUIET: must be 1 or 0, not 'perhaps'\n"),
        ("TRACEMINE_FAIL_ON", "severe", "TRACEMINE_FAIL_ON: 'severe' is no severity, no time and no share\n"),
    ],
)
def test_what_is_wrong_in_the_environment_is_a_line_with_the_variable(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    code, out, err = run("scan", TRACE)
    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_an_option_that_the_call_gives_is_named_as_it_was_given(project: Path, run: Run) -> None:
    write(project, 'gpu = "h100"')
    assert run("scan", TRACE, "--gpu", "Voodoo 2")[2].startswith("--gpu: 'Voodoo 2' is not in")
    assert run("scan", TRACE, "--gpu=Voodoo 2")[2].startswith("--gpu: 'Voodoo 2' is not in")


@pytest.mark.parametrize("arguments", [("--help",), ("scan", "--help"), ("--version",)])
def test_help_is_given_whatever_the_file_says(project: Path, run: Run, arguments: tuple[str, ...]) -> None:
    write(project, "nonsense = 1")
    assert run(*arguments)[0] == 0


def test_a_switch_of_the_file_can_be_taken_back(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, "quiet = true")
    other = ("scan", TRACE, "--gpu", "h100")
    assert run(*other)[2] == ""
    monkeypatch.setenv("TRACEMINE_QUIET", "0")
    assert "the trace says NVIDIA H200" in run(*other)[2]


def test_no_setting_names_a_file_that_is_written() -> None:
    """What a repository that was cloned says can have nothing written and nothing run."""
    written = {"output", "parquet", "emit", "out", "apply", "github", "jira", "step", "again", "mutants"}
    assert written.isdisjoint(SETTINGS)


def test_a_file_that_is_no_regular_file_or_too_large_is_refused(project: Path, run: Run) -> None:
    (project / "pyproject.toml").write_text("[tool.tracemine]\n" + "#" * (1 << 20))
    assert run("scan", TRACE)[0] == 2


def test_the_guide_names_every_setting_and_its_variable() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guide" / "settings.md").read_text("utf-8")
    for key in SETTINGS:
        assert f"`{key}`" in page
        assert f"`{variable(key)}`" in page


LONG = "9" * 5000


@pytest.mark.parametrize("text", [f"top = {LONG}", f"[tool.x]\nbig = {LONG}"])
def test_a_number_of_thousands_of_digits_is_no_toml(project: Path, run: Run, text: str) -> None:
    file = write(project, text)
    code, out, err = run("scan", TRACE)
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}: is not TOML: Exceeds the limit")


@pytest.mark.parametrize("text", ["--5", LONG, f"-{LONG}", "٣", "", "-", "1" * 19])
def test_what_is_no_integer_of_a_variable_is_a_line(
    project: Path, run: Run, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("TRACEMINE_TOP", text)
    code, out, err = run("scan", TRACE)
    assert (code, out) == (2, "")
    assert err.startswith("TRACEMINE_TOP: must be an integer")
    assert len(err) < 200


@pytest.mark.parametrize("text", ['min-saving = "99%"', 'skip = ["*unfused*"]', 'rule = "graph_break"'])
def test_what_a_file_sets_that_decides_a_gate_is_said(project: Path, run: Run, text: str) -> None:
    file = write(project, f"quiet = true\n{text}")
    key = text.partition(" ")[0]
    _, _, err = run("scan", TRACE, "--fail-on", "high")
    assert err.startswith(f"{file} sets {key} = ")
    assert err.splitlines()[0].endswith("--fail-on depends on that; --no-settings leaves it out")
    assert run("scan", TRACE)[2] == "", "nothing depends on it"
    given = text.partition(" = ")[2].strip('[]"')
    _, _, err = run("scan", TRACE, "--fail-on", "high", f"--{key}={given}")
    assert "sets" not in err and "--no-settings" not in err, "the call says it itself"


def test_a_gate_of_the_file_itself_is_said(project: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(project, 'quiet = true\nfail-on = "high"\ngpu = "h100"')
    assert run("scan", TRACE)[2].startswith(f"{file} sets gpu = h100, fail-on = high: ")
    write(project, 'quiet = true\ngpu = "h100"')
    monkeypatch.setenv("TRACEMINE_MIN_SAVING", "1%")
    monkeypatch.setenv("TRACEMINE_FAIL_ON", "high")
    assert run("scan", TRACE)[2].startswith(f"{file} sets gpu = h100: "), "the environment is the caller's own"


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_no_settings_reads_no_file_wherever_it_stands(project: Path, run: Run, place: int) -> None:
    write(project, 'quiet = true\nmin-saving = "99%"\nbroken = ')
    call = ["scan", TRACE, "--fail-on", "high", "-q"]
    call.insert(place, "--no-settings")
    code, out, err = run(*call)
    assert code == 1
    assert out
    assert "pyproject" not in err


def test_what_follows_two_dashes_is_another_programs(project: Path, run: Run) -> None:
    write(project, "x = ")
    assert run("scan", "--", "--no-settings")[2].startswith(str(project))
