"""What is said of a recording, as data: `tracemine doctor --format json` prints one of these."""

from __future__ import annotations

import msgspec

CHECKUP_SCHEMA_VERSION = 1


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a recording may hold."""

    name: str
    recorded: bool
    says: str  # how much of it there is, or what it costs the reader that there is none
    switch: str | None = None  # what records it; null: it is there


class Doubt(msgspec.Struct, frozen=True):
    """One thing that makes figures of a recording differ from how the program runs."""

    name: str  # one word for programs, such as `cut_off`
    serious: bool  # figures cannot be taken as they stand
    says: str
    do: str | None = None  # null: nothing but to know it


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to record the same program with everything that a scan uses, to paste."""

    code: str  # within the program, with what it already has
    capture: str | None  # within the program, with tracemine; null: another profiler's recording
    command: str  # without a change of the program; "": there is none


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """What a recording holds, what distorts it, and how to record it right."""

    schema_version: int = CHECKUP_SCHEMA_VERSION
    path: str
    format: str
    producer: str | None
    gpu: str | None
    verdict: str  # `fine`; `limited`: something is missing or slows the host; `serious`: a doubt is
    parts: tuple[Holding, ...]
    doubts: tuple[Doubt, ...]  # serious ones first
    recipe: Recipe

    @property
    def serious(self) -> bool:
        """Return whether figures of the recording cannot be taken as they stand."""
        return self.verdict == "serious"
