"""Tickets of a job of many ranks: one a cause, however many ranks have it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tracemine.ranks.record import Job, JobFinding, named
from tracemine.tickets.content import fix_blocks, how_to_check, led
from tracemine.tickets.document import Block, Bullets, Paragraph, Strong, Text
from tracemine.tickets.marks import check_project, key_of
from tracemine.tickets.names import ShownNames
from tracemine.tickets.plan import TicketsAsked
from tracemine.tickets.record import Figures, Filing, TicketDraft, TicketMark
from tracemine.units import percent_text, range_text, time_text

_MOST_RANKS = 16  # named


def tickets_of_job(job: Job, project: str, *, redact: bool = False, filing: Filing | None = None) -> TicketsAsked:
    """Return the tickets that a job's findings ask for, those that save most first; of an unknown saving none.

    redact: what names operators is left out. Raises UsageError for a label that is none.
    """
    check_project(project)
    names = ShownNames(project, redact)
    drafts, others = [], {}
    for finding in job.findings:
        key = key_of(project, identity_of(finding))
        if finding.step_saving_ns is None or not finding.step_saving_ns.mid:
            others[key] = "too small"
            continue
        figures = Figures(finding.step_saving_ns.mid, job.step_ns.mid, "step")
        title = f"{finding.title}: −{percent_text(figures.saving_ns, figures.measured_ns)} of the job's step"
        said = names.blocks(tuple(_blocks(finding, job, redact)), frozenset())
        mark = TicketMark(key, (), figures, redacted=redact)
        drafts.append(TicketDraft(mark, names.text(title, frozenset()), said, **({"filing": filing} if filing else {})))
    return TicketsAsked(project, redact, tuple(drafts), others)


def identity_of(finding: JobFinding) -> str:
    """Return what a job's finding is found again by: its rule, and its rank where it is one's own.

    >>> one = JobFinding(rule="slow_link", cause="", title="", ranks=(0, 1), step_saving_ns=None, evidence="measured")
    >>> len(identity_of(one))
    16
    """
    own = str(finding.ranks[0]) if len(finding.ranks) == 1 else ""
    return hashlib.sha256(f"job {finding.rule} {own}".encode()).hexdigest()[:16]


def _blocks(finding: JobFinding, job: Job, redact: bool) -> Iterator[Block]:
    saving = finding.step_saving_ns
    if saving is not None:
        ends = range_text(saving.low, saving.high)
        of = f"of a step of {time_text(job.step_ns.mid)} without the profiler"
        yield Paragraph((Strong(f"Saves {time_text(saving.mid)}"), Text(f" ({ends}) {of}.")))
    size = job.world_size or len(job.ranks)
    yield Paragraph(
        (
            Strong("Ranks:"),
            Text(f" {named(finding.ranks, _MOST_RANKS)} of {size}; {len(job.ranks)} of them are recorded."),
        )
    )
    facts = finding.facts[:1] if redact else finding.facts
    if facts:
        yield Bullets(tuple((Text(fact),) for fact in facts))
    begin, rest = fix_blocks(finding.fix)
    yield from led("Fix", *begin, *rest)
    yield how_to_check(files=("before/", "after/"))
