"""Traces and stored findings, read once and kept while they do not change: pages of one answer are of one scan."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from tracemine import pipeline
from tracemine.agents.folders import Allowed, Folders, shown_argument
from tracemine.agents.quoted import word
from tracemine.api.report import Report
from tracemine.api.settings import options_of
from tracemine.documents.numbered import by_number, claimed
from tracemine.documents.own_code import DeeperFrames
from tracemine.errors import TracemineError, UsageError
from tracemine.files import within
from tracemine.findings.record import Finding, Scan, Source
from tracemine.findings.stored import one_stored
from tracemine.formats import NSYS_REPORTS
from tracemine.formats.discover import traces
from tracemine.pipeline import Analysis, ScanOptions
from tracemine.scan_settings import ScanSettings
from tracemine.top import By
from tracemine.units import count_text

_MOST_SCANS = 16  # kept; of the last trace alone what is needed to generate kernels is kept too
_NAMED = 10  # traces in a message
_MOST_LISTED = 1000  # traces below a folder
_Key = tuple[object, ...]

Short = Annotated[str, Meta(min_length=1, max_length=100)]
Place = Annotated[str, Meta(min_length=1, max_length=4096)]
TracePath = Annotated[Place, Meta(description="A trace, capture folder, timeline or findings file that is served.")]
FindingId = Annotated[
    str,
    Meta(
        description="A finding's id, four of its first digits, or its number.", pattern="^([0-9]{1,3}|[0-9a-f]{4,16})$"
    ),
]
GPU = Annotated[Short | None, Meta(description="Estimate for it where the trace names none: h100, mi300x.")]
Limit = Annotated[int, Meta(description="Rows.", ge=1, le=25)]
Lines = Annotated[int, Meta(description="Lines.", ge=1, le=400)]
Cursor = Annotated[Short | None, Meta(description="next_cursor of the answer before.")]
Output = Annotated[Place | None, Meta(description="Write files into this folder; needs --allow-write.")]
Operator = Annotated[Short | None, Meta(description="List pairs with this operator: mul, aten::mm.")]
OneRule = Annotated[Short | None, Meta(description="Only findings of this rule.")]
MinSaving = Annotated[Short | None, Meta(description='Only what saves so much: "50us", "1%"; "0ns" is all.')]
Details = Annotated[bool, Meta(description="Kernels, variants, assumptions, what the rule says.")]
Seconds = Annotated[int, Meta(description="CPU time of one validation.", ge=1, le=600)]
Table = By | Literal["host", "host_tree", "waits"]
Status = Literal["new", "worse", "fixed", "improved", "moved", "unknown", "same"]

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Read:
    """What was found in a trace."""

    path: Path
    scan: Scan  # with its refused pairs, and without a threshold
    key: _Key  # of the files as they were, and of what was asked
    frames: Mapping[str, Source] = field(default_factory=dict)  # the user's own lines of findings that hold none

    def named(self, asked: str) -> str:
        """Return the id of the finding with this number; what is no number as it is. Raise UsageError for another."""
        found = by_number(asked, self.scan)
        if found is None and asked.isdecimal() and len(asked) < 4:  # digits of an id
            numbered = count_text(len(claimed(self.scan)), "finding")
            raise UsageError(f"no finding has the number {asked}", hint=f"`scan` numbers {numbered}, from 1 on")
        return asked if found is None else found.fingerprint

    @property
    def report(self) -> Report:
        """The same, to look into."""
        return Report(self.scan)


@dataclass(slots=True)
class Reader:
    """Read what lies below the folders that are served."""

    folders: Folders
    rules: Sequence[Path] = ()
    allowed: Allowed = field(default_factory=Allowed)
    _scans: OrderedDict[_Key, Read] = field(default_factory=OrderedDict)
    _last: tuple[_Key, Analysis] | None = None

    def read(self, given: str, gpu: str | None = None) -> Read:
        """Return the findings of a trace, or those that a file holds. Raise TracemineError where it cannot be read."""
        path = self._one(given)
        key = self._key(path, gpu)
        if key in self._scans:
            self._scans.move_to_end(key)
            return self._scans[key]
        stored = self._stored(path)
        read = self._scanned(path, key, gpu)[0] if stored is None else Read(path, stored, key)
        self._keep(read)
        return read

    def analysed(self, given: str, gpu: str | None = None) -> tuple[Read, Analysis]:
        """Return the findings of a trace and what kernels are generated from. Raise UsageError for stored findings."""
        path = self._one(given)
        key = self._key(path, gpu)
        if self._last is not None and self._last[0] == key and key in self._scans:
            return self._scans[key], self._last[1]
        if self._stored(path) is not None:  # it names its trace itself, which may lie anywhere
            raise UsageError(f"{shown_argument(given)} holds findings", hint="name the trace that they were found in")
        read, analysis = self._scanned(path, key, gpu)
        self._keep(read)
        return read, analysis

    def served(self) -> list[tuple[str, int]]:
        """Return the traces below the folders, as answers name them, and their bytes. Links that lead out are none."""
        found: dict[str, int] = {}
        for root in self.folders.roots:
            with within(self.folders.roots), suppress(TracemineError):
                for path in islice(traces(str(root)), _MOST_LISTED):
                    with suppress(TracemineError):
                        place = self.folders.readable(str(path))
                        files = place.iterdir() if place.is_dir() else [place]
                        found[self.folders.shown(place)] = sum(file.stat().st_size for file in files)
        return [*found.items()]

    def shown(self, read: Read) -> str:
        """Return a path as answers name it."""
        return self.folders.shown(read.path)

    def options(self, gpu: str | None = None) -> ScanOptions:
        """Return what is asked of every scan."""
        return options_of(self._settings(gpu))[0]

    def _settings(self, gpu: str | None) -> ScanSettings:
        return ScanSettings(gpu=gpu, rules=tuple(map(str, self.rules)), why_not=True)

    def _scanned(self, path: Path, key: _Key, gpu: str | None) -> tuple[Read, Analysis]:
        asked, notes = options_of(self._settings(gpu))
        self._last = None  # so that two are never held
        with within(self.folders.roots):  # a file may be swapped for a link by now
            analysis = pipeline.analyse(path)
        scan = pipeline.mined(analysis, asked)
        self._last = (key, analysis)
        frames = dict(DeeperFrames(scan, analysis.timeline))
        return Read(path, replace(scan, warnings=(*scan.warnings, *notes)), key, frames), analysis

    def _stored(self, path: Path) -> Scan | None:
        with within(self.folders.roots):
            return one_stored(path)

    def _keep(self, read: Read) -> None:
        self._scans[read.key] = read
        while len(self._scans) > _MOST_SCANS:
            self._scans.popitem(last=False)

    def _one(self, given: str) -> Path:
        """Return the one trace, or file of findings, that a path names."""
        if self.folders.inside(given).suffix in NSYS_REPORTS:
            says = f"{shown_argument(given)} is what only Nsight Systems reads, and this server starts no program"
            raise UsageError(says, hint="nsys export --type sqlite makes a database that it reads")
        path = self.folders.readable(given)
        if path.is_dir() and self._stored(path) is None:
            with within(self.folders.roots):
                below = [*traces(str(path))]
            if len(below) != 1:
                names = ", ".join(shown_argument(self.folders.shown(place)) for place in below[:_NAMED])
                more = "" if len(below) <= _NAMED else ", …"
                says = f"{shown_argument(given)} holds {count_text(len(below), 'trace')}: {names}{more}"
                raise UsageError(says, hint="name one of them")
            path = self.folders.readable(str(below[0]))
        return path

    def _key(self, path: Path, gpu: str | None) -> _Key:
        """Return what changes with the files and with what is asked."""
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        return (str(path), gpu, *stats)


def asked_id(finding: Finding, asked: str) -> str:
    """Return the whole id that begins as asked: of the finding, or of a variant of it."""
    return next((word(name) for name in (finding.fingerprint, *finding.names) if name.startswith(asked)), "unknown")


def known(**fields: Any) -> Answer:
    """Return the part of an answer that leaves out what is not known, and lists without an entry.

    >>> known(verdict=None, operators=(), shapes="8×8", emit=False)
    {'shapes': '8×8', 'emit': False}
    """
    return {name: value for name, value in fields.items() if value is not None and value != ()}
