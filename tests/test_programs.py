"""What is started imports and runs nothing of the current folder, and is started in one place."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import tracemine
from tests.modules import nodes
from tracemine import programs
from tracemine.programs import environment, program, python, run

ROOT = Path(tracemine.__file__).parent
STARTS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "pty": {"fork", "spawn"},
    "shutil": {"which"},
    "sys": {"executable"},
    "concurrent.futures": {"ProcessPoolExecutor"},
}
EXEMPT = {
    "programs.py",
    "verify/gpu/clocks.py",  # stands alone: it is part of files that have no tracemine
}


def test_child_processes_are_started_in_one_place() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {use}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).as_posix() not in EXEMPT
        for use in _starts(nodes(path))
    }
    assert found == set()


@pytest.mark.parametrize(
    "text",
    [
        "import subprocess as s\ns.run([])",
        "from subprocess import Popen",
        "import sys\nsys.executable",
        "import os\nos.execv('a', [])",
        "import os\nos.system('a')",
        "import multiprocessing",
        "from multiprocessing.pool import Pool",
        "import shutil\nshutil.which('a')",
        "from concurrent.futures import ProcessPoolExecutor",
    ],
)
def test_whatever_starts_a_process_is_seen(text: str) -> None:
    assert _starts([*ast.walk(ast.parse(text))])


def test_what_only_names_a_process_is_none() -> None:
    text = "import subprocess\nchild: subprocess.Popen[bytes] | None = None\nsubprocess.PIPE, subprocess.TimeoutExpired"
    assert _starts([*ast.walk(ast.parse(text))]) == set()


def _starts(module: Sequence[ast.AST]) -> set[str]:
    """What a module uses that starts a process, or names what is to be started."""
    imports = [node for node in module if isinstance(node, ast.Import)]
    modules = {alias.asname or alias.name: alias.name for node in imports for alias in node.names}
    annotated = {
        id(inner)
        for node in module
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(note, ast.AST)
        for inner in ast.walk(note)
    }
    found = {name for name in modules.values() if name.partition(".")[0] == "multiprocessing"}
    for node in module:
        if isinstance(node, ast.ImportFrom):
            uses = [(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and id(node) not in annotated:
            uses = [(modules.get(node.value.id, ""), node.attr)]
        else:
            continue
        found |= {f"{place}.{name}" for place, name in uses if _is_start(place, name)}
    return found


def _is_start(module: str, name: str) -> bool:
    starts = module == "os" and name.startswith(("exec", "spawn"))
    return starts or name in STARTS.get(module, ()) or module.partition(".")[0] == "multiprocessing"


SAYS = "import sys, tracemine; print(tracemine.__file__, *sys.path, sep='\\n')"


def told(monkeypatch: pytest.MonkeyPatch, folder: Path, path: str | None) -> tuple[str, list[str]]:
    """Where a child in this folder, which holds a `tracemine/`, finds the package; and what it searches for modules."""
    (folder / "tracemine").mkdir(exist_ok=True)
    (folder / "tracemine" / "__init__.py").write_text("raise SystemExit('the current folder is searched')")
    monkeypatch.chdir(folder)
    if path is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", path)
    done = run(python("-c", SAYS), 60)
    assert (done.returncode, done.stderr) == (0, "")
    found, *searched = done.stdout.splitlines()
    return found, searched


@pytest.mark.parametrize(
    "path", [None, "", ".", os.pathsep, f".{os.pathsep}", "tracemine", f"..{os.pathsep}{os.curdir}/."]
)
def test_the_current_folder_is_not_searched_for_modules(
    path: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, searched = told(monkeypatch, tmp_path, path)
    assert not Path(found).is_relative_to(tmp_path)
    assert not {"", ".", str(tmp_path), str(tmp_path / "tracemine"), str(tmp_path.parent)} & {*searched}


def test_folders_of_the_users_own_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, here = tmp_path / "mine", tmp_path / "here"
    here.mkdir()
    _, searched = told(monkeypatch, here, f"{mine}{os.pathsep}{os.pathsep}{ROOT.parent}")
    assert searched.index(str(mine)) < searched.index(str(ROOT.parent))
    assert str(here) not in searched


def test_what_a_child_starts_does_not_search_the_current_folder_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('the current folder is searched')")
    done = run(python("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import json'])"), 60)
    assert done.stderr == ""


def test_a_package_that_python_m_found_in_the_current_folder_is_the_childrens_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT.parent), "/nowhere"])  # as `python -m tracemine` in a checkout has it
    assert environment({"PYTHONPATH": f".{os.pathsep}/mine"})["PYTHONPATH"] == f"{ROOT.parent}{os.pathsep}/mine"
    monkeypatch.setattr(programs, "_ASKED", [])
    monkeypatch.setattr(sys, "path", ["/bin", "/nowhere", str(ROOT.parent)])  # as where it is installed
    assert "PYTHONPATH" not in environment({})


def test_a_program_is_never_one_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    for place in (tmp_path, folder):
        place.mkdir(exist_ok=True)
        (place / "tool").write_text("#!/bin/sh\n")
        (place / "tool").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    for path in ("", ".", os.pathsep, "bin", f".{os.pathsep}/nowhere"):
        monkeypatch.setenv("PATH", path)
        assert program("tool") is None
    monkeypatch.setenv("PATH", f".{os.pathsep}{folder}")
    assert program("tool") == str(folder / "tool")
