"""What stands in for the command line in a child: a reader that no command reaches, and mistakes made on purpose."""

from __future__ import annotations

import importlib
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def read_calibration(args: Sequence[str]) -> int:
    """A calibration file is read by the package alone: as the command line would."""
    from tracemine.cli.console import say_error
    from tracemine.errors import TracemineError
    from tracemine.fusion import FusedKernel
    from tracemine.perfmodel import read_measured

    kernel = FusedKernel(reads=(1 << 20,), writes=(1 << 20,), rows=512, length=1024, item_bytes=2, steps=("exp", "sum"))
    try:
        found = read_measured(Path(args[-1])).curves.predict(kernel)
        if not 0 < found.low_ns <= found.mid_ns <= found.high_ns:
            raise AssertionError(found)
    except TracemineError as error:
        say_error(error)
        return error.exit_code
    return 0


def analysed_once(args: Sequence[str]) -> int:
    """The command line; what the process has read and found in a trace already is not worked out again."""
    from tests.analysed import once

    return _with(args, "analyse mined", lambda pipeline: once(pipeline.analyse, pipeline.mined))


def mined_once(args: Sequence[str]) -> int:
    """The command line; what the process has found in a trace of the same content is not looked for again."""
    from tests.analysed import once_a_content

    return _with(args, "mined", lambda pipeline: (once_a_content(pipeline.mined),))


_STAND_INS: dict[str, tuple[Callable[..., Any], ...]] = {}


def _with(args: Sequence[str], names: str, make: Callable[[Any], tuple[Callable[..., Any], ...]]) -> int:
    """The command line with functions of the pipeline replaced; the next one meets the pipeline as it was."""
    from tracemine import pipeline
    from tracemine.cli import main

    own = dict(vars(pipeline))
    _STAND_INS.setdefault(names, make(pipeline))
    vars(pipeline).update(zip(names.split(), _STAND_INS[names], strict=True))
    try:
        return main(args)
    finally:
        vars(pipeline).update(own)


# -- mistakes that were made once, planted again: tests/attack/test_planted.py asserts that the attacks find them


def children_search_the_folder() -> None:
    """Children are started without -P, so that they import what lies in the current folder."""
    begin: Callable[..., None] = subprocess.Popen.__init__

    def without(self: Any, command: Sequence[str], *args: Any, **how: Any) -> None:
        env = dict(how.pop("env", None) or os.environ)
        env.pop("PYTHONSAFEPATH", None)
        begin(self, [part for part in command if part != "-P"], *args, env=env, **how)

    subprocess.Popen.__init__ = without  # type: ignore[assignment, method-assign]


def verdicts_follow_links() -> None:
    """Whatever lies where verdicts go is written over, through links too."""
    write_file = importlib.import_module("tracemine.files").write_file
    _replace("tracemine.verdicts.files", "write_file", lambda path, content, **_: write_file(path, content))
    _replace("tracemine.verdicts.files", "check_plain", lambda path: None)
    _replace("tracemine.verdicts.files", "_check_table", lambda path: None)


def timelines_replace_all() -> None:
    """A folder with a timeline is replaced with all that lies in it."""
    _replace("tracemine.timeline", "_check_replaceable", lambda *_: None)


def ends_are_not_looked_at() -> None:
    """What a file holds beside its first trace is left out without a word."""
    _replace("tracemine.formats.kineto.scanner", "_left_out", lambda *_: [])


def _replace(module: str, name: str, value: object) -> None:
    """Another function in place of the one that mends it, which must be there."""
    found = importlib.import_module(module)
    getattr(found, name)
    setattr(found, name, value)
