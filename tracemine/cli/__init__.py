"""The command line: parse, call, print. One function a command; what a command does not need is not imported.

Exit codes: 0 done, 1 --fail-on reached, 2 the input or the call is wrong, 3 a bug, 130 interrupted.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import typer

from tracemine.cli.commands import COMMANDS, GROUPS, OF_FLEET, whole, with_commands
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
)
from tracemine.cli.plain_values import take_plainly
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
