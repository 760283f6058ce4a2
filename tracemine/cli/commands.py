"""The commands: what each is for in a line, and the command line of all or of one. What is not called is not imported.

A command is the function of a module of its name, a group of commands its `app`.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from tracemine.cli.console import write
from tracemine.cli.options import group_help
from tracemine.cli.settings import NO_SETTINGS
from tracemine.version import __version__

COMMANDS: Final = {
    "scan": "Say what is worth fixing in a trace.",
    "top": "Say where the step's time goes.",
    "capture": "Run a program and record some of its steps.",
    "doctor": "Say whether a recording can be trusted.",
    "fix": "Write a finding's fix: a module, or a diff of your source.",
    "apply": "Try fixes in your own step, and measure them there.",
    "verify": "Validate and time the kernels that findings ask for.",
    "explain": "Explain one finding in full.",
    "tickets": "Give each finding a ticket of GitHub or Jira.",
    "diff": "Say what became of each finding.",
    "calibrate": "Measure this machine's GPU.",
    "mcp": "Answer a coding agent (Model Context Protocol).",
}
GROUPS: Final = {
    "baseline": "What later scans are compared with: list it, accept findings.",
    "fleet": "Scan many traces, and say what costs most over all.",
    "rules": "List, show, lint and test the rules.",
}
OF_FLEET: Final = ("run", "report", "tickets")
_CONTEXTS: Final = {"capture": {"allow_interspersed_args": False}}  # what follows the program's name is its own


def whole() -> typer.Typer:
    """Return the command line with all commands."""
    return with_commands((*COMMANDS, *GROUPS))


def with_commands(names: Collection[str]) -> typer.Typer:
    """Return the command line with some commands. Typer takes a fifth of a small scan for the parameters of all."""
    # Plain help: drawing it with rich would take half the time that --help may take.
    made = typer.Typer(
        name="tracemine",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    made.callback(invoke_without_command=True)(tracemine)
    for name in names:
        module: Any = import_module(f"tracemine.cli.{name}")
        if name in GROUPS:
            made.add_typer(module.app, name=name, short_help=GROUPS[name])
        else:
            add = made.command(short_help=COMMANDS[name], context_settings=_CONTEXTS.get(name))
            add(getattr(module, name))
    return made


def tracemine(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    no_settings: Annotated[
        bool, typer.Option(NO_SETTINGS, help="Read no pyproject.toml: a stranger's may lie next to a trace.")
    ] = False,
) -> int:
    """Find the GPU kernels worth fusing and the launch gaps worth closing in a profiler trace.

    \b
    Example:
      tracemine scan trace.json.gz
    """
    if version:
        write(f"tracemine {__version__}\n")
        raise typer.Exit(0)
    return group_help(context)
