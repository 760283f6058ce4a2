"""The report over a fleet for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from rich import box
from rich.table import Table
from rich.text import Text

from tracemine.report.escape import line, shorten
from tracemine.report.paragraphs import console_for
from tracemine.units import bytes_text, count_text, time_text

if TYPE_CHECKING:
    from rich.console import Console

    from tracemine.fleet.report import CauseCost, FleetReport, FleetTotals, Gone, GroupShare, JobChange
    from tracemine.report import Drawing

_LONGEST = 160
_WIDE = 100  # columns, from which on the job in which a cause costs most has its own
_DIM = "dim"


def render(report: FleetReport, out: TextIO, options: Drawing) -> None:
    """Write the report: causes, the groups asked for, what recurs, what is gone, predictions, and what failed."""
    console = console_for(out, options)
    totals = report.totals
    console.print(Text(f"{count_text(totals.jobs, 'job')}, {count_text(totals.traces, 'trace')}", "bold"), end="")
    console.print(
        Text(f" · {count_text(totals.days, 'day')} · {bytes_text(totals.content_bytes)} · {line(report.dataset)}")
    )
    console.print(Text(hours_text(report), _DIM))
    console.print(Text(_together(report)))
    _causes(console, report)
    for name, groups in report.groups.items():
        _groups(console, name, groups)
    _recurring(console, report)
    _gone(console, report.gone)
    _changes(console, report.changes)
    _predictions(console, report)
    _failures(console, report)


def _together(report: FleetReport) -> str:
    found = report.together
    ends = f"{found.gpu_hours_low:,.1f}–{found.gpu_hours_high:,.1f}"
    money = f": {found.cost:,.2f} at {report.price:,.2f} each" if found.cost is not None else ""
    return f"All fixes together save {found.gpu_hours:,.1f} ({ends}){money}"


def hours_text(report: FleetReport) -> str:
    """Say what GPU-hours are of.

    Where they were not given, they are assumed, and spread evenly.
    """
    totals = report.totals
    said = f"of {totals.gpu_hours:,.0f} GPU-hours" + (
        ", spread evenly over the jobs (--hours says how many)" * totals.assumed
    )
    left = [
        f"{count:,} {what}"
        for count, what in (
            (totals.duplicates, "with the content of another, not counted"),
            (totals.without_steps, "without steps: shares are of their span"),
        )
        if count
    ]
    return "; ".join([said, *left])


def not_counted(totals: FleetTotals) -> int:
    """Return how many traces say nothing of their job."""
    return totals.not_scanned + totals.without_activities


def _table(*columns: tuple[str, bool]) -> Table:
    """Return an empty table. columns: names, and whether numbers stand in it.

    Texts are folded, so that a name can be copied whole; what names a finding stands on one line.
    """
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name, is_number in columns:
        made.add_column(
            name, justify="right" if is_number else "left", no_wrap=is_number or name == "finding", overflow="fold"
        )
    return made


def _draw(console: Console, title: str, table: Table, rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        table.add_row(*(Text(shorten(line(cell), _LONGEST)) for cell in row))
    if table.row_count:
        console.print()
        console.print(Text(title, "bold"))
        console.print(table)


def _causes(console: Console, report: FleetReport) -> None:
    head = [("GPU-hours", True), ("interval", True)]
    head += [("money", True)] if report.price is not None else []
    head += [("cause", False), ("jobs", True)] + [("most in", False)] * (console.width >= _WIDE)
    table = _table(*head, ("finding", False))
    rows = (_cause(cause, console.width >= _WIDE) for cause in report.causes)
    _draw(console, "What costs most: GPU-hours that fixes save", table, rows)
    if not report.causes:
        console.print(Text("Nothing worth fixing was found."))


def _cause(one: CauseCost, is_wide: bool) -> list[str]:
    money = [] if one.cost is None else [f"{one.cost:,.2f}"]
    interval = f"{one.gpu_hours_low:,.1f}–{one.gpu_hours_high:,.1f}"
    worst = [one.worst_job] if is_wide else []
    return [f"{one.gpu_hours:,.1f}", interval, *money, one.rule, f"{one.jobs:,}", *worst, one.fingerprint]


def _groups(console: Console, name: str, groups: Sequence[GroupShare]) -> None:
    table = _table((name, False), ("traces", True), ("fixes save", True), ("largest", False))
    rows = ([one.name or "not known", f"{one.traces:,}", f"{one.share:.1%}", one.largest] for one in groups)
    _draw(console, f"By {name}", table, rows)


def _recurring(console: Console, report: FleetReport) -> None:
    table = _table(("jobs", True), ("GPU-hours", True), ("finding", False), ("what", False))
    rows = ([f"{one.jobs:,}", f"{one.gpu_hours:,.1f}", one.fingerprint, one.title] for one in report.recurring)
    _draw(console, "The same finding in several jobs", table, rows)


def _gone(console: Console, gone: Sequence[Gone]) -> None:
    table = _table(
        ("job", False),
        ("cause", False),
        ("finding", False),
        ("last seen", False),
        ("would save", True),
        ("step", False),
    )
    rows = ([one.job, one.rule, one.fingerprint, one.last_day, _time(one.said_ns), _step(one)] for one in gone)
    _draw(console, "Gone since (fixed, or not recorded any more)", table, rows)


def _changes(console: Console, changes: Sequence[JobChange]) -> None:
    table = _table(("job", False), ("days", False), ("gone", True), ("predicted", True), ("step got shorter by", True))
    rows = (
        [
            one.job,
            f"{one.last_day} → {one.next_day}",
            f"{one.findings:,}",
            time_text(one.said_ns),
            time_text(one.step_before_ns - one.step_after_ns),
        ]
        for one in changes
    )
    _draw(console, "Predicted and measured, where findings are gone", table, rows)


def _step(one: Gone) -> str:
    if one.step_before_ns is None or one.step_after_ns is None:
        return "not known"
    return f"{time_text(one.step_before_ns)} → {time_text(one.step_after_ns)}"


def _time(ns: int | None) -> str:
    return "not known" if ns is None else time_text(ns)


def _predictions(console: Console, report: FleetReport) -> None:
    found = report.predictions
    if not found.count:
        return
    error = "not known" if found.mean_error is None else f"{found.mean_error:.1%}"
    console.print()
    console.print(Text(
        f"Verified: {count_text(found.count, 'finding')} timed, {error} off in the mean; {found.refuted:,} refuted"
    ))  # fmt: skip


def _failures(console: Console, report: FleetReport) -> None:
    table = _table(("traces", True), ("status", False), ("why", False), ("such as", False))
    rows = ([f"{one.traces:,}", one.status, one.message, one.example] for one in report.failures)
    _draw(console, f"Not counted: {not_counted(report.totals):,}", table, rows)
