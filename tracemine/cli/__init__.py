"""The command line: parse, call, print. One function a command; what a command does not need is not imported.

Exit codes: 0 done, 1 --fail-on reached, 2 the input or the call is wrong, 3 a bug, 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from enum import EnumType
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast, get_args, get_origin

import typer

from tracemine.cli.console import (
    BUG,
    INTERRUPTED,
    REPORT_BUG,
    ending,
    machine_error,
    open_streams,
    say,
    say_error,
    say_lines,
    write,
)
from tracemine.cli.options import group_help
from tracemine.cli.settings import NO_SETTINGS, NONE, current_folder, defaults
from tracemine.errors import DEBUG, TracemineError, UsageError, bug_text
from tracemine.patterns import deferred
from tracemine.version import __version__

__all__ = ["main", "whole"]


# What Typer raises for a call that it cannot parse; it has no public name in every version of Typer.
_CallError = cast("type[Exception]", typer.BadParameter.__mro__[1])

_COMPLETE = "_TRACEMINE_COMPLETE"  # set by a shell that asks how an argument may go on
_ANSWERED = ("--help", "-h", "--version", "--install-completion", "--show-completion")
_HELP_ALL = "--help-all"
# Options that --help lists, of commands of which it leaves the others to --help-all.
_SHOWN = {"scan": ("--format", "--output", "--all", "--fail-on", "--baseline", "--et", "--evidence", "--gpu", "--help")}
# Commands of earlier versions, and what does their work.
_FORMER = {
    ("report",): "tracemine scan FINDINGS.json, or tracemine explain N FINDINGS.json --format markdown",
    ("ingest",): "tracemine scan TRACE --parquet DIR",
    ("counters",): "tracemine top REPORT, or tracemine top TRACE --ncu REPORT",
    ("overlay",): "tracemine scan TRACE --format perfetto -o FILE",
    ("baseline", "write"): "tracemine scan TRACE --save-baseline NAME",
}
_EMPTY_OPTION = deferred(r"--[a-z-]+=")

_LEFT_TO_TYPER: Final = object()

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


@cache
def _command(name: str) -> Any:
    """Return the command line with one command alone, of none of that name with all."""
    known = name in (*COMMANDS, *GROUPS) and _COMPLETE not in os.environ
    command = typer.main.get_command(with_commands([name]) if known else whole())
    take_plainly(command)
    return command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, `sys.argv` by default, and return its exit code.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    tracemine ...
    0
    """
    open_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = NONE
    try:
        _check_given(given)
        given, reads_settings = _without(NO_SETTINGS, given)
        _check_not_former(given)
        given = _meant(given, (*COMMANDS, *GROUPS))
        given, shows_all = _with_all_help(given)
        command = _command(next(iter(given), ""))
        _hide_rare_options(command, given, shows_all=shows_all)
        folder = current_folder() if reads_settings else None
        known = NONE if _asks_for_help(given) else defaults(folder, os.environ)
        if note := known.said_of_gates(given):
            say(note)
        with ending():
            code = command.main(
                given,
                prog_name="tracemine",
                standalone_mode=False,
                default_map=known.of_commands(getattr(command, "commands", {})),
            )
        if callable(code):  # a program is to run here: out of reach of what belongs to a command
            code = code()
    except TracemineError as error:
        say_error(known.placed(error, given))
        return error.exit_code
    except _CallError as error:
        say_error(_as_usage_error(error))
        return UsageError.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except OSError as error:
        say_error(machine_error(error))
        return UsageError.exit_code
    except Exception as error:
        _say_bug(error)
        return BUG
    return code if isinstance(code, int) else 0


def _check_given(arguments: Sequence[str]) -> None:
    """Raises UsageError for an argument that is empty: as a path it would be the current folder.

    What follows `capture --` is another program's.
    """
    if arguments[:1] == ["capture"] and "--" in arguments:
        arguments = arguments[: arguments.index("--")]
    if any(not one or _EMPTY_OPTION.fullmatch(one) for one in arguments):
        command = f"tracemine {arguments[0]}".rstrip()
        raise UsageError(
            f"{command}: an argument is empty: tracemine {shlex.join(arguments)}",
            hint="is a variable not set? The current folder is .",
        )


def _without(option: str, arguments: list[str]) -> tuple[list[str], bool]:
    """Return a call without an option of all commands, and whether that was not there. After -- it is no option."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    left = [one for one in arguments[:end] if one != option]
    return left + arguments[end:], len(left) == end


def _meant(arguments: list[str], commands: Collection[str]) -> list[str]:
    """Return a call with what it leaves out: `scan` of a file, `run` of a fleet; `help` and `version` are options."""
    first, *others = arguments or [""]
    if first == "fleet" and others and others[0] not in (*OF_FLEET, *_ANSWERED):
        return [first, "run", *others]
    if not first or first in commands or (first.startswith("-") and first != "-"):
        return arguments
    if first == "-" or Path(first).exists() or "." in first or "/" in first or "*" in first:
        return ["scan", *arguments]
    if first == "help":
        return [*others, "--help"]
    return ["--version"] if arguments == ["version"] else arguments


def _with_all_help(arguments: list[str]) -> tuple[list[str], bool]:
    """Return a call that asks for all help as one that asks for help, and whether it does."""
    left, without = _without(_HELP_ALL, arguments)
    return (left, False) if without else ([*left[:1], "--help"], True)


def _hide_rare_options(group: Any, arguments: Sequence[str], *, shows_all: bool) -> None:
    """Leave out of --help what few calls need, and say how to list it."""
    if not _asks_for_help(arguments) or _COMPLETE in os.environ:
        return
    for name, shown in _SHOWN.items():
        command = getattr(group, "commands", {}).get(name)
        if command is not None:
            for one in command.params:
                rare = one.param_type_name == "option" and not set(one.opts) & set(shown)
                one.hidden = rare and not shows_all
            command.epilog = None if shows_all else f"tracemine {name} {_HELP_ALL} lists all options."


def _check_not_former(arguments: Sequence[str]) -> None:
    """Raises UsageError for a command that another one took the place of."""
    for former, instead in _FORMER.items():
        if tuple(arguments[: len(former)]) == former and (len(former) > 1 or not Path(former[0]).exists()):
            raise UsageError(f"there is no command {' '.join(former)!r} any more", hint=instead)


def _asks_for_help(arguments: Sequence[str]) -> bool:
    """Return whether a call runs no command: it is answered whatever settings say."""
    return not arguments or _COMPLETE in os.environ or any(one in _ANSWERED for one in arguments)


def _as_usage_error(error: BaseException) -> UsageError:
    """Return Typer's complaint in our words: which command, what is wrong or missing, and where to look."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tracemine"
    message = getattr(error, "format_message", lambda: str(error))().rstrip(".")
    hint = f"{command} --help"
    if context is not None and message.startswith("Missing argument"):
        places = [piece.replace("{", "").replace("}", "") for piece in context.command.collect_usage_pieces(context)]
        hint = f"{' '.join([command, *places])}; {hint} says more"
    return UsageError(f"{command}: {message[:1].lower()}{message[1:]}", hint=hint)


def _say_bug(error: Exception) -> None:
    """Print one line with the exception and our innermost frame; the traceback only where it was asked for."""
    if os.environ.get(DEBUG):
        say_lines(traceback.format_exc().splitlines())
    say_error(TracemineError(f"tracemine {__version__} has a bug in {bug_text(error)}", hint=REPORT_BUG))


def take_plainly(command: Any) -> None:
    """Let a command of Typer, and all below it, take plain values as they stand."""
    command.get_params = partial(_parameters, command.get_params)
    for one in getattr(command, "commands", {}).values():
        take_plainly(one)


def _parameters(stock: Callable[[Any], list[Any]], context: Any) -> list[Any]:
    """Return a command's parameters, --help included, each of which takes what is plain."""
    parameters = stock(context)
    for parameter in parameters:
        described = getattr(parameter, "type_descriptor", None)  # a Typer without it needs no pydantic either
        if described is not None and "process_value" not in vars(parameter):
            parameter.process_value = partial(_processed, parameter, described.annotation, parameter.process_value)
    return parameters


def _processed(parameter: Any, wanted: Any, stock: Callable[[Any, Any], object], context: Any, value: Any) -> object:
    plain = _plain_or_missing(parameter, wanted, value)
    if plain is _LEFT_TO_TYPER:
        return stock(context, value)
    return plain if parameter.callback is None else parameter.callback(context, parameter, plain)


def _plain_or_missing(parameter: Any, wanted: Any, value: Any) -> object:
    several = parameter.multiple or parameter.nargs != 1
    if value is None or value in ((), []):
        return _LEFT_TO_TYPER if parameter.required else () if several else value
    if get_origin(wanted) is not list:
        return _plain(wanted, value)
    found = [_plain(get_args(wanted)[0], one) for one in value] if isinstance(value, list | tuple) else []
    return found if found and _LEFT_TO_TYPER not in found else _LEFT_TO_TYPER


def _plain(wanted: object, value: object) -> object:
    """Return a value as a parameter's type where nothing can be wrong with it.

    >>> _plain(str, "a"), _plain(int, 3)
    ('a', 3)
    >>> _plain(int, "three") is _LEFT_TO_TYPER
    True
    """
    if wanted is Path and isinstance(value, str | Path):
        path = Path(value)
        return path if not os.path.exists(value) or os.access(value, os.R_OK) else _LEFT_TO_TYPER  # noqa: PTH110
    if isinstance(wanted, EnumType):
        members: list[Any] = list(wanted)
        return next((each for each in members if value in (each, each.value)), _LEFT_TO_TYPER)
    return value if type(value) is wanted and wanted in (str, int, float, bool) else _LEFT_TO_TYPER


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
