"""Ranks of one job among the traces that a call names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tracemine.cli.console import say, write
from tracemine.errors import TracemineError, UsageError

if TYPE_CHECKING:
    from tracemine.cli.request import ScanRequest
    from tracemine.findings.record import Scan
    from tracemine.ranks.picture import JobPicture
    from tracemine.ranks.record import Job
    from tracemine.report import Drawing

DrawnJob: TypeAlias = "tuple[Job, JobPicture]"
_DRAWN = ("text", "json", "markdown", "html", "perfetto")  # of a job; in other formats its traces are drawn one by one


def job_of(
    given: Sequence[str],
    sources: Sequence[object],
    request: ScanRequest,
    report: str,
    others: Sequence[object],
    ray: str | None = None,
) -> DrawnJob | None:
    """Return what is found of the job whose ranks these traces are; None where they are none, or are drawn apart.

    others: options that were given and are of a trace alone. ray: address of the cluster that reads them. Raises
    UsageError where that is given and they are no job.
    """
    drawn = None if report not in _DRAWN else _drawn(given, sources, request, others, ray)
    if drawn is None and ray is not None:
        hint = "tracemine fleet --ray scans many traces"
        raise UsageError("--ray: the traces are no job of several ranks", hint=hint)
    return drawn


def _drawn(
    given: Sequence[str], sources: Sequence[object], request: ScanRequest, others: Sequence[object], ray: str | None
) -> DrawnJob | None:
    paths = [source for source in sources if isinstance(source, Path) and source.is_file()]
    of_a_trace = any(option for option in others if option != "--format perfetto")
    damaged = any(isinstance(source, TracemineError) for source in sources)
    if of_a_trace or damaged or not _may_hold_ranks(paths):
        return None
    from tracemine.ranks.find import find_and_draw
    from tracemine.ranks.recognise import jobs_in_folders, may_be_job, read_ranks

    if not may_be_job(paths):
        return None
    several = jobs_in_folders(paths)
    if several:
        hint = f"scan one, such as {several[0]}, or all: tracemine fleet {given[0]} -o fleet/"
        raise UsageError(f"{given[0]} holds {len(several)} jobs of several ranks", hint=hint)
    cluster = None
    if ray is not None:
        from tracemine.ranks.reading import read_on_ray

        cluster = partial(read_on_ray, ray)
    read = read_ranks(paths, None if request.quiet else say, read=cluster)
    return find_and_draw(read, given[0] if len(given) == 1 else str(paths[0].parent)) if read.is_job else None


def _may_hold_ranks(paths: Sequence[Path]) -> bool:
    """Return whether there are several, or an export of nsys: others are not asked, for that loads their reader."""
    return len(paths) > 1 or any(path.suffix in (".sqlite", ".db") for path in paths)


def drawn_job(found: DrawnJob, report: str, output: Path | None, how: Drawing) -> int:
    """Write a job's report. Return the exit code."""
    from tracemine.report.job import render_json, render_markdown, render_text

    job, picture = found
    if report == "text":
        text = render_text(job, min(how.width, 100), whole=how.whole)
    elif report == "html":
        from tracemine.report.html.job_page import render

        page = StringIO()
        render(job, picture, page)
        text = page.getvalue()
    elif report == "perfetto":
        from tracemine.report.job_overlay import overlay

        text = overlay(picture)
    else:
        text = (render_json if report == "json" else render_markdown)(job)
    write(text, output)
    return 0


def jobs_in(given: Sequence[str], *, quiet: bool) -> tuple[Job, ...] | None:
    """Return the jobs whose ranks lie in folders, None where one of these is no such folder."""
    if not all(Path(each).is_dir() for each in given):
        return None
    from tracemine.cli.request import all_traces
    from tracemine.ranks.find import find_job
    from tracemine.ranks.recognise import may_be_job, read_ranks

    paths = [[one for one in all_traces([each], quiet=True) if isinstance(one, Path)] for each in given]
    if not all(may_be_job(each) for each in paths):
        return None
    read = [read_ranks(each, None if quiet else say) for each in paths]
    if not all(each.is_job for each in read):
        return None
    return tuple(find_job(each, name) for each, name in zip(read, given, strict=True))


def drawn_difference(jobs: Sequence[Job], report: str, output: Path | None, width: int) -> int:
    """Write what differs between two jobs, the earlier one first. Return the exit code."""
    from tracemine.ranks.compare import compare_jobs
    from tracemine.report.job_diff import FORMATS, render

    if report not in FORMATS:
        raise UsageError(f"--format {report}: jobs of several ranks are compared as {', '.join(FORMATS)}")
    text = render(report, compare_jobs(*jobs), width)
    write(text, output)
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
