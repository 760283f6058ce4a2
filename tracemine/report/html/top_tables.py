"""Where the time goes, as tables of a page, with the findings that say something of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracemine.report.escape import line, shorten
from tracemine.report.html.tables import Cell, Table, number_cell
from tracemine.report.top import foot, rates
from tracemine.report.top_lines import amount, often, percent, unit_of
from tracemine.top import By, Top, TopRow
from tracemine.units import count_text, time_text

LEAST_SHARE = 0.001  # of GPU time: a row with less is counted alone
MOST_ROWS = 400
LONGEST_NAME, _LONGEST_WHOLE = 90, 400
_MOST_CLAIMS = 3
TITLES: Mapping[By, str] = {
    "kernel": "Kernels", "operator": "Operators", "module": "Modules", "line": "Lines", "phase": "Phases"
}  # fmt: skip
_WITH_MEAN = ("kernel", "operator")


def top_tables(tops: Mapping[str, Top], anchors: Mapping[str, tuple[str, str]]) -> Iterator[Table]:
    """Yield the tables that a page has. anchors: of a finding's fingerprint, and what the link to it is called."""
    yield from (top_table(tops[by], anchors) for by in TITLES if by in tops)


def top_table(top: Top, anchors: Mapping[str, tuple[str, str]]) -> Table:
    """Return one table; columns in which nothing stands are left out."""
    unit_ns, unit = unit_of(top.gpu_time_ns / top.steps)
    rows = [row for row in top.rows if row.share >= LEAST_SHARE][:MOST_ROWS]
    heads = _heads(unit, top)
    cells = [_cells(row, top, unit_ns, anchors) for row in rows]
    used = [at for at in range(len(heads)) if any(row[at].text or row[at].links for row in cells)]
    each = "per step, as recorded" if top.per == "step" else "in all that was recorded"
    return Table(
        id=f"by-{top.by}",
        title=TITLES.get(top.by, top.by),  # type: ignore[call-overload]
        says=f"{time_text(top.gpu_time_ns / top.steps)} of GPU time {each}",
        columns=((top.by, False), *(heads[at] for at in used)),
        rows=tuple((_name(row), *(one[at] for at in used)) for row, one in zip(rows, cells, strict=True)),
        depths=tuple(row.depth for row in rows) if any(row.depth for row in rows) else (),
        notes=(*_left_out(top, len(rows)), *foot(top)),
    )


def _heads(unit: str, top: Top) -> list[tuple[str, bool]]:
    """Return titles of columns, and whether numbers stand in them."""
    return [
        (f"{unit} per step" if top.per == "step" else unit, True), ("share", True), ("calls", True),
        (f"{unit} per call", True), (f"{unit} busy", True), ("TFLOP/s", True), ("GB/s", True), ("finding", False),
    ]  # fmt: skip


def _left_out(top: Top, shown: int) -> Iterator[str]:
    if left := len(top.rows) - shown:
        yield f"{count_text(left, 'row')} more: tracemine top FILE --by {top.by} --all"


def kernel_text(name: str | None) -> str:
    """Return the name of a row as its table says it.

    >>> kernel_text(None), kernel_text("vectorized_elementwise_kernel (mul)")
    ('not known', 'vectorized_elementwise (mul)')
    """
    return "not known" if name is None else line(name, _LONGEST_WHOLE).replace("_kernel (", " (")


def _name(row: TopRow) -> Cell:
    whole = kernel_text(row.name)
    often = f" ×{row.instances}" if row.instances > 1 else ""
    cut = shorten(whole, LONGEST_NAME)
    return Cell(f"{cut}{often}", whole, whole="" if cut == whole else whole)


def _cells(row: TopRow, top: Top, unit_ns: int, anchors: Mapping[str, tuple[str, str]]) -> tuple[Cell, ...]:
    time, calls = row.gpu_time_ns / top.steps, row.calls / top.steps
    mean = row.gpu_time_ns / max(row.calls, 1) / unit_ns
    flops, moved = (" ".join(rate.split()) for rate in rates(row))
    busy = None if row.busy_ns is None else row.busy_ns / top.steps
    return (
        number_cell(time, amount(time / unit_ns)),
        Cell(percent(row.share), str(row.share), bar=round(100 * min(row.share, 1), 1)),
        number_cell(calls, often(calls)),
        number_cell(mean, amount(mean, small=unit_ns > 1_000) if top.by in _WITH_MEAN else ""),
        number_cell(busy or 0, "" if busy is None else amount(busy / unit_ns)),
        number_cell(row.flops_per_s or 0, flops),
        number_cell(row.bytes_per_s or 0, moved),
        _claims(row, anchors),
    )


def _claims(row: TopRow, anchors: Mapping[str, tuple[str, str]]) -> Cell:
    """Return links to the findings that say something of a row, with their share of it where that is not all."""
    known = [(one, *anchors[one.fingerprint]) for one in row.findings if one.fingerprint in anchors]
    links = tuple(
        (anchor, name if (part := one.gpu_time_ns / row.gpu_time_ns) == 1 else f"{name}: {percent(part)}")
        for one, anchor, name in known[:_MOST_CLAIMS]
    )
    return Cell("…" if len(known) > _MOST_CLAIMS else "", links[0][1] if links else "~", links=links)
