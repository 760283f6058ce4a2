"""Where the host waits for the device, as text of a screen and as rows of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tracemine.report.escape import line, shorten
from tracemine.report.host_top import WINDOWS
from tracemine.report.top_lines import Shown, about, aligned, often
from tracemine.tables import table_beside
from tracemine.top import WaitRow, WaitTop
from tracemine.units import count_text, time_text

_TABLE = table_beside(__file__, "waits.toml")
KINDS: Final[Mapping[str, str]] = _TABLE["kinds"]
USES: Final[Mapping[str | None, str]] = {**_TABLE["uses"], None: "?"}
_SAVES = "saves: estimated, unprofiled; more than is waited where the GPU idles behind the wait"
_NARROWEST = 24  # of a line's name
_MOST_NAME = 400


def csv_rows(top: WaitTop) -> Iterator[Sequence[object]]:
    """Yield a header and all rows."""
    names = ("line", "operator", "kind", "use", "waits", "wait_ns")
    yield *names, "saving_low_ns", "saving_ns", "saving_high_ns", "per", "steps"
    for row in top.rows:
        saving = ("", "", "") if row.saving_ns is None else (row.saving_ns.low, row.saving_ns.mid, row.saving_ns.high)
        yield *(getattr(row, name) for name in names), *saving, top.per, top.steps


def render_text(top: WaitTop, shown: Shown) -> str:
    """Return a table with what it is of above it, and what its columns say below."""
    if not top.rows:
        return " · ".join([*about(top), "the host waits for the device nowhere"]) + "\n"
    each = "a step" if top.per == "step" else "in all that was recorded"
    waited = f"the host waits for {time_text(top.wait_ns / top.steps)} {each}, {WINDOWS[top.window]}"
    text = [" · ".join([*about(top), waited])]
    if top.unprofiled_ns is not None:
        text.append(f"{count_text(top.steps, 'step')}, each of {time_text(top.unprofiled_ns)} unprofiled")
    rows = top.rows[: shown.limit]
    text += ["", *_table(top, rows, shown.width)]
    if len(rows) < len(top.rows):
        text.append(f"{len(top.rows) - len(rows)} more: --all")
    text += ["", _SAVES]
    return "\n".join(text) + "\n"


def _table(top: WaitTop, shown: tuple[WaitRow, ...], width: int) -> Iterator[str]:
    cells = aligned(
        [("saves", "up to", "waits", "waiting", "what", "for"), *(_cells(row, top.steps) for row in shown)], 4
    )
    room = max(width - len(cells[0]) - 2, _NARROWEST)
    for row, name in zip(cells, ("line", *(_name(row, room) for row in shown)), strict=True):
        yield f"{row}  {name}".rstrip()


def _cells(row: WaitRow, steps: int) -> tuple[str, ...]:
    saves = ("–", "–") if row.saving_ns is None else (row.saving_ns.mid, row.saving_ns.high)
    return (
        *(each if isinstance(each, str) else time_text(each / steps) for each in saves),
        often(row.waits / steps),
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
