"""Standard output and error: what is written there, in which width and colour; what happens when the reader is gone."""

from __future__ import annotations

import codecs
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import TextIO

from tracemine.errors import DEBUG, Location, TracemineError, UsageError
from tracemine.files import write_file
from tracemine.report import Drawing
from tracemine.report.escape import line

_WIDEST, _NARROWEST = 120, 60
_WIDTH_WITHOUT_TERMINAL = 100
_LONGEST = 2000  # characters of a message
# What replaces our own characters where an encoding does not have them (ASCII): as wide, and no other one's meaning.
_PLAIN = dict(zip("µ→←…·×–−━─│≤≥█░", "u><~.x--=-|<>#.", strict=True))
_LIKE = "tracemine.alike"  # the name under which codecs know _alike

INTERRUPTED, BUG = 130, 3  # exit codes
REPORT_BUG = f"please report it with the traceback that {DEBUG}=1 prints, and the trace if you can share it"


def open_streams() -> None:
    """Open /dev/null for standard streams that were closed when this process began.

    Else what is opened next gets their numbers, and a library's message would stand in a file of the user's.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - until this process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def write(text: str, file: Path | None = None) -> None:
    """Write `text` to a file, or to standard output, whose reader may have gone away (`| head`) with what it wanted.

    Raises UsageError where it cannot be written.
    """
    if file is not None:
        write_file(file, text)
        return
    try:
        _write(sys.stdout, text)
    except OSError as error:
        raise _unwritten(error) from None


def machine_error(error: OSError) -> UsageError:
    """Convert the system's error (a full disk, a folder that may not be written to) into one of ours, with its path.

    What names no file is of standard output where Typer raised it as it printed --help, or where standard output still
    holds what it could not write.
    """
    if error.filename is None:
        if any(frame.f_code.co_name == "echo" for frame, _ in walk_tb(error.__traceback__)):
            return _unwritten(error)
        try:
            sys.stdout.flush()
        except OSError as unwritten:
            return _unwritten(unwritten)
    where = None if error.filename is None else Location(str(error.filename))
    return UsageError(error.strerror or str(error), where=where)


def _unwritten(error: OSError) -> UsageError:
    _silence(sys.stdout)
    return UsageError(f"cannot be written to: {error.strerror or error}", where=Location("standard output"))


def say(text: str) -> None:
    """Write a message of one line to standard error, escaped for terminals: it may repeat what a file says."""
    say_lines([text])


def say_lines(lines: Iterable[str]) -> None:
    """Write several lines, each as in `say`. Where standard error takes none, the exit code has to do."""
    try:
        _write(sys.stderr, "".join(f"{line(one, longest=_LONGEST)}\n" for one in lines))
    except OSError:
        _silence(sys.stderr)


def say_error(error: TracemineError) -> None:
    """Write the error's line and its hint to standard error."""
    message, _, hint = str(error).partition("\n  hint: ")
    say_lines([message, *([f"  hint: {hint}"] if hint else [])])


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Handle signals that tell a process to end as Ctrl-C: findings are kept, no process and no file stays behind.

    One that whoever started us asked us to ignore, as nohup does, is passed over.
    """

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():  # others cannot ask for signals
        for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGXCPU"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, stock in before.items():
            signal.signal(number, stock)


def options(out: TextIO, *, top: int, no_color: bool) -> Drawing:
    """Return how to draw on `out`: a terminal's width and colours, or plain text."""
    terminal = out.isatty()
    width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns if terminal else _WIDTH_WITHOUT_TERMINAL
    # https://no-color.org and https://force-color.org: set to anything but the empty string.
    forced = out is sys.stdout and any(os.environ.get(name) for name in ("FORCE_COLOR", "CLICOLOR_FORCE"))
    dull = not terminal or os.environ.get("TERM") == "dumb"
    plain = no_color or bool(os.environ.get("NO_COLOR")) or (dull and not forced)
    return Drawing(top=top or None, width=max(_NARROWEST, min(width, _WIDEST)), color=not plain)


def _alike(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream's encoding lacks by others as wide, "?" where there is none."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each, "?") for each in missing), error.end


codecs.register_error(_LIKE, _alike)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, _LIKE).decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Discard what else goes to a stream: Python flushes once more on its way out, and would end with 120."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
