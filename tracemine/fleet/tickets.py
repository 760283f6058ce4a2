"""Tickets over a fleet: one a finding, however many jobs have it, with what it costs of their GPU-hours.

A finding's identity names its cause, the class of its module and its dtype, and so one fix in one place of the code; it
is the key of its ticket, as of a single scan. Figures are those of `fleet report`: of each job the newest day.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import msgspec

from tracemine.documents.words import EVIDENCE, first_sentence
from tracemine.findings.record import Source
from tracemine.fleet.places import scheme_of, shown
from tracemine.fleet.report import ASSUMED_HOURS, connected, rows
from tracemine.patterns import deferred
from tracemine.ranks.cause import cause_texts
from tracemine.tickets.content import FindingPlace, fix_blocks, how_to_check, led, rules
from tracemine.tickets.document import Block, Bullets, Folded, Name, Paragraph, Run, Runs, Strong, Text, TicketTable
from tracemine.tickets.marks import check_project, key_of
from tracemine.tickets.names import ShownNames
from tracemine.tickets.owners import CodeOwners
from tracemine.tickets.plan import TicketsAsked
from tracemine.tickets.record import NS_AN_HOUR, Figures, Filing, TicketDraft, TicketMark
from tracemine.tickets.titles import distinct_titles
from tracemine.units import count_text
from tracemine.version import __version__

_MOST_NS = 10**24 - 1  # that a ticket's hidden line holds
_HOME = deferred(r"^(?:/home/[^/]+|/Users/[^/]+|/root)/")
_TRACE_PARTS = 3  # of a path of this machine: its job, its day, its name


class OfJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding costs in one job."""

    job: str
    traces: int  # that have it, of the job's newest day
    share: float  # of the job's steps
    module: str | None
    gpu_hours: float


class Recurrence(msgspec.Struct, frozen=True, kw_only=True):
    """A finding over all jobs that have it on their newest day, and the trace that shows it best."""

    fingerprint: str
    rule: str
    title: str
    evidence: str
    fix: str
    first_day: str | None  # on which any job had it
    last_day: str | None
    jobs: int
    traces: int
    of_hours: float  # GPU-hours of the jobs that have it
    gpu_hours_low: float  # that its fix saves
    gpu_hours: float
    gpu_hours_high: float
    most: tuple[OfJob, ...]  # the jobs in which it costs most
    modules: int  # in which it occurs, over all those traces
    fixes: int  # texts that say how to fix it there
    of_span: bool  # shares are of a trace's span in some, since no steps are known
    gpu_names: tuple[str, ...]
    model_names: tuple[str, ...]
    key: str  # of the trace in the data set
    uri: str
    job: str
    day: str
    module: str | None
    file: str | None
    line: int | None
    begins: bool | None
    function: str | None
    ops: tuple[str, ...]

    @property
    def place(self) -> FindingPlace:
        """Return where it occurs, in that trace."""
        source: tuple[Source, ...] = ()
        if self.file is not None and self.line is not None and self.function is not None:
            source = (Source(file=self.file, line=self.line, function=self.function, begins=bool(self.begins)),)
        return FindingPlace(self.module, source, self.ops)


def tickets_of(
    dataset: str,
    project: str,
    *,
    hours: Mapping[str, float] | None = None,
    price: float | None = None,
    redact: bool = False,
    filing: Filing = Filing(),  # noqa: B008 - frozen
    owners: CodeOwners | None = None,
) -> TicketsAsked:
    """Return the tickets that a data set's findings ask for, those that cost most first.

    project: the label that keeps them apart from others; hours, price: as of `fleet report`; filing, owners: as of
    `findings_of`, by the line of the trace that shows a finding best.

    Raises UsageError for a label that is none and without DuckDB, InputError where there is no data set.
    """
    check_project(project)
    names, causes, others = ShownNames(project, redact), [], {}
    for row in rows(connected(dataset, hours), "tickets"):
        reason = _no_ticket(row)
        if reason is None:
            causes.append(msgspec.convert(row, Recurrence))
        else:
            others[key_of(project, row["fingerprint"])] = reason
    titles = distinct_titles([_ways(cause, names) for cause in causes])
    drafts = (
        replace(
            _draft(cause, title, names, price, shown(dataset), assumed=hours is None),
            filing=filing if owners is None else owners.filing(filing, cause.file),
        )
        for cause, title in zip(causes, titles, strict=True)
    )
    return TicketsAsked(project, redact, tuple(drafts), others)


def _no_ticket(row: Mapping[str, Any]) -> str | None:
    if not row["jobs"]:
        return "gone"
    if row["verdict_basis"] == "refuted":
        return "refuted"
    return None if row["reported"] and row["gpu_hours"] else "too small"


def _saves(cause: Recurrence) -> str:
    return f": −{_hours(cause.gpu_hours)} GPU-hours in {count_text(cause.jobs, 'job')}"


def _ways(cause: Recurrence, names: ShownNames) -> tuple[str, ...]:
    """Return titles, more telling from one to the next; of what is in several modules without a place."""
    place = cause.place if cause.modules == 1 else FindingPlace(None, (), ())
    return place.ways(cause.rule, cause.title, names, cause.fingerprint, _saves(cause))


def _draft(
    cause: Recurrence, title: str, names: ShownNames, price: float | None, dataset: str, *, assumed: bool
) -> TicketDraft:
    figures = Figures(_ns(cause.gpu_hours), _ns(cause.of_hours), "fleet")
    hidden = cause.place.hidden(cause.rule, cause.title) if names.redact else frozenset[str]()
    blocks = tuple(_blocks(cause, names, price, dataset, assumed=assumed))
    mark = TicketMark(key_of(names.project, cause.fingerprint), (), figures, redacted=names.redact)
    return TicketDraft(mark, names.text(title, hidden) + _saves(cause), names.blocks(blocks, hidden))


def _ns(hours: float) -> int:
    return min(round(hours * NS_AN_HOUR), _MOST_NS)


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def _blocks(
    cause: Recurrence, names: ShownNames, price: float | None, dataset: str, *, assumed: bool
) -> Iterator[Block]:
    """Yield a ticket's text. price: of a GPU-hour; assumed: hours were not given."""
    yield Paragraph(tuple(_savings(cause, price, assumed=assumed)))
    rule = rules().get(cause.rule)
    if rule is not None:
        yield Paragraph((Text(first_sentence(rule.why)),))
    yield _jobs(cause, names)
    yield Paragraph((Strong("A trace that shows it:"), Text(" "), *_shown_by(cause, names)))
    yield from led("Where, in that trace" if cause.modules > 1 else "Where", Paragraph(cause.place.runs(names)))
    begin, rest = fix_blocks(cause.fix)
    yield from led("Fix, in that trace" if cause.fixes > 1 else "Fix", *begin)
    yield how_to_check()
    more = Bullets((*_recurs(cause, names), *_confidence(cause, names, dataset, assumed=assumed)))
    yield Folded("Jobs, further advice, how sure it is", (*rest, more))


def _shown_by(cause: Recurrence, names: ShownNames) -> Iterator[Run]:
    trace = f"key {cause.key} of the data set" if names.redact else _trace(cause.uri)
    yield from (Name(trace), Text(" of job "), Name(names.job(cause.job)), Text(f", {cause.day}"))
    if not names.redact:
        asked = f"explain {cause.fingerprint} {shlex.quote(trace)}"
        if cause.rule in cause_texts().keys() - rules().keys():  # a cause of all ranks, which lies in no single trace
            asked = f"scan {shlex.quote(str(PurePath(trace).parent))}"
        yield from (Text(": "), Name(f"tracemine {asked}"))


def _savings(cause: Recurrence, price: float | None, *, assumed: bool) -> Iterator[Run]:
    ends = f"{_hours(cause.gpu_hours_low)} to {_hours(cause.gpu_hours_high)}"
    yield Text("Saves ")
    yield Strong(f"{_hours(cause.gpu_hours)} GPU-hours")
    yield Text(f" ({ends}) of the {_hours(cause.of_hours)} that {count_text(cause.jobs, 'job')} with it take")
    if price is not None:
        yield Text(f": {cause.gpu_hours * price:,.2f} at {price:,.2f} a GPU-hour")
    yield Text(".")
    if assumed:
        yield Text(f" GPU-hours are assumed: {ASSUMED_HOURS:,.0f}, spread evenly over all jobs.")


def _jobs(cause: Recurrence, names: ShownNames) -> TicketTable:
    cells: list[tuple[Runs, ...]] = [
        (
            (Name(names.job(one.job)),),
            (Text(_hours(one.gpu_hours)),),
            (Text(f"{one.share:.1%}"),),
            (Text(f"{one.traces:,}"),),
            (Name(names.module(one.module)) if one.module else Text("–"),),
        )
        for one in cause.most
    ]
    more = cause.jobs - len(cause.most)
    if more > 0:
        rest = cause.gpu_hours - sum(one.gpu_hours for one in cause.most)
        cells.append(((Text(f"and {more:,} more"),), (Text(_hours(rest)),), *[(Text(""),)] * 3))
    return TicketTable(("job", "GPU-hours saved", "of its steps", "traces with it", "module"), tuple(cells))


def _recurs(cause: Recurrence, names: ShownNames) -> Iterator[Runs]:
    yield (Text(f"in {count_text(cause.traces, 'trace')} of {count_text(cause.jobs, 'job')}, of each its newest day"),)
    for noun, values in (("model", [names.job(one) for one in cause.model_names]), ("GPU", cause.gpu_names)):
        if values:
            yield (Text(f"{count_text(len(values), noun)}: "), Name(", ".join(values)))
    if cause.first_day is not None:
        yield (Text(f"seen first on {cause.first_day}, last on {cause.last_day}"),)


def _trace(uri: str) -> str:
    """Return a trace as its team finds it: its URI, or the end of its path without the folder of a user.

    >>> _trace("/home/ann/nightly/llama/2026-11-22/rank0.json.gz"), _trace("/home/ann/rank0.json.gz")
    ('llama/2026-11-22/rank0.json.gz', 'rank0.json.gz')
    """
    if scheme_of(uri) is not None:
        return shown(uri)
    return "/".join(PurePath(_HOME.sub("", uri).lstrip("/")).parts[-_TRACE_PARTS:])


def _confidence(cause: Recurrence, names: ShownNames, dataset: str, *, assumed: bool) -> Iterator[Runs]:
    says = EVIDENCE.get(cause.evidence, "see the documentation")
    yield (Text("evidence, in that trace: "), Strong(cause.evidence), Text(f": {says}"))
    yield (
        Text("a trace is a sample of its job: what it saves of the trace's unprofiled steps counts as the job's share"),
    )
    if cause.of_span:
        yield (Text("of some traces no steps are known: there the share is of all their time"),)
    if assumed:
        yield (Text("GPU-hours by job were not given: `--hours` names them"),)
    of = Name("the fleet" if names.redact else dataset)
    yield (Text(f"tracemine {__version__}, over "), of, Text(", finding "), Name(cause.fingerprint))
