"""Where the time goes, as text of a screen, as CSV and as JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from io import StringIO
from pathlib import Path
from typing import Final

import msgspec

from tracemine.report.escape import json_text, line, shorten
from tracemine.top import Top, TopRow, Utilisation
from tracemine.units import count_text, percent_text, ratio_text, time_text

SCREEN: Final = 15  # rows that fit with all that stands around them
_LEAST_SHARE = 0.005  # of GPU time: a part with less is opened by --all alone
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_CLAIMS = 2  # findings that a row names
_OVER = 1.05  # of what memory reaches
_NARROWEST = 24  # of a name
_LONGEST_NAME = 400
_WITH_MEAN = ("kernel", "operator")  # tables in which a call is one thing
_NOT_KNOWN = "not known"
_OWN = "(own)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a table is shown."""

    limit: int | None = SCREEN  # rows; None: all
    depth: int | None = None  # to which parts are opened; None: the largest ones, as far as there is room
    width: int = 100


def render_json(top: Top) -> str:
    """Return one object, all rows."""
    return json_text(msgspec.json.format(msgspec.json.encode(top), indent=1).decode()) + "\n"


def render_csv(top: Top) -> str:
    """Return a header and all rows, with the names that each is part of before its own."""
    out = StringIO()
    names = [field for field in TopRow.__struct_fields__ if field not in ("findings", "name", "parent", "share")]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((top.by, "part_of", "share", *names, "per", "steps", "findings"))
    for row in top.rows:
        claims = " ".join(f"{entry.fingerprint}:{entry.gpu_time_ns}" for entry in row.findings)
        inside = None if row.parent is None else _csv_text(top.rows[row.parent].name)
        values = [getattr(row, name) for name in names]
        writer.writerow((_csv_text(row.name), inside, row.share, *values, top.per, top.steps, claims))
    return out.getvalue()


def _csv_text(name: str | None) -> str | None:
    """Return a name as a cell that no spreadsheet takes for a formula."""
    text = None if name is None else line(name)
    return f"'{text}" if text and text[0] in "=+-@" else text


def render_text(top: Top, shown: Shown) -> str:
    """Return a table with what it is of above it, and what to know of it below."""
    lines = [*_head(top)]
    if top.rows:
        lines += ["", *_table(top, shown)]
    below = [*foot(top)]
    return "\n".join([*lines, *([""] if below else []), *below]) + "\n"


# --- above and below --------------------------------------------------------------------------------------------------


def _head(top: Top) -> Iterator[str]:
    about = [line(Path(top.trace).name or top.trace, 60), line(top.gpu or "GPU not named", 40)]
    if not top.rows:
        yield " · ".join(about)
        return
    each = "a step" if top.per == "step" else "in all that was recorded"
    yield " · ".join([*about, f"{time_text(top.gpu_time_ns / top.steps)} of GPU time {each}"])
    yield ", ".join(_times(top))


def _times(top: Top) -> Iterator[str]:
    """Yield how long it took: recorded, unprofiled, at work."""
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
        yield "above 100 %: what it reads lay in the cache, or it moves less than its shapes say"
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


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table: a row, the part of it that is in no part, or what is not shown."""

    row: TopRow | None
    depth: int
    gpu_time_ns: int
    name: str

    @property
    def whole(self) -> bool:
        """Whether it is a row, and not a part of it or what is not shown."""
        return self.row is not None and self.name != _OWN


def _table(top: Top, shown: Shown) -> Iterator[str]:
    lines = _lines(top, shown)
    unit_ns, unit = unit_of(top)
    claims = [
        _claims(entry.row, unit_ns, top.steps) if entry.row is not None and entry.whole else "" for entry in lines
    ]
    columns = _columns(lines, top, unit_ns, unit)
    widths = [max(len(title), *map(len, values)) for title, values in columns]
    left = "  ".join(f"{title:>{width}}" for (title, _), width in zip(columns, widths, strict=True))
    wide = max(map(len, (*claims, "in finding"))) if any(claims) else 0
    room = max(shown.width - len(left) - 2 - (wide + 2 if wide else 0), _NARROWEST)
    names = _distinguished(lines, [_name(entry, room) for entry in lines], room)
    longest = max(len(top.by), *map(len, names))
    yield f"{left}  {top.by:<{longest}}{'  in finding' if wide else ''}".rstrip()
    for at, name in enumerate(names):
        numbers = "  ".join(f"{values[at]:>{width}}" for (_, values), width in zip(columns, widths, strict=True))
        yield f"{numbers}  {name:<{longest}}  {claims[at]}".rstrip()


def _columns(lines: Sequence[_Line], top: Top, unit_ns: int, unit: str) -> list[tuple[str, Sequence[str]]]:
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


def unit_of(top: Top) -> tuple[int, str]:
    """Return the unit that the largest time of a table is told in."""
    return next((each for each in _UNITS if top.gpu_time_ns / top.steps >= 200 * each[0]), _UNITS[-1])


def _numbers(entry: _Line, top: Top, unit_ns: int, steps: int) -> tuple[str, str, str, str]:
    time = amount(entry.gpu_time_ns / steps / unit_ns)
    share = percent(entry.gpu_time_ns / max(top.gpu_time_ns, 1))
    if entry.row is None or entry.name == _OWN:
        return time, share, "", ""
    calls = entry.row.calls / steps
    said = f"{calls:,.0f}" if calls >= 10 or calls == round(calls) else f"{calls:.1f}"
    return time, share, said, amount(entry.gpu_time_ns / entry.row.calls / unit_ns, small=unit_ns > 1_000)


def amount(value: float, *, small: bool = False) -> str:
    """Return a number with one decimal, from a thousand on with none. small: with three, below ten.

    >>> amount(12.34), amount(5522.6), amount(0.0123, small=True)
    ('12.3', '5,523', '0.012')
    """
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3f}" if small and value < 9.9995 else f"{value:.1f}"


def percent(share: float) -> str:
    """Return a share of GPU time.

    >>> percent(0.347), percent(0.0123), percent(0.0001)
    ('35%', '1.2%', '<0.1%')
    """
    return f"{share:.0%}" if share >= 0.0995 or not share else f"{share:.1%}" if share >= 0.0005 else "<0.1%"


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


def _name(entry: _Line, room: int) -> str:
    """Return a name within its room: of a path its end, of all else beginning and end."""
    indent = "  " * entry.depth
    often = "" if entry.row is None or entry.row.instances < 2 or entry.name == _OWN else f" ×{entry.row.instances}"
    longest = max(room - len(indent) - len(often), 8)
    text = line(entry.name, _LONGEST_NAME).replace("_kernel (", " (")
    if len(text) > longest and "/" in text.rpartition(":")[0]:
        parts = text.split("/")
        while len(parts) > 1 and len("/".join(("…", *parts[1:]))) > longest:
            parts = parts[1:]
        text = "/".join(("…", *parts[1:])) if len(parts) > 1 else parts[0]
    return f"{indent}{shorten(text, longest)}{often}"


def _distinguished(lines: Sequence[_Line], names: Sequence[str], room: int) -> list[str]:
    """Return names within their room; of those that are alike when cut, what differs is kept."""
    found = list(names)
    alike: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        alike.setdefault(name, []).append(at)
    for cut, places in alike.items():
        whole = [line(lines[at].name, _LONGEST_NAME).replace("_kernel (", " (") for at in places]
        if len(set(whole)) < 2 or "…" not in cut:
            continue
        same = next((at for at, each in enumerate(zip(*whole, strict=False)) if len(set(each)) > 1), len(min(whole)))
        for at, text in zip(places, whole, strict=True):
            begin = "  " * lines[at].depth + text[: room // 3]
            found[at] = f"{begin}…{text[max(same - 2, room // 3) :][: max(room - len(begin) - 1, 4)]}"
    return found


# --- which rows -----------------------------------------------------------------------------------------------------


def _lines(top: Top, shown: Shown) -> list[_Line]:
    """Return the lines of a table: rows that are shown in their order, and how many are not."""
    parts: dict[int | None, list[int]] = {}
    for at, row in enumerate(top.rows):
        parts.setdefault(row.parent, []).append(at)
    visible = _visible(top, shown, parts)
    found: list[_Line] = []

    def add(among: list[int], depth: int) -> None:
        left = [at for at in among if at not in visible]
        for at in among:
            if at not in visible:
                continue
            row = top.rows[at]
            found.append(_Line(row, depth, row.gpu_time_ns, _NOT_KNOWN if row.name is None else row.name))
            inside = parts.get(at, [])
            if any(each in visible for each in inside):
                add(inside, depth + 1)
                if row.own_ns:
                    found.append(_Line(row, depth + 1, row.own_ns, _OWN))
        if left:
            hint = ": --all" if depth == 0 else ""
            found.append(_Line(None, depth, sum(top.rows[at].gpu_time_ns for at in left), f"{len(left)} more{hint}"))

    add(parts.get(None, []), 0)
    return found


def _visible(top: Top, shown: Shown, parts: dict[int | None, list[int]]) -> set[int]:
    """Return the rows that are shown: so deep as is asked, or the parts of the largest, within the limit."""
    if shown.limit is not None and shown.depth is None:
        return _opened(top, shown.limit, parts)
    visible = {at for at, row in enumerate(top.rows) if shown.depth is None or row.depth < shown.depth}
    most = sorted(visible, key=lambda at: (-top.rows[at].gpu_time_ns, at))
    return set(most[: shown.limit])  # a row is no smaller than its parts, so what it is part of is among them


def _opened(top: Top, limit: int, parts: dict[int | None, list[int]]) -> set[int]:
    """Return the outermost rows, and the parts of the largest while there is room for all that are worth a line."""
    visible = set(parts.get(None, [])[:limit])
    left = sorted((-top.rows[at].gpu_time_ns, at) for at in visible)
    room = limit - len(visible)
    while left and room > 0:
        _, at = heappop(left)
        inside = parts.get(at, [])
        worth = [part for part in inside if top.rows[part].share >= _LEAST_SHARE]
        lines = len(worth) + bool(top.rows[at].own_ns) + (len(worth) < len(inside))
        if worth and lines <= room:
            visible.update(worth)
            room -= lines
            for part in worth:
                heappush(left, (-top.rows[part].gpu_time_ns, part))
    return visible
