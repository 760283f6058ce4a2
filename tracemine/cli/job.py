"""Ranks of one job among the traces that a call names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tracemine.cli.console import say, write
from tracemine.errors import TracemineError, UsageError

if TYPE_CHECKING:
    from tracemine.cli.request import ScanRequest
    from tracemine.findings.record import Scan
    from tracemine.ranks.picture import JobPicture
    from tracemine.ranks.recognise import RanksRead
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
    UsageError where that is given and they are no job, and where they are several.
    """
    paths = [source for source in sources if isinstance(source, Path) and source.is_file()]
    of_a_trace = report not in _DRAWN or any(option for option in others if option != "--format perfetto")
    damaged = any(isinstance(source, TracemineError) for source in sources)
    read = None if of_a_trace or damaged else _ranks_in(paths, given[0], quiet=request.quiet, ray=ray)
    if read is not None:
        from tracemine.ranks.find import find_and_draw

        return find_and_draw(read, given[0] if len(given) == 1 else str(paths[0].parent))
    if ray is not None:
        hint = "tracemine fleet --ray scans many traces"
        raise UsageError("--ray: the traces are no job of several ranks", hint=hint)
    return None


def _ranks_in(paths: Sequence[Path], given: str, *, quiet: bool, ray: str | None = None) -> RanksRead | None:
    """Return the ranks of files that are one job; None of others. One file is asked where it may hold several: else
    that loads its reader.
    """
    if len(paths) < 2 and not any(path.suffix in (".sqlite", ".db") for path in paths):
        return None
    from tracemine.ranks.reading import read_on_ray
    from tracemine.ranks.recognise import jobs_in_folders, may_be_job, read_ranks

    if not may_be_job(paths):
        return None
    several = jobs_in_folders(paths)
    if several:
        hint = f"scan one, such as {several[0]}, or all: tracemine fleet {given} -o fleet/"
        raise UsageError(f"{given} holds {len(several)} jobs of several ranks", hint=hint)
    cluster = None if ray is None else partial(read_on_ray, ray)
    read = read_ranks(paths, None if quiet else say, read=cluster)
    return read if read.is_job else None


def drawn_job(found: DrawnJob, report: str, output: Path | None, how: Drawing) -> int:
    """Write a job's report. Return the exit code."""
    from tracemine.report import job as words
    from tracemine.report.html.job_page import render
    from tracemine.report.job_overlay import overlay

    job, picture = found
    texts = {
        "text": lambda: words.render_text(job, min(how.width, 100), whole=how.whole),
        "json": lambda: words.render_json(job), "markdown": lambda: words.render_markdown(job),
        "html": lambda: render(job, picture), "perfetto": lambda: overlay(picture),
    }  # fmt: skip
    write(texts[report](), output)
    return 0


def jobs_in(given: Sequence[str], *, quiet: bool) -> tuple[Job, ...] | None:
    """Return the jobs whose ranks lie in folders, None where one of these is no such folder."""
    from tracemine.cli.request import all_traces

    read = []
    for each in given:
        traces = all_traces([each], quiet=True) if Path(each).is_dir() else ()
        ranks = _ranks_in([one for one in traces if isinstance(one, Path)], each, quiet=quiet)
        if ranks is None:
            return None
        read.append(ranks)
    from tracemine.ranks.find import find_job

    return tuple(find_job(each, name) for each, name in zip(read, given, strict=True))


def drawn_difference(jobs: Sequence[Job], report: str, output: Path | None, width: int) -> int:
    """Write what differs between two jobs, the earlier one first. Return the exit code."""
    from tracemine.ranks.compare import compare_jobs
    from tracemine.report.job import FORMATS, render

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
