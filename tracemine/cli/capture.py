"""tracemine capture: run a program, and record some of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.described import argument, option
from tracemine.report.escape import line

_NOTHING_RECORDED = 2
_LONGEST = 2000  # characters of a message


class By(StrEnum):
    """What ends a step."""

    auto = "auto"
    marks = "marks"
    optimizer = "optimizer"
    module = "module"
    time = "time"


def capture(
    program: Annotated[list[str], argument("capture.program")],
    output: Annotated[Path, option("capture.output")] = Path("capture"),
    after: Annotated[int, typer.Option(metavar="N", min=1, help="Leave this many steps alone first.")] = 20,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Record this many steps.")] = 3,
    on_signal: Annotated[bool, option("capture.on_signal")] = False,
    by: Annotated[By, option("capture.by")] = By.auto,
    memory: Annotated[bool, typer.Option("--memory", help="Record every allocation.")] = False,
    no_stacks: Annotated[bool, typer.Option("--no-stacks", help="Leave out modules and Python lines.")] = False,
    no_execution_trace: Annotated[bool, option("capture.no_execution_trace")] = False,
    no_light: Annotated[bool, option("capture.no_light")] = False,
) -> Callable[[], int]:
    """Run a Python program in this process and record some of its steps, as tracemine.capture does.

    The program needs no change. One line on standard error says what was recorded, and what ended each step.
    With several processes, let the launcher start this.

    Exit code: the program's own; where that is 0, 2 if nothing was recorded. 2 also where the call is wrong.

    \b
    Examples:
      tracemine capture -- python train.py --lr 0.1
      tracemine capture -o run --after 100 --steps 5 -- python -m package
      tracemine capture --on-signal -- python serve.py
      torchrun --nproc-per-node 2 -m tracemine capture -o run -- train.py
    """
    from tracemine.recording.plan import Plan
    from tracemine.recording.program import parse, run
    from tracemine.recording.session import Session

    plan = Plan(
        after=after, steps=steps, by=by.value, on_signal=on_signal, stacks=not no_stacks, memory=memory,
        execution_trace=not no_execution_trace, light=not no_light,
    )  # fmt: skip
    parsed = parse(program)

    def record() -> int:
        session = Session(plan, output, _say)
        session.watch()
        code, raised = run(parsed)
        session.close(whole=not raised)
        return code or (_NOTHING_RECORDED if session.failed else 0)

    return record


def _say(text: str) -> None:
    """Write a message of one line past the program's own sys.stderr."""
    with suppress(OSError):
        os.write(2, f"tracemine capture: {line(text, longest=_LONGEST)}\n".encode())
