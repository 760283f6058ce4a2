"""The list of benchmarks: each is one name, says in a line what it answers, and begins by its name and by its file."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import GPU, HERE, SUBJECTS, commands, line, listed, main

MODULES = sorted(
    f"benchmarks.{path.parent.name}.{path.stem}" for subject in SUBJECTS for path in (HERE / subject).glob("*.py")
)


def test_the_list_has_each_with_what_it_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.strip() == listed().strip()
    assert {name for name in commands() if f"\n  {name} " in out} == set(commands())
    assert all(20 < len(line(path)) <= 120 for path in commands().values())
    assert commands().keys() >= GPU


def test_names_are_of_one_file_each_and_few_files_lie_beside_the_folders() -> None:
    stems = [name.rpartition(".")[2] for name in MODULES]
    assert len(stems) == len(set(stems)) > 80
    assert len(list(HERE.glob("*.py"))) <= 12


def test_a_name_that_is_none_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no_such"]) == 2
    assert "no such benchmark" in capsys.readouterr().err


def test_a_benchmark_is_run_with_its_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["before"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = HERE / "results" / "h200"
    with pytest.raises(SystemExit) as end:
        main(["trace_maker", "--help", str(path)])
    assert end.value.code == 0
    assert "usage: trace_maker.py" in capsys.readouterr().out


@pytest.mark.parametrize("name", MODULES)
def test_each_module_is_imported_by_its_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert not (error.name or "").startswith(("benchmarks", "tracemine", "tests")), error
        pytest.skip(f"{error.name} is not installed")
    assert Path(str(module.__file__)).parent.parent == HERE


def test_what_imports_others_of_benchmarks_finds_them_where_its_file_is_run() -> None:
    for subject in SUBJECTS:
        for path in (HERE / subject).glob("*.py"):
            before, found, _ = path.read_text("utf-8").partition("\nfrom benchmarks.")
            assert not found or "\nsys.path.insert(0, str(Path(__file__)" in before, path
