"""Run a Python program in this process as `python` would: arguments, search path, `__main__`, exit code, traceback."""

from __future__ import annotations

import io
import os
import pkgutil
import re
import runpy
import sys
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path

from tracemine.errors import Location, UsageError
from tracemine.patterns import deferred
from tracemine.programs import python

_PYTHON = deferred(r"python[\d.]*(\.exe)?$", re.IGNORECASE)
_OF_EVERY_MAIN = ("__builtins__", "__annotations__")  # the second until Python 3.14
_LAUNCHER = "a Python program runs in this process; a launcher starts it: torchrun … -m tracemine capture -- train.py"


def parse(words: Sequence[str]) -> list[str]:
    """Return the program that a command line names, with or without `python` before it, and its arguments.

    It is `-m` and a module, or the path of a script, of a folder or of an archive with a `__main__`.

    Raises UsageError for another program than Python, for another Python, and for a script that is not there.

    >>> parse(["python", "-m", "pkg", "--lr", "3"])
    ['-m', 'pkg', '--lr', '3']
    """
    rest = list(words)
    if rest and _PYTHON.fullmatch(Path(rest[0]).name):
        _check_python(rest.pop(0))
    if not rest or rest == ["-m"]:
        raise UsageError("which program?", hint="tracemine capture -- python train.py")
    first = rest[0]
    if first == "-m":
        return rest
    if first == "-c":
        raise UsageError("-c: code of a command line is not recorded", hint="write it to a file")
    if first.startswith("-"):
        raise UsageError(
            f"{first}: an option of Python goes before", hint=f"python {first} -m tracemine capture -- PROGRAM"
        )
    _check_script(Path(first))
    return rest


def _check_python(name: str) -> None:
    if os.sep in name and not (Path(name).exists() and Path(name).samefile(python()[0])):
        raise UsageError(
            f"is another Python than the one that runs this: {python()[0]}",
            where=Location(name),
            hint=f"{name} -m tracemine capture -- PROGRAM",
        )


def _check_script(path: Path) -> None:
    try:
        head = b"" if pkgutil.get_importer(str(path)) else path.read_bytes()[:1024]
    except FileNotFoundError:
        raise UsageError("there is no such file", where=Location(str(path)), hint=_LAUNCHER) from None
    except OSError as error:
        raise UsageError(error.strerror or str(error), where=Location(str(path)), hint=_LAUNCHER) from None
    first = head.partition(b"\n")[0]
    if b"\0" in head or (first.startswith(b"#!") and b"python" not in first):
        raise UsageError("is not a Python program", where=Location(str(path)), hint=_LAUNCHER)


def run(program: Sequence[str]) -> tuple[int, bool]:
    """Run a program to its end, threads that Python waits for included; print what it raises as Python does.

    Return its exit code, and whether an exception or Ctrl-C ended it.
    """
    code, raised = 0, False
    try:
        _main(program)
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException as error:
        code, raised = _raised(error), True
    try:
        threading._shutdown()  # type: ignore[attr-defined] # what Python calls then, and calling it again does nothing
    except KeyboardInterrupt as error:
        code, raised = _raised(error), True
    return code, raised


def _main(program: Sequence[str]) -> None:
    """Run a program in a `__main__` of its own that stays, for its threads, its pickles and what it runs at exit."""
    first, main = sys.modules["__main__"], types.ModuleType("__main__")
    main.__dict__.update({name: vars(first)[name] for name in _OF_EVERY_MAIN if name in vars(first)})
    sys.modules["__main__"] = main
    is_module = program[0] == "-m"
    name = program[is_module]
    sys.argv = [program[0], *program[1 + is_module :]]
    path = str(Path(name).absolute())
    holds_main = not is_module and pkgutil.get_importer(path) is not None
    if not sys.flags.safe_path:  # Python has put a folder of ours first
        folder = Path.cwd() if is_module else Path(path).resolve().parent
        sys.path[0] = path if holds_main else str(folder)
    if is_module:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined] # what python -m calls
    elif holds_main:
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
    else:
        main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)  # noqa: S102 - the user's own program


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0)
    with suppress(Exception):
        sys.stderr.write(f"{error.code}\n")
    return 1


def _raised(error: BaseException) -> int:
    """Print an exception by the program's own hook, without the frames of this module; return the exit code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    with suppress(Exception):
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    return 130 if isinstance(error, KeyboardInterrupt) else 1
