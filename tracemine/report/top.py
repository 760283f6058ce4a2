"""Where the time goes, as text of a screen and as rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tracemine.report.escape import line
from tracemine.report.top_lines import OWN, Shown, TableLine, about, amount, lines_of, often, percent, table, unit_of
from tracemine.top import Top, TopRow, Utilisation
from tracemine.units import count_text, percent_text, ratio_text, time_text

_CLAIMS = 2  # findings that a row names
_OVER = 1.05  # of what memory reaches
_WITH_MEAN = ("kernel", "operator")  # tables in which a call is one thing


def csv_rows(top: Top) -> Iterator[Sequence[object]]:
    """Yield a header and all rows, with the names that each is part of before its own."""
    names = [field for field in TopRow.__struct_fields__ if field not in ("findings", "name", "parent", "share")]
    yield top.by, "part_of", "share", *names, "per", "steps", "findings"
    for row in top.rows:
        claims = " ".join(f"{entry.fingerprint}:{entry.gpu_time_ns}" for entry in row.findings)
        inside = None if row.parent is None else top.rows[row.parent].name
        values = [getattr(row, name) for name in names]
        yield row.name, inside, row.share, *values, top.per, top.steps, claims


def render_text(top: Top, shown: Shown) -> str:
    """Return a table with what it is of above it, and what to know of it below."""
    lines = [*_head(top)]
    if top.rows:
        lines += ["", *_table(top, shown)]
    below = [*foot(top)]
    return "\n".join([*lines, *([""] if below else []), *below]) + "\n"


# --- above and below --------------------------------------------------------------------------------------------------


def _head(top: Top) -> Iterator[str]:
    if not top.rows:
        yield " · ".join(about(top))
        return
    each = "per step" if top.per == "step" else "in all that was recorded"
    yield " · ".join([*about(top), f"{time_text(top.gpu_time_ns / top.steps)} of GPU time {each}"])
    yield ", ".join(_times(top))


def _times(top: Top) -> Iterator[str]:
    """Yield how long it took: recorded, unprofiled, at work."""
    if top.untimed:
        yield f"{count_text(top.calls, 'call')}; when they ran was not recorded"
        return
    if top.per == "step":
        told = "" if top.steps_source == "marked" else f", inferred from {top.steps_source}"
        each = " each" if top.steps > 1 else ""
        yield f"{count_text(top.steps, 'step')}{told}: {time_text(top.recorded_ns)}{each} as recorded"
    else:
        yield f"{time_text(top.recorded_ns)} as recorded"
    if top.unprofiled_ns is not None:
        yield f"{time_text(top.unprofiled_ns)} unprofiled"
    busy = top.busy_ns / top.steps
    if top.devices > 1:
        yield f"{top.devices} devices, busy for {time_text(busy / top.devices)} each"
    else:
        yield f"busy for {time_text(busy)}" + (" of it" if busy <= top.recorded_ns else "")
    if top.overlap_ns:
        yield f"{time_text(top.overlap_ns / top.steps)} more beside other work"


def foot(top: Top) -> Iterator[str]:
    """Yield what to know of a table, a line each."""
    if top.utilisation is not None:
        yield _utilisation(top.utilisation)
    if any((row.bytes_reach or 0) > _OVER for row in top.rows):
        yield "above 100%: what it reads lay in the cache, or it moves less than its shapes say"
    for left in top.left_out:
        yield f"left out: {time_text(left.gpu_time_ns)} of {count_text(left.calls, 'activity')} {left.says} (--whole)"
    yield from (line(note) for note in top.notes)


def _utilisation(used: Utilisation) -> str:
    """Say how much of the peak is used."""
    shares = {"MFU": (used.mfu, used.unprofiled_mfu), "HFU": (used.hfu, used.unprofiled_hfu)}
    if used.mfu is not None and not used.recomputed_flops:
        del shares["HFU"]
    said = ", ".join(
        f"{name} {percent_text(share, 1)}" + ("" if alone is None else f" ({percent_text(alone, 1)} unprofiled)")
        for name, (share, alone) in shares.items()
        if share is not None
    )
    why = "" if used.mfu is not None else "; what is computed again cannot be told from the rest, so no MFU"
    return f"{said} of {used.peak}{why}"


# --- the table --------------------------------------------------------------------------------------------------------


def _table(top: Top, shown: Shown) -> Iterator[str]:
    lines = lines_of(top.rows, [row.gpu_time_ns for row in top.rows], shown)
    unit_ns, unit = unit_of(top.gpu_time_ns / top.steps)
    claims = [
        _claims(entry.row, unit_ns, top.steps) if entry.row is not None and entry.whole else "" for entry in lines
    ]
    yield from table(lines, _columns(lines, top, unit_ns, unit), top.by, shown.width, ("in finding", claims))


def _columns(lines: Sequence[TableLine[TopRow]], top: Top, unit_ns: int, unit: str) -> list[tuple[str, Sequence[str]]]:
    """Return titles and cells of the columns in which something stands."""
    times, shares, calls, means = zip(*(_numbers(entry, top, unit_ns, top.steps) for entry in lines), strict=True)
    flops, moved = zip(*(rates(entry.row) if entry.whole else ("", "") for entry in lines), strict=True)
    busy_ns = [None if entry.row is None else entry.row.busy_ns for entry in lines]
    busy = ["" if ns is None else amount(ns / top.steps / unit_ns) for ns in busy_ns]
    columns: dict[str, Sequence[str]] = {unit: times, "share": shares, "calls": calls, f"{unit}/call": means}
    if top.by not in _WITH_MEAN:
        del columns[f"{unit}/call"]
    columns |= {f"{unit} busy": busy, "TFLOP/s": flops, "GB/s": moved}
    return [(title, values) for title, values in columns.items() if any(values)]


def _numbers(entry: TableLine[TopRow], top: Top, unit_ns: int, steps: int) -> tuple[str, str, str, str]:
    time = amount(entry.spent_ns / steps / unit_ns)
    share = percent(entry.spent_ns / max(top.gpu_time_ns, 1))
    if entry.row is None or entry.name == OWN:
        return time, share, "", ""
    return (
        time,
        share,
        often(entry.row.calls / steps),
        amount(entry.spent_ns / entry.row.calls / unit_ns, small=unit_ns > 1_000),
    )


def rates(row: TopRow | None) -> tuple[str, str]:
    """Return what is computed and moved a second, and how much of what the device reaches that is."""
    if row is None:
        return "", ""
    found = []
    for rate, unit, reach in ((row.flops_per_s, 1e12, row.flops_reach), (row.bytes_per_s, 1e9, row.bytes_reach)):
        share = "    " if reach is None else f"{min(reach, 9.99):4.0%}"
        found.append("" if rate is None else f"{ratio_text(rate / unit)} {share}")
    return found[0], found[1]


def _claims(row: TopRow, unit_ns: int, steps: int) -> str:
    """Return the findings that say something of a row: one that says all of it by its number alone."""
    if not row.findings:
        return "–"
    if row.findings[0].gpu_time_ns == row.gpu_time_ns:
        return str(row.findings[0].rank)
    named = [f"{entry.rank}: {amount(entry.gpu_time_ns / steps / unit_ns)}" for entry in row.findings[:_CLAIMS]]
    return ", ".join([*named, *(["…"] if len(row.findings) > _CLAIMS else [])])
