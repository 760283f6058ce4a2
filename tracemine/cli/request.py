"""What a command asks of a scan, as one record: read from its options once, used for every trace that is named.

A trace that comes by standard input: kept in a file for as long as it is read, for formats read files.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tracemine.cli.console import say
from tracemine.cli.counters import said_reports
from tracemine.cli.findings import one_stored
from tracemine.cli.progress import reading
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.counters import CounterReport
    from tracemine.devices import Device
    from tracemine.findings.record import Scan, Source
    from tracemine.matching import Rule
    from tracemine.pipeline import Analysis, ScanOptions
    from tracemine.report.picture import Picture
    from tracemine.timeline import Timeline
    from tracemine.verdicts.evidence import Evidence

_MOST_BYTES: Final = 1 << 36
_PIECE_BYTES: Final = 1 << 20
STDIN: Final = Path("standard input")  # this object alone: a file may have the name


@dataclass(frozen=True, slots=True)
class FoundIn:
    """What was found in a trace, and what a report draws of the trace itself."""

    scan: Scan
    picture: Picture | None = None
    frames: Mapping[str, Source] = field(default_factory=dict)  # the user's own, of findings that hold none
    trace: Path | None = None  # what may be read again: neither standard input nor findings that were kept


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What is asked of a scan: of every trace, of the one that files belong to, and what is said of it."""

    options: ScanOptions
    quiet: bool
    execution_trace: Path | None = None
    graph_capture: Path | None = None
    reports: Sequence[CounterReport] = ()  # of Nsight Compute
    tables: Path | None = None  # where the trace and its findings are kept
    pictured: bool = False  # whether a report draws more of a trace than its findings


def asked(
    *,
    quiet: bool,
    gpu: str | None = None,
    rules: Sequence[Path] | None = None,
    rule: Sequence[str] | None = None,
    skip: Sequence[str] | None = None,
    min_saving: str | None = None,
    evidence: Sequence[Path] | None = None,
    calibration: Path | None = None,
    counters: Sequence[Path] | None = None,
    why_not: bool = False,
    execution_trace: Path | None = None,
    graph_capture: Path | None = None,
    tables: Path | None = None,
    pictured: bool = False,
    source: Path | None = None,
) -> ScanRequest:
    """Return what a command's options ask. Raise TracemineError where a value or a file is wrong."""
    from msgspec.structs import replace

    from tracemine.scan_settings import ScanSettings

    settings = ScanSettings(
        gpu=gpu,
        rules=tuple(map(str, rules or ())),
        rule=tuple(rule or ()),
        skip=tuple(skip or ()),
        evidence=tuple(map(str, evidence or ())),
        min_saving=min_saving,
        calibration=None if calibration is None else str(calibration),
        why_not=why_not,
    )
    options, notes = settings.options()
    if not quiet:
        for note in notes:
            say(note)
    return ScanRequest(
        options=options if source is None else replace(options, source=source),
        quiet=quiet,
        execution_trace=execution_trace,
        graph_capture=graph_capture,
        reports=[report for path in counters or () for report in said_reports(path, quiet=quiet)],
        tables=tables,
        pictured=pictured,
    )


def rules_asked(folders: Sequence[Path] | None) -> tuple[Rule, ...]:
    """Return the rules that there are, and those that --rules adds. Raises RuleError, UsageError."""
    from tracemine.causes import load_rules

    return load_rules(*(folders or ()))


def device_named(name: str) -> Device:
    from tracemine import devices

    try:
        return devices.device_named(name)
    except UsageError as error:
        raise UsageError(f"--gpu: {error.message}", hint=error.hint) from None


def all_traces(paths: Sequence[str], *, quiet: bool, seen: set[Path] | None = None) -> Iterator[Path | TracemineError]:
    """Yield every trace named, each once; what is wrong with an argument in its place.

    seen: traces that are passed over; those found are added.
    """
    from tracemine.formats.discover import traces

    seen = set() if seen is None else seen
    for given in paths:
        if given == "-":
            yield STDIN
            continue
        try:
            for path in traces(given, None if quiet else say):
                if path not in seen:
                    seen.add(path)
                    yield path
        except TracemineError as error:
            yield error
        except OSError as error:
            yield InputError(f"cannot be read: {error.strerror}", where=Location(given))


def one_trace(given: str, *, quiet: bool) -> Path:
    """Return the one trace that an argument names. Raises TracemineError where it is not one."""
    paths = list(all_traces([given], quiet=quiet))
    if len(paths) != 1:
        raise UsageError(f"{given}: {count_text(len(paths), 'trace')}, and one is looked at", hint="name one file")
    if isinstance(paths[0], TracemineError):
        raise paths[0]
    return paths[0]


def evidence_in(paths: Sequence[Path], *, quiet: bool) -> Evidence | None:
    """Return the verdicts of files and folders, read once; what was left out of them is said."""
    if not paths:
        return None
    from tracemine.verdicts.evidence import read_evidence

    evidence = read_evidence(paths)
    if not quiet:
        for note in evidence.notes:
            say(note)
    return evidence


def one_found(given: str, request: ScanRequest) -> FoundIn:
    """Return what an argument names, stored or found in a trace. Raise TracemineError where it is not one."""
    stored = one_stored(Path(given))
    return found_in(one_trace(given, quiet=request.quiet), request) if stored is None else FoundIn(stored)


def analysed(path: Path, request: ScanRequest, *, position: str = "") -> Analysis:
    """Read one trace, or standard input, with a progress bar. position: of this trace among several, for the bar.

    Raises TracemineError where it cannot be read.
    """
    from msgspec.structs import replace

    from tracemine.pipeline import analyse

    with from_standard_input(path) as file, reading(path, quiet=request.quiet, position=position) as progress:
        analysis = analyse(
            file,
            execution_trace=request.execution_trace,
            graph_capture=request.graph_capture,
            reports=request.reports,
            progress=progress,
        )
    return analysis if file is path else replace(analysis, path=str(path))


def found_in(path: Path, request: ScanRequest, *, position: str = "") -> FoundIn:
    """Read one trace with a progress bar, and mine it; keep it in the folder that the request names.

    position: of this trace among several, for the bar. Raises TracemineError where it cannot be.
    """
    from tracemine.documents.own_code import DeeperFrames
    from tracemine.pipeline import mined, write_tables

    analysis = analysed(path, request, position=position)
    known, given = analysis.device, request.options.device
    if known is not None and given is not None and known is not given and not request.quiet:
        say(f"{path}: the trace says {known.title}; --gpu is for traces whose GPU is not known")
    found = mined(analysis, request.options)
    if request.tables is not None:
        write_tables(analysis, found, request.tables)
        if not request.quiet:
            say(f"{request.tables}: {_kept(analysis.timeline)}")
    if not request.pictured:
        return FoundIn(found, frames=DeeperFrames(found, analysis.timeline))
    from tracemine.api.pictures import picture_of

    drawn = picture_of(analysis, found, request.options)
    return FoundIn(found, drawn, drawn.frames, None if path is STDIN else path)


def _kept(timeline: Timeline) -> str:
    """Return how many rows each table of a timeline has, and what was left out or repaired, with the reason."""
    from tracemine.timeline import TABLES

    became = timeline.meta.ingest
    parts = [("rows of", {name: getattr(timeline, name).num_rows for name in TABLES})]
    parts += [("left out:", became.dropped), ("repaired:", became.repaired), ("no operator:", became.unowned)]
    return "; ".join(
        f"{label} " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
        for label, counts in parts
        if counts
    )


@contextmanager
def from_standard_input(path: Path) -> Iterator[Path]:
    """Hold what standard input brings in a file, where `path` is STDIN; errors name standard input. Else `path` itself.

    Raises UsageError where standard input is a terminal, or brings more than half of what is free for temporary files.
    """
    if path is not STDIN:
        yield path
        return
    if sys.stdin.isatty():
        hint = "tracemine scan - < trace.json, or another program's output: … | tracemine scan -"
        raise UsageError("is a terminal, not a trace", where=Location(str(STDIN)), hint=hint)
    with TemporaryDirectory(prefix="tracemine-") as folder:
        file = Path(folder) / "trace"
        _copy(file, min(_MOST_BYTES, shutil.disk_usage(folder).free // 2))
        try:
            yield file
        except TracemineError as error:
            if error.where is not None and error.where.path == str(file):
                error.where = Location(str(STDIN), error.where.line, error.where.key)
            raise


def _copy(file: Path, most_bytes: int) -> None:
    """Write standard input to a file. Raises UsageError where it is more."""
    left = most_bytes
    with file.open("wb") as out:
        while piece := sys.stdin.buffer.read(min(_PIECE_BYTES, left + 1)):
            left -= len(piece)
            if left < 0:
                says = f"brings more than {most_bytes:,} bytes, which is all that may be kept here"
                raise UsageError(says, where=Location(str(STDIN)), hint="name a file, or set TMPDIR to a larger disk")
            out.write(piece)
