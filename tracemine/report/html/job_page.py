"""A job of many ranks as one HTML file: who is late in which step, the last step rank by rank, and what links reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from tracemine.documents.finding import rule_lines
from tracemine.findings.record import Range
from tracemine.ranks.record import named
from tracemine.report.html import page_text
from tracemine.report.html.figures import interval
from tracemine.report.html.tables import Cell, Table, number_cell, text_cell
from tracemine.report.job import HEADS, head, nothing_found, saves
from tracemine.report.picture import trace_name
from tracemine.units import count_text, percent_text, time_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.ranks.picture import DrawnRank, JobPicture
    from tracemine.ranks.record import Job, JobFinding, JobGroup

_MOST_RANKS = 128  # drawn; of more those that stand out
_LEFT, _CELL, _ROW, _WIDTH, _STRIP = 90, 56, 16, 1000, 22
# Own time as a share of the role's median, up to which a cell has a colour, and what it says in letters.
_SHADES = ((0.9, "fast"), (0.97, "rather fast"), (1.03, "usual"), (1.1, "rather slow"), (1.3, "slow"))
_SLOWEST = "very slow"
_COLOURS = ("#2166ac", "#92c5de", "#e8e8e8", "#fddbc7", "#ef8a62", "#b2182b")  # colour-blind readers see them differ


def render(job: Job, picture: JobPicture) -> str:
    """Return the page."""
    return page_text("job.html", ("page.js",), page=page(job, picture))


def page(job: Job, picture: JobPicture) -> SimpleNamespace:
    """Return what the page says."""
    first, about = head(job)
    drawn = _drawn(job, picture)
    steps = min((len(rank.own_ns) for rank in drawn), default=0)
    most = max((finding.step_saving_ns.high for finding in job.findings if finding.step_saving_ns), default=0)
    return SimpleNamespace(
        version=__version__,
        name=trace_name(job.name),
        headline=first,
        about=about,
        findings=tuple(_found(number, finding, job, most) for number, finding in enumerate(job.findings, 1)),
        heat=tuple(_heat(drawn, picture, steps)),
        rows=tuple((at * _ROW + _ROW // 2 + 4, f"rank {rank.rank}") for at, rank in enumerate(drawn)),
        steps=steps,
        shades=tuple(zip(_COLOURS, (*(name for _, name in _SHADES), _SLOWEST), strict=True)),
        strips=tuple(_strip(at, rank, picture.span_ns) for at, rank in enumerate(drawn)),
        size=(_LEFT + _WIDTH, len(drawn) * _STRIP + 4, len(drawn) * _ROW + 4),
        span=time_text(picture.span_ns),
        left_out=len(picture.ranks) - len(drawn),
        tables=(_ranks(job), *([_links(job.groups)] if job.groups else [])),
        notes=job.notes,
        nothing=nothing_found(job),  # where there are no findings
    )


def _drawn(job: Job, picture: JobPicture) -> list[DrawnRank]:
    """Return the ranks that are drawn, by role: of very many those that are named or differ most from their median."""
    named = {rank for finding in job.findings if len(finding.ranks) == 1 for rank in finding.ranks}
    usual = _medians(picture)

    def stands_out(rank: DrawnRank) -> float:
        return float("inf") if rank.rank in named else abs(sum(rank.own_ns) / max(float(usual[rank.role].sum()), 1) - 1)

    chosen = sorted(picture.ranks, key=stands_out, reverse=True)[:_MOST_RANKS]
    return sorted(chosen, key=lambda rank: (rank.role, rank.rank))


def _medians(picture: JobPicture) -> dict[int, np.ndarray]:
    """Return of each role the median of its ranks' own time in each step."""
    found = {}
    for role in {rank.role for rank in picture.ranks}:
        same = [rank.own_ns for rank in picture.ranks if rank.role == role]
        steps = min(map(len, same))
        found[role] = np.median([own[:steps] for own in same], axis=0)
    return found


def _heat(drawn: Sequence[DrawnRank], picture: JobPicture, steps: int) -> Iterator[SimpleNamespace]:
    usual = _medians(picture)
    for at, rank in enumerate(drawn):
        for step in range(steps):
            of, own = max(float(usual[rank.role][step]), 1.0), rank.own_ns[step]
            shade = next((n for n, (most, _) in enumerate(_SHADES) if own / of <= most), len(_SHADES))
            says = (
                f"rank {rank.rank}, step {step + 1}: {time_text(own)} of its own, {percent_text(own, of)} of the median"
            )
            yield SimpleNamespace(x=_LEFT + step * _CELL, y=at * _ROW, colour=_COLOURS[shade], says=says)


def _strip(at: int, rank: DrawnRank, span_ns: int) -> SimpleNamespace:
    def place(ns: int) -> float:
        return round(_LEFT + _WIDTH * min(max(ns / max(span_ns, 1), 0.0), 1.0), 1)

    def path(spans: Sequence[tuple[int, int]]) -> str:
        boxes = [(place(begin), round(place(end) - place(begin), 1)) for begin, end in spans if end > begin]
        return "".join(f"M{x:g} 0h{width:g}v1h-{width:g}z" for x, width in boxes if width > 0)

    waits = [(collective.begin_ns, collective.waits_until_ns) for collective in rank.collectives]
    sends = [(collective.waits_until_ns, collective.end_ns) for collective in rank.collectives]
    bound = [] if rank.bound_ns is None else [(rank.begin_ns - rank.bound_ns, rank.begin_ns + rank.bound_ns)]
    total = sum(end - begin for begin, end in waits)
    off = "" if rank.bound_ns is None else f"; its clock is known to {time_text(rank.bound_ns)}"
    says = f"rank {rank.rank} waits {time_text(total)} of {time_text(rank.end_ns - rank.begin_ns)}{off}"
    return SimpleNamespace(
        name=f"rank {rank.rank}",
        y=at * _STRIP,
        computing=path(rank.computing_ns),
        waiting=path(waits),
        transferring=path(sends),
        bound=path(bound),  # by which its clock may be off, drawn
        says=says,
    )


def _found(number: int, finding: JobFinding, job: Job, most_ns: int) -> SimpleNamespace:
    saving = finding.step_saving_ns
    figure = None if saving is None else interval(Range(saving.low, saving.mid, saving.high), most_ns)
    return SimpleNamespace(
        anchor=f"finding-{number}",
        title=finding.title,
        saves=" ".join(saves(finding, job)),
        figure=figure,
        facts=finding.facts,
        fix=tuple(rule_lines(finding.fix)),
    )


def _ranks(job: Job) -> Table:
    columns = (("rank", True), *((name, True) for name, _ in HEADS), ("file", False))
    rows = tuple(
        (
            number_cell(rank.rank),
            *(number_cell(getattr(rank, name), time_text(getattr(rank, name))) for _, name in HEADS),
            text_cell(rank.file),
        )
        for rank in job.ranks
    )
    says = "A step of each, as recorded; exposed: it communicates, and computes nothing meanwhile"
    return Table("ranks", "Ranks", says, columns, rows)


def _links(groups: Sequence[JobGroup]) -> Table:
    """Return what each kind of collective reaches in each group: a row a group, and next to it the largest of all."""
    most = max((group.bus_gb_per_s or 0.0 for group in groups), default=0.0)
    columns = (
        ("ranks", False), ("group", False), ("collective", False), ("GB/s of the bus", True), ("", True),
        ("a step", True), ("bytes", True), ("each takes", True), ("exposed", True), ("waits", True),
    )  # fmt: skip
    rows = tuple(
        (
            text_cell(named(one.ranks, 8)), text_cell(one.description or ""), text_cell(one.kind, code=True),
            number_cell(one.bus_gb_per_s or 0, "" if one.bus_gb_per_s is None else f"{one.bus_gb_per_s:.0f}"),
            Cell("", str(one.bus_gb_per_s or 0), bar=round(100 * (one.bus_gb_per_s or 0) / max(most, 1e-9), 1)),
            number_cell(one.count, f"{one.count:g}"), number_cell(one.bytes or 0, f"{(one.bytes or 0) / 1e6:,.1f} MB"),
            *(number_cell(ns, time_text(ns)) for ns in (one.transfer_ns, one.exposed_ns, one.wait_ns)),
        )
        for one in groups
    )  # fmt: skip
    says = f"{count_text(len(groups), 'kind')} of collectives and groups: the best decile of what they reach"
    return Table("links", "Links", says, columns, rows)
