"""Ranks of one job among the traces that a call names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.cli.console import say, write
from tracemine.errors import TracemineError, UsageError
from tracemine.files import write_file

if TYPE_CHECKING:
    from tracemine.cli.request import ScanRequest
    from tracemine.findings.record import Scan
    from tracemine.ranks.record import Job
    from tracemine.report import Drawing

_DRAWN = ("text", "json", "markdown")  # of a job; in other formats its traces are drawn one by one


def job_of(given: Sequence[str], sources: Sequence[object], request: ScanRequest, report: str) -> Job | None:
    """Return what is found of the job whose ranks these traces are; None where they are none, or are drawn apart."""
    paths = [source for source in sources if isinstance(source, Path) and source.is_file()]
    if report not in _DRAWN or not paths or any(isinstance(source, TracemineError) for source in sources):
        return None
    if len(paths) == 1 and paths[0].suffix not in (".sqlite", ".db"):  # others are not asked: that loads their reader
        return None
    from tracemine.ranks.find import find_job
    from tracemine.ranks.recognise import may_be_job, read_ranks

    if not may_be_job(paths):
        return None
    read = read_ranks(paths, None if request.quiet else say)
    return find_job(read, given[0] if len(given) == 1 else str(paths[0].parent)) if read.is_job else None


def drawn_job(job: Job, report: str, output: Path | None, how: Drawing) -> int:
    """Write a job's report. Return the exit code."""
    from tracemine.report.job import render_json, render_markdown, render_text

    if report == "text":
        text = render_text(job, min(how.width, 100), whole=how.whole)
    else:
        text = (render_json if report == "json" else render_markdown)(job)
    if output is None:
        write(text)
    else:
        write_file(output, text)
    return 0


def of_rank(sources: Iterable[Path | Scan | TracemineError], rank: str | None) -> list[Path | Scan | TracemineError]:
    """Return the trace of one rank, by how the files begin and what they are called; of "all" or none each trace.

    Raises UsageError where no file is that rank's.
    """
    sources = list(sources)
    if rank in (None, "all"):
        return sources
    from tracemine.ranks.recognise import announced

    of = {source: announced(source) for source in sources if isinstance(source, Path)}
    chosen: list[Path | Scan | TracemineError] = [source for source, number in of.items() if str(number) == rank]
    if not chosen:
        known = sorted({number for number in of.values() if number is not None})
        hint = f"there are: {', '.join(map(str, known))}" if known else "none of the traces says which rank it is"
        raise UsageError(f"--rank {rank}: no trace is that rank's", hint=hint)
    return chosen
