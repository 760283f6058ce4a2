"""Decide what ends a step of a program, which steps are recorded, and which process this is of its job."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracemine.recording.files import RecordingOptions

AUTO = "auto"
SOURCES = ("time", "module", "optimizer", "marks")  # what ends a step; a later one takes the place of an earlier one
_READY, _TIMED, _FROM_IDLE = 3, 10, 3  # as tracemine.capture
_RANKS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the command line asks for."""

    after: int
    steps: int
    by: str = AUTO
    on_signal: bool = False
    stacks: bool = True
    memory: bool = False
    execution_trace: bool = True
    light: bool = True

    def window(self, source: str | None, *, has_gpu: bool, stacks: bool) -> tuple[RecordingOptions, int]:
        """Return what a window records whose steps `source` ends, and how many steps run before it opens.

        Of those that `after` leaves alone the last are in the window, for warming up and, if they suffice, for timing.
        """
        from_idle = _FROM_IDLE if has_gpu else 0
        is_timed = self.after > 2 * _READY + _TIMED + from_idle
        options = RecordingOptions(
            steps=None if source == "time" else self.steps,
            warmup=_READY if is_timed else min(_READY, (self.after - 1) // 2),
            timed=_TIMED if is_timed else 0,
            stacks=self.stacks and stacks,
            memory=self.memory,
            execution_trace=self.execution_trace,
            light=self.light,
            marks=source != "marks",
            all_threads=True,
        )
        return options, self.after - 2 * options.warmup - is_timed * (_TIMED + from_idle)


@dataclass(slots=True)
class StepCounter:
    """Which events end a step: those of the source that counts most, and of one optimizer or module alone."""

    by: str
    source: str | None = None
    key: weakref.ref[Any] | None = None  # the optimizer or module
    name: str = ""
    count: int = 0
    trains: bool = False  # it has made an optimizer: a module's call is part of a step

    def counts(self, source: str, key: weakref.ref[Any] | None) -> bool:
        """Return whether this event ends a step. The first that counts more, or follows one that is gone, starts."""
        if self.by not in (AUTO, source) or (source == "module" and self.trains):
            return False
        if self.source is None or SOURCES.index(source) > SOURCES.index(self.source) or self._gone(source):
            self.source, self.key, self.count = source, key, 0
            self.name = "" if key is None else type(key()).__name__
        counts = source == self.source and key is self.key
        self.count += counts
        return counts

    def _gone(self, source: str) -> bool:
        return source == self.source and self.key is not None and self.key() is None

    def words(self) -> str:
        """Return how steps are recognised."""
        return {
            None: "",
            "time": "(by time)",
            "module": f"by calls of {self.name}",
            "optimizer": f"by calls of {self.name}.step",
            "marks": "by the program's marks",
        }[self.source]


def rank(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return this process's number among those of its job; None where it is the only one.

    >>> rank({"RANK": "1", "WORLD_SIZE": "2"}), rank({"RANK": "0", "WORLD_SIZE": "1"}), rank({})
    (1, None, None)
    """
    for number, size in _RANKS:
        values = environment.get(number, ""), environment.get(size, "")
        if all(value.isascii() and value.isdecimal() and len(value) < 10 for value in values) and int(values[1]) > 1:
            return int(values[0])
    return None
