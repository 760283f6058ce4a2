"""A difference as one HTML file: both steps as bars on one scale, findings, and kernels side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, TextIO

from tracemine.documents.screen import first_screen
from tracemine.report import diff_words as words
from tracemine.report.escape import line, shorten
from tracemine.report.html import page_text
from tracemine.report.html.data import MOST_ACTIVITIES, not_drawn, trace_json
from tracemine.report.html.figures import bar
from tracemine.report.html.tables import Cell, Table, number_cell, text_cell
from tracemine.report.html.top_tables import LEAST_SHARE, TITLES, kernel_text
from tracemine.report.picture import trace_name
from tracemine.report.top_lines import amount, unit_of
from tracemine.units import count_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.comparison import Difference, FindingChange
    from tracemine.findings.record import Scan
    from tracemine.report import Drawing
    from tracemine.report.picture import Picture
    from tracemine.top import By, Top

_JOINED: tuple[By, ...] = ("kernel", "operator", "phase")  # tables whose rows are the same thing on both sides
_MOST_ROWS = 300
_LONGEST_NAME = 90
_MARKS = {"fixed": "better", "improved": "better", "new": "worse", "worse": "worse"}
_NO_TRACES = "Kernels stand side by side where both traces are at hand, not their findings alone."
_NO_TRACE = "Its trace is not at hand, only its findings."
_NO_STEPS = "Steps are known on one side alone: times of kernels do not compare."


def render(difference: Difference, out: TextIO, options: Drawing) -> None:
    """Write the page. Drawing.sides: what was scanned on both; none: the difference alone is drawn."""
    out.write(page_text("diff.html", ("page.js", "timeline.js", "diff.js"), page=page(difference, options.sides)))


def page(difference: Difference, sides: Sequence[tuple[Scan, Picture | None]]) -> SimpleNamespace:
    """Return what the page says."""
    changes = difference.changes
    tables, no_tables = _tables(difference, sides)
    if difference.by_class is not None:
        tables = (_by_class(difference), *tables)
    both = tuple(_sides(sides))
    step = "Step" if difference.per == "step" else "All that was recorded"
    return SimpleNamespace(
        version=__version__,
        name=" → ".join(trace_name(one.trace) for one in (difference.before, difference.after)),
        doubts=tuple(words.incomparable_texts(difference)),  # why nothing compares
        headline=f"{step}: {words.step_text(difference.step)} ({words.basis_text(difference)}); "
        f"GPU work: {words.step_text(difference.gpu_work)}",
        sides=both,
        drawn=any(side.trace_json for side in both),  # timelines, one at least
        counts=f"{words.counts_text(difference)}; times {words.per_text(difference)}",
        changed=_changes("changed", [one for one in changes if one.status != "same"]),
        same=_changes("same", [one for one in changes if one.status == "same"]),
        tables=tables,
        no_tables=no_tables,
        caveats=tuple(_caveats(difference)),
    )


def _sides(sides: Sequence[tuple[Scan, Picture | None]]) -> Iterator[SimpleNamespace]:
    longest = max((scan.summary.parts.ns for scan, _ in sides if scan.summary.parts is not None), default=0)
    room = MOST_ACTIVITIES
    for scan, picture in sides:
        why_not = _NO_TRACE if picture is None else not_drawn(picture.activities, room)
        room -= 0 if picture is None or why_not else len(picture.activities.start_ns)
        screen, parts = first_screen(scan), scan.summary.parts
        yield SimpleNamespace(
            name=(picture.name if picture is not None else "") or trace_name(scan.trace.path),
            headline=screen.doubts or screen.headline or " ".join(screen.nothing),
            about=screen.about,
            bar=None if parts is None else bar(parts, longest),  # on the scale of the longer step
            timeline=why_not,  # why it is not drawn; "": it is
            trace_json="" if picture is None or why_not else trace_json(picture),
        )


def _changes(id_: str, changes: Sequence[FindingChange]) -> Table:
    columns = (
        ("", False), ("before", True), ("after", True), ("change", True), ("finding", False), ("where", False),
        ("id", False),
    )  # fmt: skip
    return Table(id_, "Findings", "", columns, tuple(map(_change, changes)))


def _change(change: FindingChange) -> tuple[Cell, ...]:
    more = change.after_ns - change.before_ns
    says = ". ".join(filter(None, (change.title, change.reason, change.accepted and f"accepted: {change.accepted}")))
    return (
        Cell(change.status, change.status, mark=_MARKS.get(change.status, "")),
        *(number_cell(ns, words.cost_text(ns)) for ns in (change.before_ns, change.after_ns)),
        number_cell(more, words.signed(more)),
        text_cell(line(says, 600)),
        text_cell(line(words.where(change), 200)),
        text_cell(words.marks(change), code=True),
    )


def _by_class(difference: Difference) -> Table:
    columns = (("class", False), ("kernels", False), ("GPU time", False), ("change", False), ("fused", False))
    rows = tuple(tuple(map(text_cell, row)) for row in words.class_rows(difference))
    return Table("by-class", "By class", words.classes_text(difference), columns, rows)


def _tables(difference: Difference, sides: Sequence[tuple[Scan, Picture | None]]) -> tuple[tuple[Table, ...], str]:
    """Return tables of both sides, and why there are none."""
    if difference.incomparable:
        return (), ""
    tops = [picture.tops for _, picture in sides if picture is not None]
    if len(tops) < len(("before", "after")):
        return (), _NO_TRACES
    pairs = [(tops[0][by], tops[1][by]) for by in _JOINED if by in tops[0] and by in tops[1]]
    if any(before.per != after.per for before, after in pairs):
        return (), _NO_STEPS
    return tuple(kernel_table(before, after) for before, after in pairs), ""


def kernel_table(before: Top, after: Top) -> Table:
    """Return rows of both tables joined by their names: before, after and the difference, the largest change first."""
    times: dict[str, list[float]] = {}
    calls: dict[str, list[float]] = {}
    for at, top in enumerate((before, after)):
        for row in top.rows:
            if row.depth == 0:
                name = kernel_text(row.name)
                times.setdefault(name, [0, 0])[at] += row.gpu_time_ns / top.steps
                calls.setdefault(name, [0, 0])[at] += row.calls / top.steps
    whole = max(before.gpu_time_ns / before.steps, after.gpu_time_ns / after.steps)
    unit_ns, unit = unit_of(whole)
    names = [name for name, pair in times.items() if max(pair) >= LEAST_SHARE * whole]
    names.sort(key=lambda name: -abs(times[name][1] - times[name][0]))
    per = f"{unit} per step" if before.per == "step" else unit
    left = len(times) - len(names[:_MOST_ROWS])
    return Table(
        id=f"by-{before.by}",
        title=TITLES.get(before.by, before.by),  # type: ignore[call-overload]
        says="GPU time as recorded, and calls.",
        columns=(
            (before.by, False), (f"before, {per}", True), ("after", True), ("difference", True),
            ("calls before", True), ("calls after", True),
        ),
        rows=tuple(_joined(name, times[name], calls[name], unit_ns) for name in names[:_MOST_ROWS]),
        notes=(f"{count_text(left, 'row')} more, each below 0.1% of GPU time",) if left else (),
    )  # fmt: skip


def _joined(name: str, times: Sequence[float], calls: Sequence[float], unit_ns: int) -> tuple[Cell, ...]:
    more = times[1] - times[0]
    cut, said = shorten(name, _LONGEST_NAME), amount(abs(more) / unit_ns)
    sign = "" if not said.strip("0.,") else "+" if more > 0 else "−"
    return (
        Cell(cut, name, whole="" if cut == name else name),
        *(number_cell(ns, amount(ns / unit_ns) if ns else words.NO_COST) for ns in times),
        Cell(f"{sign}{said}", str(more), mark={"+": "worse", "−": "better"}.get(sign, "")),
        *(number_cell(count, f"{count:,.4g}" if count else words.NO_COST) for count in calls),
    )


def _caveats(difference: Difference) -> Iterator[tuple[str, str]]:
    yield "GPU work", words.step_text(difference.gpu_work)
    yield from words.facts(difference)
    yield "of", words.sides_text(difference)
    yield from (("note", note) for note in difference.notes)
