"""Folders with planted code, streams that are closed or full, and other surroundings of a run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.changes import prepared
from tests.attack.harness import FIXTURES, PWNED, ROOT, Attack, Ended, judge

TRACE = str(FIXTURES / "kineto/chain.json.gz")
CLEAN = str(FIXTURES / "kineto/clean_gemms.json.gz")
# Names under which Python, torch or we ourselves might find what lies beside a trace.
MODULES = ("torch", "triton", "json", "numpy", "msgspec", "typing", "sitecustomize", "usercustomize", "ncu_report",
           "tracemine/__init__", "tracemine/verify/__init__", "conftest", "encodings/__init__", "inspect", "ctypes",
           "alone", "serve", "pynvml")  # fmt: skip


def planted(here: Path) -> None:
    """Modules, programs and configurations that write a file where anything runs or reads them."""
    for module in MODULES:
        path = here / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        name = str(here / f"{PWNED}_{module.replace('/', '.')}")
        path.write_text(f"open({name!r}, 'w').close()\nraise SystemExit(1)\n")
    for program in ("nsys", "ncu", "nvidia-smi", "python", "git"):
        (here / program).write_text(f"#!/bin/sh\ntouch {here}/{PWNED}_{program}\n")
        (here / program).chmod(0o755)
    (here / "x.pth").write_text(f"import os; os.mkdir({str(here / PWNED)!r})\n")
    (here / "pyvenv.cfg").write_text(f"home = {here}\n")


HOSTILE = {
    "scan a folder": ["scan", "c", "--rules", "rules"],
    "scan --parquet": ["scan", "t.json.gz", "--parquet", "out"],
    "findings": ["scan", "f.json", "--evidence", "v.jsonl"],
    "counters": ["top", "r.ncu-rep"],
    "an export by nsys": ["scan", "r.nsys-rep"],
    "rules": ["rules", "test", "--rules", "rules"],
    "calibrate": ["calibrate", "-o", "out"],
    "verify": ["verify", "t.json.gz", "-q", "--top", "1"],
}


def hostile_folder(attack: Attack) -> None:
    """Everything that a command may be given, with planted code beside it."""
    here = attack.fresh()
    planted(here)
    shutil.copyfile(TRACE, here / "t.json.gz")
    shutil.copytree(FIXTURES / "captures/chain", here / "c")
    shutil.copytree(prepared() / "rules", here / "rules")
    shutil.copyfile(prepared() / "findings_chain.json", here / "f.json")
    shutil.copyfile(FIXTURES / "verdicts/captures_h200.jsonl", here / "v.jsonl")
    shutil.copyfile(FIXTURES / "ncu/compiled/report.ncu-rep", here / "r.ncu-rep")
    (here / "r.nsys-rep").write_bytes(b"\x01\x02" * 500)


def beside(attack: Attack, command: str, **how: Any) -> None:
    """Runs a command in such a folder."""
    hostile_folder(attack)

    def must(ended: Ended) -> None:
        assert command != "verify" or b"right in the interpreter" in ended.out, ended.out[-400:]

    attack(*HOSTILE[command], label=command, may_write=["out"], must=must, **how)


@pytest.mark.parametrize("command", sorted(HOSTILE.keys() - {"verify"}))  # of which tests/cli/test_verify.py is
def test_nothing_that_lies_beside_a_trace_is_run(attacks: Callable[..., Attack], command: str) -> None:
    beside(attacks("hostile folders"), command, exec=True)


def test_nor_is_it_by_python_m(attacks: Callable[..., Attack]) -> None:
    """`python -m` puts the current folder first among those that are searched."""
    attack = attacks("hostile folders")
    hostile_folder(attack)
    shutil.rmtree(attack.here / "tracemine")  # Python itself finds the package there
    shutil.rmtree(attack.here / "encodings")
    run = [sys.executable, "-m", "tracemine", *HOSTILE["findings"]]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(run, cwd=attack.here, env=env | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr.decode()
    assert not [path.name for path in attack.here.iterdir() if path.name.startswith(PWNED)]


def test_a_program_that_is_recorded_has_its_modules(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("print('mine', flush=True)\n")
    (tmp_path / "program.py").write_text("import beside\n")
    code = (
        "import sys, runpy; sys.argv[1:] = ['capture']; sys.orig_argv[1:] = ['-m', 'tracemine', 'capture']; "
        "sys.argv[0] = '-m'; here = sys.path[0]; import tracemine; assert sys.path[0] == here"
    )
    for command, kept in (("capture", True), ("scan", False)):
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        text = code.replace("'capture'", repr(command)).replace("==", "==" if kept else "!=")
        subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, check=True)


# Surroundings: how it is run, the command line, exit codes that fit. Of closed and full streams is tests/cli/test_cli.py.
SURROUNDINGS: dict[str, tuple[dict[str, Any], list[str], tuple[int, ...]]] = {
    "a report, standard error closed": ({"err": None}, ["scan", TRACE], (0,)),
    "ingest, all closed": ({"out": None, "err": None}, ["scan", TRACE, "--parquet", "out"], (0, 2)),
    "LANG=C": ({"env": {"LANG": "C", "LC_ALL": "C"}}, ["scan", TRACE], (0,)),
    "ascii": ({"env": {"PYTHONIOENCODING": "ascii"}}, ["scan", TRACE], (0,)),
}


@pytest.mark.parametrize("surrounding", SURROUNDINGS)
def test_in_other_surroundings_it_does_what_it_can(attacks: Callable[..., Attack], surrounding: str) -> None:
    attack = attacks("surroundings")
    how, args, codes = SURROUNDINGS[surrounding]
    unseen = [name for name in ("err",) if name in how]  # what cannot be read is not judged
    ended = attack.run(*args, exec=True, **how)
    found = judge(ended, codes, ["here/out"])
    attack.count(surrounding, [f for f in found if not (unseen and "without a word" in f[1])], ended)


# In a child that is forked, for Python itself does not look at these: what is written, and what must hold of it.
LIMITED: dict[str, tuple[dict[str, Any], list[str], tuple[int, ...]]] = {
    "no HOME": ({"env": {"HOME": None}}, ["scan", TRACE], (0,)),
    "a HOME that is not there": ({"env": {"HOME": "/nowhere"}}, ["scan", TRACE, "--parquet", "out"], (0,)),
    "COLUMNS that are no number": ({"env": {"COLUMNS": "abc", "LINES": "-1"}}, ["scan", TRACE], (0,)),
    "20 columns": ({"env": {"COLUMNS": "20"}}, ["scan", "--help"], (0,)),
    "bad colours": ({"env": {"COLORTERM": "\x1b[2J", "TERM": "\x1b[2J"}}, ["scan", TRACE], (0,)),
    "umask 077, scan": ({"umask": 0o077}, ["scan", TRACE, "-q", "-o", "out"], (0,)),
    "umask 077, parquet": ({"umask": 0o077}, ["scan", TRACE, "-q", "--parquet", "out"], (0,)),
    "umask 077, verify": ({"umask": 0o077}, ["verify", CLEAN, "-q", "-o", "out"], (0,)),
    "umask 002, parquet": ({"umask": 0o002}, ["scan", TRACE, "-q", "--parquet", "out"], (0,)),
    "files of 1 kB, scan": ({"file_size": 1024}, ["scan", TRACE, "-q", "--format", "json", "-o", "out"], (2,)),
    "files of 1 kB, all": ({"file_size": 1024}, ["scan", TRACE, "--all", "-q", "-o", "out"], (2,)),
    "files of 1 kB, parquet": ({"file_size": 1024}, ["scan", TRACE, "-q", "--parquet", "out"], (2,)),
    "files of 1 kB, verify": ({"file_size": 1024}, ["verify", CLEAN, "-q", "-o", "out"], (2,)),
    "files of 30 kB, verify --emit": ({"file_size": 30_000}, ["verify", TRACE, "-q", "--top", "1", "--emit", "out"], (0, 2)),
    "the current folder is gone, scan": ({"cwd_gone": True}, ["scan", TRACE, "-q"], (0,)),
    "the current folder is gone, parquet": ({"cwd_gone": True}, ["scan", TRACE, "-q", "--parquet", "out"], (2,)),
    "the current folder is gone, verify": ({"cwd_gone": True}, ["verify", CLEAN, "-q"], (0, 2)),
    "1 GB of addresses, scan": ({"memory": 1 << 30}, ["scan", TRACE, "-q"], (0, 2)),
}  # fmt: skip


# What reads a whole file, by the end of its name; half of one raises.
WHOLE: dict[str, Callable[[bytes], object]] = {
    ".json": json.loads,
    ".py": lambda text: compile(text, "written", "exec"),
}


@pytest.mark.parametrize("limit", LIMITED)
def test_with_less_than_usual_what_is_written_is_whole_or_not_there(attacks: Callable[..., Attack], limit: str) -> None:
    attack = attacks("surroundings")
    how, args, codes = LIMITED[limit]
    if "cwd_gone" in how:
        (attack.here / "gone").mkdir()
        how = how | {"cwd": str(attack.here / "gone")}

    def must(ended: Ended) -> None:
        files = [p for p in attack.here.rglob("*") if p.is_file()]
        assert not [path for path in files if path.name.startswith(".")], "what was begun stays"
        for path in [attack.here / "out", *files] if "umask" in how else []:
            assert not path.exists() or not path.stat().st_mode & how["umask"], f"{path} is open to others"
        for path in files:
            whole = WHOLE.get(path.suffix)
            assert path.stat().st_size and (whole is None or whole(path.read_bytes()))

    attack(*args, label=limit, codes=codes, may_write=["out", "gone"], must=must, **how)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_into_a_folder_that_may_not_be_written_nothing_is(attacks: Callable[..., Attack]) -> None:
    attack = attacks("surroundings")
    (attack.here / "out").mkdir(mode=0o500)
    for args in (
        ["scan", TRACE, "--parquet", "out/x"],
        ["scan", TRACE, "--parquet", "out/x"],
        ["verify", CLEAN, "--parquet", "out/x"],
    ):
        attack(*args, "-q", label=args[0], codes=(2,))
