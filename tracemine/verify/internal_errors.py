"""Bugs of ours that one finding comes upon: each is said of that finding, and the next goes on."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import TypeVar

from tracemine.codegen.graph import GraphError
from tracemine.errors import DEBUG, TracemineError, bug_text

_T = TypeVar("_T")


class Bugs:
    """Internal errors that one finding comes upon."""

    def __init__(self) -> None:
        self.said: list[str] = []

    @property
    def first(self) -> str | None:
        """The first of them, from which others may follow."""
        return self.said[0] if self.said else None

    def tried(self, work: Callable[[], _T]) -> _T | str:
        """Do some work and return its result; of a bug, what to say. The caller's or the machine's faults are raised.

        A graph that cannot be is a bug: all graphs here are made by us.

        >>> bugs = Bugs()
        >>> bugs.tried(lambda: 1), bugs.first
        (1, None)
        >>> bugs.tried(lambda: {}["x"]).startswith("a bug in tracemine: tracemine/verify/internal_errors.py:")
        True
        """
        try:
            return work()
        except Exception as error:
            if isinstance(error, TracemineError | OSError) and not isinstance(error, GraphError):
                raise
            if os.environ.get(DEBUG):
                traceback.print_exc(file=sys.stderr)
            self.said.append(f"a bug in tracemine: {bug_text(error)}")
            return self.said[-1]
