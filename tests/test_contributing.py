"""The worked examples of CONTRIBUTING.md, done in a copy of this repository as a newcomer does them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = r"<!-- {} -->\n```\w+\n(.+?)\n```"
FILES = dict(re.findall(BLOCK.format(r"file: (\S+)"), TEXT, re.S))
EDITS = re.findall(BLOCK.format(r"edit: (\S+)"), TEXT, re.S)
COMMANDS = [line for block in re.findall(BLOCK.format("run"), TEXT, re.S) for line in block.splitlines()]

PYTEST = "python -m pytest "
# Commands that run files of tests whole: in one process, for to begin takes each of them as long as what it runs.
WHOLE = [line for line in COMMANDS if line.startswith(PYTEST) and " -" not in line.removeprefix(PYTEST)]
COPIED = ("tracemine", "rules", "tests", "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PYTHON_FILES = " ".join(name for name in FILES if name.endswith(".py") and not name.startswith("scratch/"))
MYPY = f"mypy {PYTHON_FILES}"  # with all that these import: other modules do not import them yet
# As ./check has it, and of the tests those that the examples could break.
CHECKS = (
    f"ruff format --check {PYTHON_FILES}",
    f"ruff check tracemine rules docs {PYTHON_FILES}",
    "lint-imports",
    "python docs/generate.py --check",
    PYTEST
    + " ".join(line.removeprefix(PYTEST) for line in WHOLE)
    + " tests/test_imports.py tests/test_readme.py tests/matching/test_catalogue.py"
    " tests/rows/test_rules_on_recordings.py tests/fusion/test_op_cost.py tests/test_examples.py tests/cli/test_cli.py"
    " -k 'not test_examples and not test_cli or test_examples and (formats or report or codegen.operators)"
    " or test_cli and (page or help or one_line)'",
)
# What `python` does with its arguments, in a process that has begun.
BEGIN = """\
import runpy, sys
sys.argv = sys.argv[1:]
if sys.argv[0] == "-m":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    sys.path[0] = sys.argv[0].rpartition("/")[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def copied(to: Path) -> Path:
    """The repository without fixtures, which the copy refers to.

    With what Python and mypy keep of it where they do: without mypy's it takes half a minute.
    """
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("*.pyc.*"))  # being written
        else:
            shutil.copy(ROOT / name, to / name)
    for name in ("fixtures", "benchmarks"):  # which mypy reads with the tests
        (to / name).symlink_to(ROOT / name)
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(ROOT / ".mypy_cache", to / ".mypy_cache")
    return to


def follow(folder: Path, edits: Sequence[tuple[str, str]] = EDITS) -> None:
    """Writes the page's files and makes its edits."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    for name, lines in edits:
        path = folder / name
        path.write_text(edited(name, path.read_text(encoding="utf-8"), lines.splitlines()), encoding="utf-8")


def edited(name: str, text: str, lines: Iterable[str]) -> str:
    """A text with a change as `diff` shows it; the lines that it begins from must stand there once."""
    lines = [*lines]
    before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("-", " "))
    after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in ("+", " "))
    assert f"\n{text}".count(f"\n{before}") == 1, (
        f"{name}: lines that CONTRIBUTING.md changes do not stand there once: renew its example\n{before}"
    )
    return f"\n{text}".replace(f"\n{before}", f"\n{after}")[1:]


def failure(command: str, folder: Path) -> str | None:
    """What a command of the page prints where it fails; it sees the copy and no other tracemine.

    What Python runs begins with torch and other libraries loaded.
    """
    program, *rest = shlex.split(command)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    env = {**inherited, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    if program in ("python", "tracemine"):
        file = folder / "begin.py"
        file.write_text(BEGIN, encoding="utf-8")
        args = rest if program == "python" else ["-m", "tracemine", *rest]
        done = forked.run(forked.LIBRARIES, args, file=file, cwd=folder, env=env)
    else:
        run = [str(Path(sys.executable).parent / program), *rest]
        done = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"$ {command}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"


def test_everything_on_the_page_is_found() -> None:
    marked = {kind: len(re.findall(rf"<!-- {kind}\b", TEXT)) for kind in ("file", "edit", "run")}
    blocks = len(re.findall(BLOCK.format("run"), TEXT, re.S))
    assert marked == {"file": len(FILES), "edit": len(EDITS), "run": blocks}
    assert len(FILES) == 8
    assert len(EDITS) == 7
    assert {command.split()[0] for command in COMMANDS} == {"python", "tracemine"}
    assert len(WHOLE) == 4


def test_who_follows_the_page_passes_every_check_at_the_first_try(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    folder = copied(tmp_path)
    # mypy before the page's edits, which are of names and numbers: of a package's own file, they would have it check
    # again all that imports anything of the package, for half a minute.
    follow(folder, ())
    failures = [] if (told := failure(MYPY, folder)) is None else [told]
    untyped = "(scan, out, options)"
    is_found_out(folder, REPORT, "(scan: Scan, out: TextIO, options: Options) -> None", untyped, MYPY)
    follow(folder)
    commands = [command for command in (*COMMANDS, *CHECKS) if command not in WHOLE]
    failures += [told for command in commands if (told := failure(command, folder)) is not None]
    assert not failures, "\n\n".join(failures)


REPORT = "tracemine/report/table.py"


@pytest.mark.parametrize(
    ("name", "old", "new", "command"),
    [
        (
            REPORT,
            "line(finding.rule)",
            "finding.rule",
            "python -m pytest tests/report/test_reports.py -x -k 'terminal and table'",
        ),
        (
            "tracemine/formats/__init__.py",
            '"kernel_table", ',
            "",
            "python -m pytest tests/formats/test_kernel_table.py",
        ),
    ],
    ids=["a report that escapes nothing", "a format that is not registered"],
)
def test_an_example_that_is_broken_is_found_out(tmp_path: Path, name: str, old: str, new: str, command: str) -> None:
    folder = copied(tmp_path)
    follow(folder)
    is_found_out(folder, name, old, new, command)


def is_found_out(folder: Path, name: str, old: str, new: str, command: str) -> None:
    """Asserts that a command fails, and names the example, once a file of it is changed."""
    text = (folder / name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new), encoding="utf-8")
    told = failure(command, folder)
    assert told is not None
    assert "table" in told


def test_a_row_of_the_operator_table_alone_is_told_what_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton", reason='Triton is not installed: pip install ".[verify]"')
    folder = copied(tmp_path)
    follow(folder, [edit for edit in EDITS if edit[0] == "tracemine/codegen/operators.toml"])
    told = failure("python -m pytest tests/codegen/test_operator_table.py", folder)
    assert told is not None
    elsewhere = [name for name, text in EDITS if "celu" in text and not name.endswith("operators.toml")]
    assert len(elsewhere) == 4
    assert [name for name in elsewhere if name not in told] == []
