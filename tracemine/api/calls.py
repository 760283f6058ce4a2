"""Scan a trace, load what a scan found before, open a trace as a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec.structs import replace

from tracemine import api, comparison, counters, formats, pipeline
from tracemine.api.pictures import picture_of
from tracemine.api.report import Report
from tracemine.api.settings import Names, PathLike, Paths, options_of, path_of, paths_of, settings
from tracemine.comparison import STATUSES, Difference, FindingChange
from tracemine.errors import InputError, Location, UsageError
from tracemine.files import write_file
from tracemine.findings.stored import load_scans, one_stored
from tracemine.formats import open_trace
from tracemine.formats.format import Progress
from tracemine.frames import frame
from tracemine.report import Drawing, render_difference
from tracemine.timeline import Timeline

if TYPE_CHECKING:
    import pandas as pd

    from tracemine.api.many import Reports

_CHANGES = pa.schema(
    [(name, pa.string()) for name in ("status", "rule", "title")]
    + [(name, pa.int64()) for name in ("before_ns", "after_ns", "noise_ns")]
    + [("reason", pa.string()), ("accepted", pa.string()), ("fingerprints", pa.list_(pa.string()))]
)


def scan(
    path: PathLike,
    *,
    gpu: str | None = None,
    execution_trace: PathLike | None = None,
    graph_capture: PathLike | None = None,
    ncu: Paths = (),
    rules: Paths | None = None,
    rule: Names = (),
    skip: Names = (),
    evidence: Paths = (),
    min_saving: str | None = None,
    calibration: PathLike | None = None,
    why_not: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Read a trace and find what is worth fusing and which launch gaps are worth closing.

    path: a profiler's export, a timeline directory, or a folder that `tracemine.capture` wrote. gpu: estimate for this
    GPU where the trace's own is not known ("h100"). execution_trace: of the same run; then it is known which kernel
    reads what. graph_capture: a trace of the same program capturing its CUDA graphs. ncu: reports of Nsight Compute.
    rules: folders of further rules. rule: look for these alone; skip: not for these; names or patterns ("*_unfused").
    evidence: verdicts that `verify` wrote. min_saving: report nothing that saves less over the trace ("0.1ms", "1%");
    None: 1 % of the step or of GPU time. calibration: what `tracemine calibrate` wrote, for traces of that GPU.
    why_not: also say what shares data and is not one kernel. progress: called after each block with how
    many of the file's bytes are read, and how many there are.

    Raises TracemineError, InputError where `path` cannot be read.

    >>> report = scan("fixtures/captures/decoder_prefill")
    >>> report.findings[0].rule, report.findings[0].severity
    ('rmsnorm_unfused', 'high')
    """
    given = settings(
        gpu=gpu,
        rules=rules,
        rule=rule,
        skip=skip,
        evidence=evidence,
        min_saving=min_saving,
        calibration=calibration,
        why_not=why_not,
    )
    asked, notes = options_of(given)
    reports, left_out = _reports(paths_of(ncu, "ncu"))
    analysis = pipeline.analyse(
        path_of(path),
        execution_trace=None if execution_trace is None else path_of(execution_trace, "execution_trace"),
        graph_capture=None if graph_capture is None else path_of(graph_capture, "graph_capture"),
        reports=reports,
        progress=progress,
    )
    found = pipeline.mined(analysis, asked)
    found = replace(found, warnings=(*found.warnings, *notes, *left_out))
    return Report(found, picture_of(analysis, found, asked))


def _reports(paths: Iterable[Path]) -> tuple[Sequence[counters.CounterReport], list[str]]:
    """Return reports of Nsight Compute, and what was left out of them."""
    found: list[counters.CounterReport] = []
    notes: list[str] = []
    for path in paths:
        read = counters.stored_reports(path) if path.is_dir() else (formats.ncu.read_counters(path),)
        notes += [f"{path}: {text}" for report in read for text in report.notes]
        found += read
    return found, notes


def load(path: PathLike) -> Report:
    """Return what a scan found before: a file that `scan --format json` or `Report.to_json` wrote.

    Raises InputError where it is none, is damaged, is of a later version, or holds the findings of several traces.
    """
    file = path_of(path)
    found = load_scans(file)
    if len(found) != 1:
        says = f"holds the findings of {len(found)} traces"
        raise InputError(says, where=Location(str(file)), hint="tracemine.load_many reads them")
    return Report(found[0])


def load_many(path: PathLike) -> Reports:
    """Return what scans found before, one a line, as `scan --format json` prints it. Raises InputError as `load`."""
    return api.many.Reports(tuple(map(Report, load_scans(path_of(path)))))


def open(
    path: PathLike,
    *,
    execution_trace: PathLike | None = None,
    graph_capture: PathLike | None = None,
    progress: Progress | None = None,
) -> Timeline:
    """Read a trace as a timeline: Arrow tables of what the profiler recorded, and no opinion.

    Arguments as those of `scan`. Raises InputError where it cannot be read, TimelineError where a timeline directory is
    damaged.

    >>> timeline = open("fixtures/captures/chain")
    >>> timeline.table("activities").column_names[:4]
    ['row', 'short_name', 'kind', 'name']
    """
    return open_trace(
        path_of(path),
        progress,
        execution_trace=None if execution_trace is None else path_of(execution_trace, "execution_trace"),
        graph_capture=None if graph_capture is None else path_of(graph_capture, "graph_capture"),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What became of each finding: `difference`, the record that `diff --format json` prints, and ways to look at it.

    Iterating, `len` and indexing go over its changes, in the order in which `tracemine diff` prints them.
    """

    difference: Difference
    sides: tuple[Report, ...] = field(default=(), compare=False)  # what was compared

    @property
    def changes(self) -> tuple[FindingChange, ...]:
        """All changes; each finding of either side is in exactly one."""
        return self.difference.changes

    @property
    def counts(self) -> dict[str, int]:
        """How many changes there are of each status."""
        return dict(self.difference.counts)

    def __len__(self) -> int:
        return len(self.changes)

    def __iter__(self) -> Iterator[FindingChange]:
        return iter(self.changes)

    def __getitem__(self, at: int) -> FindingChange:
        return self.changes[at]

    def of(self, status: str) -> tuple[FindingChange, ...]:
        """Return the changes of one status: fixed, improved, same, worse, new, moved, unknown. Raises UsageError.

        >>> diff("fixtures/captures/chain", "fixtures/captures/chain").of("fixed")
        ()
        """
        if status not in STATUSES:
            raise UsageError(f"there is no status {status!r}", hint=f"there are: {', '.join(STATUSES)}")
        return tuple(change for change in self.changes if change.status == status)

    def render(self, form: str = "text", *, top: int | None = None, width: int = 100) -> str:
        """Return the report of this name: `text`, `json`, `markdown`, `html`. top: so many changes; None: all."""
        out, sides = StringIO(), [(side.scan, side.picture) for side in self.sides]
        render_difference(form, self.difference, out, Drawing(top=top, width=width, sides=sides))
        return out.getvalue()

    def to_json(self) -> str:
        """Return one line of JSON, as `diff --format json` prints it."""
        return self.render("json")

    def to_markdown(self) -> str:
        """Return tables for a pull request or a ticket."""
        return self.render("markdown")

    def to_html(self, path: PathLike | None = None) -> str:
        """Return a page: both steps as bars, findings, and kernels side by side where both are of `tracemine.scan`.

        Written to `path` too. Raises UsageError where it cannot be written.
        """
        text = self.render("html")
        if path is not None:
            write_file(path_of(path), text)
        return text

    def to_pandas(self) -> pd.DataFrame:
        """Return one row a change, in the same order; times are of `difference.per`, a step or the trace."""
        names = ("status", "rule", "title", "before_ns", "after_ns", "noise_ns", "reason", "accepted")
        rows = [
            {name: getattr(one, name) for name in names}
            | {"fingerprints": list(dict.fromkeys(part.fingerprint for part in (*one.before, *one.after)))}
            for one in self.changes
        ]
        return frame(pa.Table.from_pylist(rows, schema=_CHANGES))

    def _repr_html_(self) -> str:
        shown = self.to_pandas()[["status", "title", "before_ns", "after_ns", "noise_ns"]]
        return f'<div class="tex2jax_ignore mathjax_ignore"><p>{self!r}</p>{shown.to_html(max_rows=20)}</div>'

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {status}" for status, number in self.counts.items()) or "no findings"
        return f"Comparison({counts})"


def diff(before: Report | PathLike, after: Report | PathLike, *, noise: float | None = None) -> Comparison:
    """Say what became of each finding from one recording of a program to the next.

    before, after: what `scan` or `load` gave, findings (a file, a folder of one), or a trace, which is scanned first.
    noise: the share of a step, or of a cost, below which a change says nothing; None: the spread of the steps within
    each trace.

    Every finding counts, also those that no report shows; a finding is `fixed` only where what it cost is gone. Raises
    TracemineError, InputError where a path cannot be read.

    >>> diff("fixtures/captures/chain", "fixtures/captures/chain").counts
    {'same': 2}
    """
    sides = _side(before), _side(after)
    return Comparison(comparison.diff(*(side.scan for side in sides), noise=noise), sides)


def _side(given: Report | PathLike) -> Report:
    if isinstance(given, Report):
        return given
    stored = one_stored(path_of(given))
    return scan(given) if stored is None else Report(stored)
