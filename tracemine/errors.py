"""What can go wrong, as one tree; each error is one line for a person: place, fact, way out.

    TracemineError            exit code 2: the input or the call is wrong
    ├── InputError            the file cannot be read as what it claims to be
    ├── TimelineError         a table does not have the documented columns
    ├── RuleError             a rule folder says something that cannot be
    ├── UsageError            the call itself is wrong
    └── ServiceError          a service on the network refused, or did not answer

Anything else that reaches the command line is a bug and exits with 3.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path

DEBUG = "TRACEMINE_DEBUG"  # set in the environment, tracebacks of bugs are printed


@dataclass(frozen=True, slots=True)
class Location:
    """Where in the input something is wrong: a path and, where it is known, a line (1-based) and a key.

    >>> str(Location("rules/x/rule.toml", line=3, key="pattern"))
    'rules/x/rule.toml:3: pattern'
    """

    path: str
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return place if self.key is None else f"{place}: {self.key}"


class TracemineError(Exception):
    """Base of every error that the caller can fix.

    >>> print(TracemineError("the file is empty", where=Location("t.json"), hint="record the trace again"))
    t.json: the file is empty
      hint: record the trace again
    """

    exit_code = 2

    def __init__(self, message: str, *, where: Location | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = self.message if self.where is None else f"{self.where}: {self.message}"
        return text if self.hint is None else f"{text}\n  hint: {self.hint}"


class InputError(TracemineError):
    """The file cannot be read as a profiler export."""


class TimelineError(TracemineError):
    """A timeline table differs from the documented schema."""


class RuleError(TracemineError):
    """A rule folder cannot be used: the message names file, line and key."""


class UsageError(TracemineError):
    """The call is wrong: an option's value, a path that is not there."""


class ServiceError(TracemineError):
    """A service on the network refused what was asked, or did not answer. It never names a token."""


def bug_text(error: Exception) -> str:
    """Return an exception that is our own fault: the innermost place of ours, and what it says.

    >>> bug_text(ValueError("no such row"))
    'ValueError: no such row'
    """
    package = Path(__file__).resolve().parent
    places = [
        f"{path.relative_to(package.parent).as_posix()}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        for path in [Path(frame.filename)]
        if path.is_relative_to(package)
    ]
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ": ".join([*places[-1:], what])
