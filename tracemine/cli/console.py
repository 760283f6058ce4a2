"""Standard output and error: what is written there, in which width and colour, and what happens when nobody reads."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

from tracemine.errors import DEBUG, TracemineError
from tracemine.report import Options
from tracemine.report.escape import line

_WIDEST, _NARROWEST = 120, 60
_WIDTH_WITHOUT_TERMINAL = 100

INTERRUPTED, BUG = 130, 3  # exit codes
REPORT_BUG = f"please report it with the traceback that {DEBUG}=1 prints, and the trace if you can share it"


def write(text: str) -> None:
    """`text` to standard output. A reader that has gone away (`| head`) is no error: it has what it wanted."""
    _write(sys.stdout, text)


def say(text: str) -> None:
    """A message to standard error."""
    _write(sys.stderr, text.rstrip("\n") + "\n")


def say_error(error: TracemineError) -> None:
    """The error's line and its hint, harmless for a terminal: both may repeat what a file says."""
    message, _, hint = str(error).partition("\n  hint: ")
    say(line(message, longest=2000) + (f"\n  hint: {line(hint, longest=2000)}" if hint else ""))


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Signals that tell a process to end are as Ctrl-C is: what was found is kept, no process and no file stays behind.

    One that whoever started us told us to pass over, as nohup does, is passed over.
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


def options(out: TextIO, *, top: int, no_color: bool) -> Options:
    """How to draw on `out`: a terminal's width and colours, or plain text."""
    terminal = out.isatty()
    width = shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns if terminal else _WIDTH_WITHOUT_TERMINAL
    # https://no-color.org: set to anything but the empty string.
    plain = no_color or not terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Options(top=top or None, width=max(_NARROWEST, min(width, _WIDEST)), color=not plain)


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        # What the stream's encoding does not have becomes "?".
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # Python flushes once more on its way out; that must not complain either.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
