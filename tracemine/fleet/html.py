"""The report over a fleet as one HTML file, of the frame, style and script of a scan's: it needs no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO

from tracemine.fleet.text import hours_text, not_counted
from tracemine.report.html import page_text
from tracemine.report.html.figures import IntervalFigure
from tracemine.report.html.tables import Cell, Table, number_cell, text_cell
from tracemine.units import bytes_text, count_text, time_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.fleet.report import CauseCost, DayShare, FleetReport, Gone, GroupShare, JobChange

_UNITS = 200  # of an interval's view box
_MOST_RULES, _MOST_DAYS = 6, 60  # of the figure over days
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 240, 50, 12, 30
_OTHERS = "other causes"
_NOT_KNOWN = "not known"


def render(report: FleetReport, out: TextIO) -> None:
    """Write the page."""
    out.write(page_text("fleet.html", ("page.js",), page=page(report)))


def page(report: FleetReport) -> SimpleNamespace:
    """Return what the page says."""
    totals = report.totals
    read = f"{count_text(totals.days, 'day')} · {bytes_text(totals.content_bytes)} · {report.dataset}"
    tables = (_recurring(report), _gone(report.gone), _changes(report.changes), _failures(report))
    return SimpleNamespace(
        version=__version__,
        name=f"{count_text(totals.jobs, 'job')}, {count_text(totals.traces, 'trace')}",
        read=read,
        hours=hours_text(report),
        cards=tuple(_cards(report)),  # what, of what, and below it
        causes=_causes(report) if report.causes else None,
        days=days_figure(report.days) if len({one.day for one in report.days}) > 1 else None,
        groups=tuple(_groups(name, groups) for name, groups in report.groups.items() if _says_more(groups)),
        rest=tuple(table for table in tables if table.rows),
    )


def _says_more(groups: Sequence[GroupShare]) -> bool:
    """Return whether groups say more than that a name is not known."""
    return any(group.name for group in groups)


def hours_of(hours: float) -> str:
    """Return GPU-hours as a person reads them.

    >>> hours_of(1234.56), hours_of(0.0123), hours_of(0)
    ('1,235', '0.012', '0')
    """
    return f"{hours:,.0f}" if hours >= 100 or not hours else f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"


def _cards(report: FleetReport) -> Iterator[tuple[str, str, str]]:
    totals, together = report.totals, report.together
    share = f", {together.gpu_hours / totals.gpu_hours:.0%} of {hours_of(totals.gpu_hours)}" if totals.gpu_hours else ""
    ends = f"{hours_of(together.gpu_hours_low)} to {hours_of(together.gpu_hours_high)}{share}"
    yield hours_of(together.gpu_hours), "GPU-hours that all fixes save", ends
    if together.cost is not None and report.price is not None:
        yield f"{together.cost:,.0f}", "saved", f"at {report.price:,.2f} a GPU-hour"
    if report.recurring:
        most = max(one.jobs for one in report.recurring)
        yield f"{totals.recurring:,}", f"{_findings(totals.recurring)} in several jobs", f"in up to {most:,} jobs"
    if report.gone:
        yield f"{totals.gone:,}", f"{_findings(totals.gone)} gone", "fixed, or not recorded any more"
    if found := report.predictions.count:
        error = report.predictions.mean_error
        off = "not known how far off" if error is None else f"{error:.1%} off in the mean"
        yield f"{found:,}", "predictions timed", f"{off}; {report.predictions.refuted:,} refuted"
    if count := not_counted(totals):
        yield (
            f"{count:,}",
            f"{'trace' if count == 1 else 'traces'} not counted",
            "damaged, empty, too large or too slow",
        )


def _findings(count: int) -> str:
    return "finding" if count == 1 else "findings"


def _causes(report: FleetReport) -> Table:
    most = max(cause.gpu_hours_high for cause in report.causes)
    money = (("money", True),) if report.price is not None else ()
    columns = (("saves GPU-hours", True), *money, ("cause", False), ("jobs", True), ("most in", False))
    rows = tuple(_cause(cause, most) for cause in report.causes)
    says = "What fixing each cause saves over all jobs. A line is the interval, the dot its middle."
    return Table("causes", "What costs most", says, (*columns, ("finding", False)), rows)


def _cause(one: CauseCost, most: float) -> tuple[Cell, ...]:
    ends = f"{hours_of(one.gpu_hours_low)} to {hours_of(one.gpu_hours_high)}"
    low, mid, high = (
        round(_UNITS * min(hours / most, 1), 1) if most else 0.0
        for hours in (one.gpu_hours_low, one.gpu_hours, one.gpu_hours_high)
    )
    figure = IntervalFigure(low, mid, high, None, f"{hours_of(one.gpu_hours)} GPU-hours, from {ends}")
    money = () if one.cost is None else (number_cell(one.cost, f"{one.cost:,.0f}"),)
    return (
        Cell(f"{hours_of(one.gpu_hours)} ({ends})", str(one.gpu_hours), figure),
        *money,
        Cell(one.title, one.title, code=one.rule),
        number_cell(one.jobs),
        text_cell(one.worst_job),
        text_cell(one.fingerprint, code=True),
    )


def _groups(name: str, groups: Iterable[GroupShare]) -> Table:
    title = "GPU" if name == "gpu" else name
    columns = ((title, False), ("fixes save", True), ("traces", True))
    rows = tuple(
        (
            text_cell(one.name or _NOT_KNOWN),
            Cell(f"{one.share:.1%}", str(one.share), bar=round(100 * min(one.share, 1), 1)),
            number_cell(one.traces),
            text_cell(one.largest, code=True),
        )
        for one in groups
    )
    says = "Which part of the steps all fixes save, the mean over the traces; and the largest cause."
    return Table(f"by-{name}", f"By {title}", says, (*columns, ("largest", False)), rows)


def _recurring(report: FleetReport) -> Table:
    columns = (("jobs", True), ("saves GPU-hours", True), ("what", False), ("finding", False))
    rows = tuple(
        (number_cell(one.jobs), number_cell(one.gpu_hours, hours_of(one.gpu_hours)),
         Cell(one.title, one.title, code=one.rule), text_cell(one.fingerprint, code=True))
        for one in report.recurring
    )  # fmt: skip
    return Table("recurring", "The same finding in several jobs", "One fix for several teams.", columns, rows)


def _gone(gone: Iterable[Gone]) -> Table:
    columns = (("job", False), ("cause", False), ("last seen", False), ("would save a step", True), ("finding", False))
    rows = tuple(
        (text_cell(one.job), text_cell(one.rule, code=True), text_cell(one.last_day),
         Cell(_NOT_KNOWN, "0") if one.said_ns is None else number_cell(one.said_ns, time_text(one.said_ns)),
         text_cell(one.fingerprint, code=True))
        for one in gone
    )  # fmt: skip
    says = "A job had it and has it no more: it is fixed, or a recording lacks what shows it."
    return Table("gone", "What is gone", says, columns, rows)


def _changes(changes: Iterable[JobChange]) -> Table:
    columns = (("job", False), ("days", False), ("gone", True), ("predicted", True))
    rows = tuple(
        (
            text_cell(one.job),
            text_cell(f"{one.last_day} → {one.next_day}"),
            number_cell(one.findings),
            number_cell(one.said_ns, time_text(one.said_ns)),
            number_cell(lost := one.step_before_ns - one.step_after_ns, time_text(lost)),
            text_cell(f"{time_text(one.step_before_ns)} → {time_text(one.step_after_ns)}"),
        )
        for one in changes
    )
    says = (
        "What a job's findings that are gone were predicted to save, and what its step saved until the next day. "
        "Whatever else changed meanwhile is in it too; `tracemine diff` compares two recordings."
    )
    more = (("step got shorter by", True), ("step", False))
    return Table("changes", "Predicted and measured", says, (*columns, *more), rows)


def _failures(report: FleetReport) -> Table:
    columns = (("traces", True), ("status", False), ("why", False), ("such as", False))
    rows = tuple(
        (number_cell(one.traces), text_cell(one.status), text_cell(one.message), text_cell(one.example, code=True))
        for one in report.failures
    )
    return Table("failures", f"Not counted: {not_counted(report.totals):,}", "", columns, rows)


def days_figure(given: Sequence[DayShare]) -> SimpleNamespace:
    """Return the bars of the last days: the causes that cost most one above the other, the largest below."""
    total = defaultdict[str, float](float)
    for one in given:
        total[one.rule] += one.share
    total.pop("", None)  # of days on which nothing was found
    names = tuple(sorted(total, key=lambda rule: (-total[rule], rule))[:_MOST_RULES])
    days = [(day, list(ones)) for day, ones in groupby(given, key=lambda one: one.day)]
    kept = days[-_MOST_DAYS:]
    most = max(0.01, *(sum(one.share for one in ones) for _, ones in kept))
    step = (_WIDTH - _LEFT) / len(kept)
    every = -(-len(kept) * 80 // (_WIDTH - _LEFT))  # a label is 80 wide
    legend = (*names, _OTHERS) if len(total) > len(names) else names
    bars = []
    for number, (day, ones) in enumerate(kept):
        shares = dict.fromkeys(legend, 0.0)
        for one in ones:
            if one.rule:
                shares[one.rule if one.rule in shares else _OTHERS] += one.share
        x, label = round(_LEFT + number * step + step * 0.1, 1), "" if number % every else day
        cells = (f"{ones[0].traces:,}", *(f"{share:.1%}" for share in shares.values()))
        bars.append(
            SimpleNamespace(
                name=day,
                label=label,  # below the bar; "": there is no room
                x=x,
                width=round(min(step * 0.8, 80), 1),
                pieces=tuple(_pieces(day, shares, most)),
                cells=cells,
            )
        )
    ticks = tuple((_y(most * part / 4, most), f"{most * part / 4:.0%}") for part in range(5))
    return SimpleNamespace(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        bottom=_HEIGHT - _BOTTOM,
        ticks=ticks,  # lines of the grid: where, and what they say
        names=legend,  # of causes, by colour
        days=tuple(bars),
        left_out=len(days) - len(kept),
    )


def _pieces(day: str, shares: Mapping[str, float], most: float) -> Iterator[SimpleNamespace]:
    below = 0.0
    for colour, (name, share) in enumerate(shares.items()):
        y = _y(below + share, most)
        if share:
            yield SimpleNamespace(
                colour=colour, y=y, height=round(_y(below, most) - y, 1), says=f"{day}: {name} {share:.1%}"
            )
        below += share


def _y(share: float, most: float) -> float:
    return round(_TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - share / most), 1)
