"""What trying fixes came to, as data; a file of it has a run a line."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tracemine.errors import InputError, Location
from tracemine.files import writing
from tracemine.report.escape import json_text

APPLIED_SCHEMA_VERSION = 1


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a variant next to those of the unchanged step, in turns; the ratio's interval holds 95 %."""

    said: str
    """`faster`, `slower` or `no difference`."""
    base_ns: int
    own_ns: int
    ratio: float
    low: float
    high: float
    apart: float = 1.0
    """How many times as long one process with the unchanged step took as another."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One variant, or several together."""

    variants: tuple[str, ...]
    said: str
    """`faster`, `slower`, `no difference`, `wrong`, `failed` or `not tried`. Only what is faster stays."""
    why: str = ""
    predicted: float | None = None
    """The share of the step that it is to save; of several, what nothing is said of counts as it was measured alone."""
    predicted_low: float | None = None
    predicted_high: float | None = None
    findings: tuple[str, ...] = ()
    """Fingerprints of those that ask for it, of the first variant of each."""
    device_ratio: float | None = None
    """What a step takes of the GPU by what the unchanged one does, when no launch waits for the host."""
    level: str | None = None
    """`L7` where it is right and faster in the user's own step."""
    timed: Timed | None = None
    first_s: float = 0.0
    """Seconds to build the step and run each batch once, compiling included."""
    peak_bytes: int = 0
    """In steps, at once; on a GPU with what CUDA graphs hold."""
    errors: dict[str, float] = {}
    """Of what asks for coarser arithmetic: how far outputs, gradients, … and the last loss lie apart, of their size."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A run: each variant alone, then what was tried together, and what stays of it."""

    entry: str
    device: str
    step_ns: int
    """Of the unchanged step."""
    alone: tuple[Tried, ...]
    together: tuple[Tried, ...] = ()
    best: tuple[str, ...] = ()
    ranks: int = 1
    """Processes that the step is made of."""
    source: str = ""
    """A mark of the Python files that the step was imported from."""
    peak_bytes: int = 0
    """Of the unchanged step."""
    beside_compile: Timed | None = None
    """What stays next to the fastest right one of torch.compile's modes alone: `base_ns` is that mode's."""
    compiled: str = ""
    """That mode."""
    schema_version: int = APPLIED_SCHEMA_VERSION


def known_in(file: Path | None, entry: str, ranks: int = 1, source: str = "") -> dict[tuple[str, ...], Tried]:
    """Return what a file holds of an entry of this source, by the variants that were tried. Raises InputError."""
    known: dict[tuple[str, ...], Tried] = {}
    for number, line in enumerate(file.read_bytes().splitlines() if file and file.exists() else (), 1):
        try:
            run = msgspec.json.decode(line, type=Applied)
        except msgspec.DecodeError as error:
            raise InputError(f"is no result of apply: {error}", where=Location(str(file), line=number)) from error
        if (run.entry, run.ranks, run.source) == (entry, ranks, source):
            known |= {tried.variants: tried for tried in (*run.alone, *run.together) if tried.said != "not tried"}
    return known


def append(file: Path, run: Applied) -> None:
    """Add a run to a file."""
    with writing(file), file.open("ab") as stream:
        stream.write(msgspec.json.encode(run) + b"\n")


def in_json(run: Applied) -> str:
    """Return a run as JSON that a terminal shows as it is."""
    return json_text(msgspec.json.encode(run).decode())
