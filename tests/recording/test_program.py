"""A program that `tracemine capture` runs sees, prints and returns what it does under `python`."""

from __future__ import annotations

import signal
import sys
import zipfile
from pathlib import Path

import pytest

from tests.recording.running import captured, python

NO_TORCH = "nothing was recorded: the program never imported torch"
SEES = """
import signal, sys, os
def function(x: int): pass
main = sys.modules["__main__"]
print(sys.argv, sys.path[0], os.getcwd(), __name__, __file__, __package__, __spec__ and __spec__.name)
print(sorted(vars(main)), main.function is function, function.__annotations__, type(__loader__).__name__)
print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)])
import beside
"""
ENDS = {
    "exit 3": "import sys; sys.exit(3)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit true": "import sys; sys.exit(True)",
    "exit text": "import sys; sys.exit('it is over')",
    "raise": "def f():\n    raise ValueError('no\\nsuch')\nf()",
    "chain": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error",
    "hook": "import sys\nsys.excepthook = lambda *given: print('hook', given[0])\nraise ValueError",
    "syntax": "def f(:\n",
    "os._exit": "import os; os._exit(5)",
    "SIGTERM": "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)",
}
STAYS = """
import atexit, os, pickle, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
class Kept: pass
@atexit.register
def last(): print("at exit", sys.modules["__main__"].Kept is Kept, threading.main_thread().is_alive(), flush=True)
def goes_on():
    time.sleep(0.3)
    print("thread", type(pickle.loads(pickle.dumps(Kept()))) is Kept, flush=True)
ThreadPoolExecutor(2).submit(print, "executor").result()
threading.Thread(target=goes_on).start()
print("main is over", flush=True)
"""
CHILDREN = """
import multiprocessing, os, sys
def double(x): return 2 * x, __name__, sys.argv
if __name__ == "__main__":
    for how in ("spawn", "fork", "forkserver"):
        with multiprocessing.get_context(how).Pool(1) as pool:
            print(how, pool.map(double, [1, 2]), flush=True)
    child = os.fork()
    if child == 0:
        print("forked", flush=True)
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place in ("work", "work/scripts", "work/package"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "beside.py").write_text(f"print('imported from {place}')")
    for place in ("scripts/train.py", "package/__init__.py", "package/__main__.py", "package/other.py"):
        (tmp_path / "work" / place).write_text(SEES if "init" not in place else "")
    (tmp_path / "work" / "scripts" / "__main__.py").write_text(SEES)
    with zipfile.ZipFile(tmp_path / "work" / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", SEES)
        archive.writestr("beside.py", "print('imported from the archive')")
    return tmp_path / "work"


@pytest.mark.parametrize(
    "words",
    [
        ("scripts/train.py", "--lr", "0.1", "", "--", "-o", "x"),
        ("-m", "package", "--help"),
        ("-m", "package.other"),
        ("scripts", "a"),
        ("app.pyz", "a"),
    ],
    ids=lambda words: words[0] + words[1],
)
def test_a_program_sees_what_it_sees_under_python(folder: Path, words: tuple[str, ...]) -> None:
    plain, ran = python(*words, cwd=folder), captured(*words, cwd=folder)
    assert plain.code == 0 and "imported from" in plain.out
    assert (ran.out, ran.err) == (plain.out, plain.err)
    assert (ran.code, ran.said) == (2, [NO_TORCH])


@pytest.mark.parametrize("name", ENDS)
def test_a_program_ends_as_it_does_under_python(folder: Path, name: str) -> None:
    (folder / "ends.py").write_text(ENDS[name])
    plain, ran = python("ends.py", cwd=folder), captured("ends.py", cwd=folder)
    assert plain.code != 0
    assert (ran.code, ran.out, ran.err) == (plain.code, plain.out, plain.err)


def test_a_module_that_is_not_there_is_told_as_python_tells_it(folder: Path) -> None:
    plain, ran = python("-m", "nothing", cwd=folder), captured("-m", "nothing", cwd=folder)
    assert (ran.code, ran.err) == (plain.code, plain.err) == (1, f"{sys.executable}: No module named nothing\n")


def test_ctrl_c_is_the_programs_and_ends_it_with_130(folder: Path) -> None:
    (folder / "long.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n[].clear()\n")
    plain, ran = python("long.py", cwd=folder), captured("long.py", cwd=folder)
    assert (plain.code, ran.code, ran.err) == (-signal.SIGINT, 130, plain.err)


@pytest.mark.parametrize("program", [STAYS, CHILDREN], ids=["stays", "children"])
def test_threads_children_and_what_runs_at_exit_are_as_under_python(folder: Path, program: str) -> None:
    (folder / "program.py").write_text(program)
    plain, ran = python("program.py", cwd=folder), captured("program.py", cwd=folder)
    assert plain.code == 0 and plain.out.count("\n") >= 4
    assert (ran.out, ran.err, ran.said) == (plain.out, plain.err, [NO_TORCH])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run.sh"], "run.sh: is not a Python program"),
        (["binary"], "binary: is not a Python program"),
        (["nothing.py"], "nothing.py: there is no such file"),
        (["python", "-u", "scripts/train.py"], "-u: an option of Python goes before"),
        (
            ["bin/python", "scripts/train.py"],
            f"bin/python: is another Python than the one that runs this: {sys.executable}",
        ),
        (["python"], "which program?"),
        (["-m"], "which program?"),
    ],
)
def test_what_cannot_run_here_is_told_in_a_line_with_a_hint(folder: Path, words: list[str], message: str) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\necho started\n")
    (folder / "binary").write_bytes(b"\x7fELF\0\0")
    ran = python("-m", "tracemine", "capture", "--", *words, cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"{message}\n  hint: ") and ran.err.count("\n") == 2


def test_pythons_own_path_is_accepted_with_or_without_python_before_the_script(folder: Path) -> None:
    outs = [
        python("-m", "tracemine", "capture", "--", *words, "scripts/train.py", cwd=folder).out
        for words in ([], ["python3"], [sys.executable])
    ]
    assert outs[0] and len(set(outs)) == 1
