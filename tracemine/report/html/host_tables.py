"""What the host does, as tables of a page: its time as a tree, its waits for the device, loops that findings are in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tracemine.findings.record import Finding, Loop
from tracemine.report.escape import shorten
from tracemine.report.host_top import COLUMNS, WINDOWS
from tracemine.report.html.tables import Cell, Table, number_cell
from tracemine.report.html.top_tables import LEAST_SHARE, LONGEST_NAME, MOST_ROWS, kernel_text
from tracemine.report.top_lines import amount, often, percent, unit_of
from tracemine.report.waits import KINDS, USES
from tracemine.top import HostRow, HostTop, WaitRow, WaitTop
from tracemine.units import count_text, time_text

if TYPE_CHECKING:
    from tracemine.report.picture import Picture

_DEPENDS: Final[Mapping[str, str]] = {
    "independent": "not on each other",
    "accumulates": "add to a sum",
    "carried": "on the one before",
}


def host_tables(
    picture: Picture | None, findings: Sequence[Finding], anchors: Mapping[str, tuple[str, str]]
) -> Iterator[Table]:
    """Yield the tables in which something stands. anchors: as those of `top_tables`."""
    tops = None if picture is None else picture.asked
    if tops is not None:
        host, waits = tops.host("tree"), tops.waits()
        yield from (_tree(host),) if host.rows else ()
        yield from (_waits(waits),) if waits.rows else ()
    if any(finding.loop is not None for finding in findings):
        yield _loops(findings, anchors)


def _per(per: str, window: str = "whole") -> str:
    return f"per step, {WINDOWS[window]}" if per == "step" else "in all that was recorded"


def _tree(top: HostTop) -> Table:
    unit_ns, unit = unit_of(top.host_ns / top.steps)
    rows = [row for row in top.rows if row.share >= LEAST_SHARE][:MOST_ROWS]
    sums = {title: name for title, name in COLUMNS.items() if any(getattr(row, name) for row in rows)}
    left = len(top.rows) - len(rows)
    more = f"{count_text(left, 'row')} more: tracemine top FILE --host --by tree --all"
    return Table(
        id="host-tree",
        title="Time",
        says=f"{time_text(top.host_ns / top.steps)} of host time {_per(top.per, top.window)}; critical: "
        "while no device was at work and waited for the next launch",
        columns=(("module, line, work", False), (unit, True), ("share", True), *((title, True) for title in sums)),
        rows=tuple((_name(row.name, row.instances), *_times(row, top, unit_ns, sums.values())) for row in rows),
        depths=tuple(row.depth for row in rows),
        notes=(*((more,) if left else ()), *top.notes),
    )


def _name(name: str | None, instances: int = 1) -> Cell:
    whole = kernel_text(name)
    cut = shorten(whole, LONGEST_NAME)
    return Cell(f"{cut} ×{instances}" if instances > 1 else cut, whole, whole="" if cut == whole else whole)


def _times(row: HostRow, top: HostTop, unit_ns: int, sums: Collection[str]) -> Iterator[Cell]:
    spent = row.host_ns / top.steps
    yield number_cell(spent, amount(spent / unit_ns))
    yield Cell(percent(row.share), str(row.share), bar=round(100 * min(row.share, 1), 1))
    for name in sums:
        of_kind = getattr(row, name) / top.steps
        yield number_cell(of_kind, amount(of_kind / unit_ns) if of_kind else "")


def _waits(top: WaitTop) -> Table:
    heads = (("saves", True), ("up to", True), ("waits", True), ("waiting", True), ("what", False), ("for", False))
    return Table(
        id="host-waits",
        title="Waits for the device",
        says=f"{time_text(top.wait_ns / top.steps)} {_per(top.per, top.window)}; saves: how much shorter a step is "
        "unprofiled without it, where those that save more are gone",
        columns=(("line", False), *heads),
        rows=tuple((_name(row.line or row.operator), *_wait(row, top.steps)) for row in top.rows[:MOST_ROWS]),
    )


def _wait(row: WaitRow, steps: int) -> Iterator[Cell]:
    for end in ("mid", "high"):
        saved = 0 if row.saving_ns is None else getattr(row.saving_ns, end) / steps
        yield number_cell(saved, "–" if row.saving_ns is None else time_text(saved))
    yield number_cell(row.waits / steps, often(row.waits / steps))
    yield number_cell(row.wait_ns / steps, time_text(row.wait_ns / steps))
    yield from (Cell(text, text) for text in (KINDS[row.kind], USES[row.use]))


def _loops(findings: Sequence[Finding], anchors: Mapping[str, tuple[str, str]]) -> Table:
    found: dict[Loop, list[tuple[str, str]]] = {}
    for finding in findings:
        if finding.loop is not None:
            found.setdefault(finding.loop, []).extend(filter(None, [anchors.get(finding.fingerprint)]))
    loops = sorted(found.items(), key=lambda each: -each[0].turns * each[0].host_ns)
    heads = ("iterations", "host each", "GPU each", "launches each")
    return Table(
        id="host-loops",
        title="Loops",
        says="Loops in Python that findings lie in: one run of each, as recorded",
        columns=(
            ("loop in", False),
            *((head, True) for head in heads),
            ("iterations depend", False),
            ("finding", False),
        ),
        rows=tuple(
            (*_loop(loop), Cell("", links[0][1] if links else "~", links=tuple(links))) for loop, links in loops
        ),
    )


def _loop(loop: Loop) -> Iterator[Cell]:
    source = loop.source
    yield _name(None if source is None else f"{source.file}:{source.line} {source.function}")
    yield number_cell(loop.turns)
    yield from (number_cell(time, time_text(time)) for time in (loop.host_ns, loop.gpu_ns))
    yield number_cell(loop.launches)
    parts = [_DEPENDS.get(loop.dependence, loop.dependence)]
    parts += ["sizes differ"] * loop.sizes_differ + ["each waits for the device"] * loop.waits
    text = ", ".join(parts)
    yield Cell(text, text)
