"""Scan a trace, load what a scan found before, open a trace as a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracemine import api, counters, formats, pipeline
from tracemine.api.pictures import picture_of
from tracemine.api.report import Report
from tracemine.api.settings import Names, PathLike, Paths, options_of, path_of, paths_of, settings
from tracemine.errors import InputError, Location
from tracemine.findings.stored import load_scans
from tracemine.formats import open_trace
from tracemine.formats.format import Progress
from tracemine.timeline import Timeline

if TYPE_CHECKING:
    from tracemine.api.many import Reports


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
