"""A baseline: what one side of a comparison needs, in a file that is committed, one finding a line.

Those with a name are kept in `.tracemine/NAME.json`.

Such a file is as little trusted as a trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from tracemine.comparison.compare import compared, with_accepted
from tracemine.comparison.record import ComparedSide, ComparedTrace, Difference, Item
from tracemine.comparison.sides import side_of
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import read_file, write_file
from tracemine.findings.record import Range, Scan, Spent
from tracemine.formats.sniff import written_by_tracemine
from tracemine.patterns import deferred
from tracemine.version import __version__

FOLDER = ".tracemine"
_SUFFIX = ".json"

BASELINE_SCHEMA_VERSION = 1
_LARGEST_BYTES = 1 << 26
_HEAD_BYTES = 1 << 16
_MOST_NS = 1 << 62  # as in a timeline
_MARK = deferred(r"[0-9a-f]{16}")
_SHORTEST_MARK = 4
_LONGEST_REASON = 1_000
_HINT = "tracemine scan TRACE --save-baseline FILE makes one"


class Accepted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding that may be new or worse, and why."""

    fingerprint: str
    reason: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What scans of a project are compared with."""

    schema_version: int
    tracemine: str
    project: str
    about: ComparedTrace
    spent: Spent | None
    findings: tuple[Item, ...]
    accepted: tuple[Accepted, ...] = ()

    @property
    def side(self) -> ComparedSide:
        """What the difference is taken from."""
        return ComparedSide(about=self.about, spent=self.spent, items=self.findings)


def baseline_of(scan: Scan, project: str, accepted: Sequence[Accepted] = ()) -> Baseline:
    """Return a scan as a baseline, findings in order of rule and fingerprint, so that two files differ in few lines."""
    side = side_of(scan)
    return Baseline(
        schema_version=BASELINE_SCHEMA_VERSION,
        tracemine=__version__,
        project=project,
        about=side.about,
        spent=side.spent,
        findings=tuple(sorted(side.items, key=lambda item: (item.rule, item.fingerprint))),
        accepted=tuple(accepted),
    )


def against(baseline: Baseline, scan: Scan, *, noise: float | None = None) -> Difference:
    """Return the difference from a baseline to a scan; what it accepts is marked."""
    reasons = {one.fingerprint: one.reason for one in baseline.accepted}
    return with_accepted(compared(baseline.side, side_of(scan), noise=noise), reasons)


def accept(baseline: Baseline, mark: str, reason: str) -> Baseline:
    """Return the baseline that lets a finding be new or worse. One that is in it may be named by its first digits.

    Raises UsageError where no reason is given, or the fingerprint is none.
    """
    reason = " ".join(reason.split())
    if not reason or len(reason) > _LONGEST_REASON:
        raise UsageError(
            "--reason: say why, for who reads this in a year", hint=f"at most {_LONGEST_REASON} characters"
        )
    fingerprint = _named(baseline, mark)
    kept = (one for one in baseline.accepted if one.fingerprint != fingerprint)
    every = sorted((*kept, Accepted(fingerprint=fingerprint, reason=reason)), key=lambda one: one.fingerprint)
    return replace(baseline, accepted=tuple(every))


def _named(baseline: Baseline, mark: str) -> str:
    if _MARK.fullmatch(mark):
        return mark
    found = {item.fingerprint for item in baseline.findings if item.fingerprint.startswith(mark)}
    if len(mark) < _SHORTEST_MARK or len(found) != 1:
        hint = "diff and scan --baseline print all 16 digits; of findings that are in the file the first ones do"
        raise UsageError(f"{mark[:40]!a} names no finding, or several", hint=hint)
    return found.pop()


# --- the file --------------------------------------------------------------------------------------------------------


def write_baseline(baseline: Baseline, path: Path) -> None:
    """Write the file, whole or not at all."""
    write_file(path, "\n".join(_lines(baseline)) + "\n")


def _lines(baseline: Baseline) -> Iterator[str]:
    """Yield JSON of one finding a line, and one operator a line."""
    for number, name in enumerate(("schema_version", "tracemine", "project", "about")):
        yield f"{' ' if number else '{'}{_json(name)}: {_json(msgspec.to_builtins(getattr(baseline, name)))},"
    yield from _spent(baseline.spent)
    for name, rows in (("findings", baseline.findings), ("accepted", baseline.accepted)):
        end = "]," if name == "findings" else "]}"
        yield f' "{name}": ['
        yield from _separated(_json(msgspec.to_builtins(row)) for row in rows)
        yield f" {end}"


def _spent(spent: Spent | None) -> Iterator[str]:
    if spent is None:
        yield ' "spent": null,'
        return
    yield ' "spent": {'
    for name, table in (("gpu_ns", spent.gpu_ns), ("idle_ns", spent.idle_ns)):
        yield f"  {_json(name)}: {{"
        yield from _separated(f"{_json(op)}: {ns}" for op, ns in sorted(table.items()))
        yield "  },"
    yield f'  "made_by": {_json(spent.made_by)},'
    yield '  "work": ['
    yield from _separated(_json(msgspec.to_builtins(row)) for row in spent.work)
    yield "  ]"
    yield " },"


def _separated(rows: Iterable[str]) -> Iterator[str]:
    every = list(rows)
    yield from (f"  {row}," for row in every[:-1])
    yield from (f"  {row}" for row in every[-1:])


def _json(value: Any) -> str:
    """Return a text in ASCII alone: a name in it may hold what a terminal acts on."""
    return json.dumps(value, ensure_ascii=True)


def read_baseline(path: Path) -> Baseline:
    """Return the baseline that a file holds. Raises InputError where it is none, or contradicts itself."""
    where = Location(str(path))
    content = read_file(path, _LARGEST_BYTES)
    try:
        found = msgspec.json.decode(content, type=Baseline)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        own = written_by_tracemine(content[:_HEAD_BYTES])
        if own is not None and "baseline" not in own[0]:
            raise InputError(f"is no baseline: it {own[0]}", where=where, hint=f"make one of it: {_HINT}") from None
        raise InputError(f"is no baseline: {error}", where=where, hint=_HINT) from None
    if found.schema_version != BASELINE_SCHEMA_VERSION:
        raise InputError(
            f"is a baseline of version {found.schema_version}; this tracemine reads {BASELINE_SCHEMA_VERSION}",
            where=where,
        )
    if (wrong := _impossible(found)) is not None:
        raise InputError(f"is no baseline: {wrong}", where=where, hint=_HINT)
    return found


def _wrong_mark(marks: Sequence[str]) -> str | None:
    if wrong := next((mark for mark in marks if not _MARK.fullmatch(mark)), None):
        return f"{wrong[:40]!a} is no fingerprint"
    return "it has a finding twice" if len(set(marks)) < len(marks) else None


def _impossible(baseline: Baseline) -> str | None:
    """Say what of it cannot be; None: all can."""
    for listed in (baseline.findings, baseline.accepted):
        if wrong := _wrong_mark([item.fingerprint for item in listed]):
            return wrong
    if any(not one.reason.strip() or len(one.reason) > _LONGEST_REASON for one in baseline.accepted):
        return "a finding is accepted without a reason"
    if not all(0 <= ns <= _MOST_NS for ns in _times(baseline)) or baseline.about.steps < 0:
        return "a time is out of range"
    if not all(_ordered(item.gpu_saving_ns) and _ordered(item.step_saving_ns) for item in baseline.findings):
        return "a saving's low end is above its high one"
    return None


def _ordered(saving: Range) -> bool:
    return 0 <= saving.low <= saving.mid <= saving.high <= _MOST_NS


def _times(baseline: Baseline) -> Iterator[int]:
    about = baseline.about
    yield from (about.span_ns, about.gpu_busy_ns)
    yield from (ns for ns in (about.span_spread_ns, about.gpu_busy_spread_ns) if ns is not None)
    if about.unprofiled_ns is not None:
        yield from (about.unprofiled_ns.low, about.unprofiled_ns.mid, about.unprofiled_ns.high)
    if baseline.spent is not None:
        yield from (*baseline.spent.gpu_ns.values(), *baseline.spent.idle_ns.values())
    yield from (item.measured_ns for item in baseline.findings)


def file_of(name: str, folder: Path | None = None) -> Path:
    """Return where a baseline of this name is kept.

    >>> file_of("decoder").as_posix()
    '.tracemine/decoder.json'
    """
    return (folder or Path()) / FOLDER / f"{name}{_SUFFIX}"


def file_meant(given: Path) -> Path:
    """Return the file that a path names, or a name that a baseline is kept by; a file goes before a name.

    Raises InputError for a name that none is kept by.
    """
    kept = file_of(given.name, given.parent)
    if given.exists() or given.suffix or kept.is_file():
        return given if given.is_file() or not kept.is_file() else kept
    known = ", ".join(file.stem for file, _ in kept_in(given.parent))
    hint = f"there are: {known}" if known else _HINT
    raise InputError("there is no such file, and no baseline of that name", where=Location(str(given)), hint=hint)


def kept_in(folder: Path | None = None) -> Iterator[tuple[Path, Baseline | TracemineError]]:
    """Yield each baseline that is kept by name, by name; what is wrong with one in its place."""
    place = (folder or Path()) / FOLDER
    for file in sorted(place.glob(f"*{_SUFFIX}")) if place.is_dir() else ():
        try:
            yield file, read_baseline(file)
        except TracemineError as error:
            yield file, error
