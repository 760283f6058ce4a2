"""Where the host waits for the device, as text of a screen, as CSV and as JSON."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Final

import msgspec

from tracemine.report.escape import json_text, line, shorten
from tracemine.report.top_lines import Shown, csv_text
from tracemine.top import WaitRow, WaitTop
from tracemine.units import count_text, time_text

KINDS: Final[Mapping[str, str]] = {
    "print": "print",
    "mask": "size by value",
    "truth": "if tensor",
    "number": ".item()",
    "to_host": "to host",
    "from_list": "from a list",
    "made": "made on host",
    "from_host": "from host",
    "synchronize": "synchronize",
    "other": "other",
}
USES: Final[Mapping[str | None, str]] = {
    "mask": "mask",
    "size": "size",
    "loop": "loop",
    "branch": "branch",
    "argument": "argument",
    "log": "log",
    "to_host": "copy",
    "from_list": "copy",
    "made": "copy",
    "from_host": "copy",
    "synchronize": "",
    None: "?",
}
WINDOWS: Final[Mapping[str, str]] = {"whole": "as recorded", "light": "in the light window"}
_SAVES = "saves: estimated, unprofiled; more than is waited where the GPU idles behind the wait"
_NARROWEST = 24  # of a line's name
_MOST_NAME = 400


def rendered(top: WaitTop, form: str, shown: Shown) -> str:
    """Return a table as `json`, `csv` or text."""
    if form == "text":
        return render_text(top, shown)
    return (render_json if form == "json" else render_csv)(top)


def render_json(top: WaitTop) -> str:
    """Return one object, all rows."""
    return json_text(msgspec.json.format(msgspec.json.encode(top), indent=1).decode()) + "\n"


def render_csv(top: WaitTop) -> str:
    """Return a header and all rows."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("line", "operator", "kind", "use", "waits", "wait_ns")
    writer.writerow((*names, "saving_low_ns", "saving_ns", "saving_high_ns", "per", "steps"))
    for row in top.rows:
        saving = ("", "", "") if row.saving_ns is None else (row.saving_ns.low, row.saving_ns.mid, row.saving_ns.high)
        told = csv_text(row.line), csv_text(row.operator), row.kind, row.use, row.waits, row.wait_ns
        writer.writerow((*told, *saving, top.per, top.steps))
    return out.getvalue()


def render_text(top: WaitTop, shown: Shown) -> str:
    """Return a table with what it is of above it, and what its columns say below."""
    about = [line(Path(top.trace).name or top.trace, 60), line(top.gpu or "GPU not named", 40)]
    if not top.rows:
        return " · ".join([*about, "the host waits for the device nowhere"]) + "\n"
    each = "a step" if top.per == "step" else "in all that was recorded"
    about.append(f"the host waits for {time_text(top.wait_ns / top.steps)} {each}, {WINDOWS[top.window]}")
    text = [" · ".join(about)]
    if top.unprofiled_ns is not None:
        text.append(f"{count_text(top.steps, 'step')}, each of {time_text(top.unprofiled_ns)} unprofiled")
    rows = top.rows[: shown.limit]
    text += ["", *_table(top, rows, shown.width)]
    if len(rows) < len(top.rows):
        text.append(f"{len(top.rows) - len(rows)} more: --all")
    text += ["", _SAVES]
    return "\n".join(text) + "\n"


def _table(top: WaitTop, shown: tuple[WaitRow, ...], width: int) -> Iterator[str]:
    cells = [("saves", "up to", "waits", "waiting", "what", "for"), *(_cells(row, top.steps) for row in shown)]
    wide = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    room = max(width - sum(wide) - 2 * len(wide), _NARROWEST)
    names = ["line", *(_name(row, room) for row in shown)]
    for row, name in zip(cells, names, strict=True):
        numbers = [f"{text:>{wide[at]}}" for at, text in enumerate(row[:4])]
        words = [f"{text:<{wide[at]}}" for at, text in enumerate(row[4:], 4)]
        yield "  ".join([*numbers, *words, name]).rstrip()


def _cells(row: WaitRow, steps: int) -> tuple[str, ...]:
    saves = ("–", "–") if row.saving_ns is None else (row.saving_ns.mid, row.saving_ns.high)
    often = row.waits / steps
    return (
        *(each if isinstance(each, str) else time_text(each / steps) for each in saves),
        f"{often:,.0f}" if often >= 10 or often == round(often) else f"{often:.1f}",
        time_text(row.wait_ns / steps),
        KINDS[row.kind],
        USES[row.use],
    )


def _name(row: WaitRow, room: int) -> str:
    text = row.line or row.operator or "not known"
    short = line(text, _MOST_NAME)
    if len(short) > room and "/" in short.rpartition(":")[0]:
        short = f"…/{short.rpartition(':')[0].rpartition('/')[2]}:{short.rpartition(':')[2]}"
    return shorten(short, room)
