"""Rows of a table of time as lines of a screen: which are shown, how deep, and by what name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

from tracemine.report.escape import line, shorten

SCREEN: Final = 15  # rows that fit with all that stands around them
_LEAST_SHARE = 0.005  # of all time: a part with less is opened by --all alone
_NARROWEST = 24  # of a name
_LONGEST_NAME = 400
_NOT_KNOWN = "not known"
OWN: Final = "(own)"


class TableRow(Protocol):
    """A row of a table of time."""

    @property
    def name(self) -> str | None: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def depth(self) -> int: ...
    @property
    def instances(self) -> int: ...
    @property
    def own_ns(self) -> int: ...
    @property
    def share(self) -> float: ...


class Traced(Protocol):
    """A table of time."""

    @property
    def trace(self) -> str: ...
    @property
    def gpu(self) -> str | None: ...


_Row = TypeVar("_Row", bound=TableRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a table is shown."""

    limit: int | None = SCREEN  # rows; None: all
    depth: int | None = None  # to which parts are opened; None: the largest ones, as far as there is room
    width: int = 100


UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def unit_of(spent_ns: float) -> tuple[int, str]:
    """Return the unit that a table is printed in whose largest time is this."""
    return next((unit for unit in UNITS if spent_ns >= 200 * unit[0]), UNITS[-1])


@dataclass(frozen=True, slots=True)
class TableLine(Generic[_Row]):
    """A line of the table: a row, the part of it that is in no part, or what is not shown."""

    row: _Row | None
    depth: int
    spent_ns: int
    name: str

    @property
    def whole(self) -> bool:
        """Whether it is a row, and not a part of it or what is not shown."""
        return self.row is not None and self.name != OWN


def lines_of(rows: Sequence[_Row], spent_ns: Sequence[int], shown: Shown) -> list[TableLine[_Row]]:
    """Return the lines of a table: rows that are shown in their order, and how many are not.

    spent_ns: of each row. A row has no less than its parts.
    """
    parts: dict[int | None, list[int]] = {}
    for at, row in enumerate(rows):
        parts.setdefault(row.parent, []).append(at)
    visible = _visible(rows, spent_ns, shown, parts)
    lines: list[TableLine[_Row]] = []

    def add(among: list[int], depth: int) -> None:
        left = [at for at in among if at not in visible]
        for at in among:
            if at not in visible:
                continue
            row = rows[at]
            lines.append(TableLine(row, depth, spent_ns[at], _NOT_KNOWN if row.name is None else row.name))
            inside = parts.get(at, [])
            if any(each in visible for each in inside):
                add(inside, depth + 1)
                if row.own_ns:
                    lines.append(TableLine(row, depth + 1, row.own_ns, OWN))
        if left:
            hint = ": --all" if depth == 0 else ""
            lines.append(TableLine(None, depth, sum(spent_ns[at] for at in left), f"{len(left)} more{hint}"))

    add(parts.get(None, []), 0)
    return lines


def _visible(
    rows: Sequence[_Row], spent_ns: Sequence[int], shown: Shown, parts: dict[int | None, list[int]]
) -> set[int]:
    """Return the rows that are shown: so deep as is asked, or the parts of the largest, within the limit."""
    if shown.limit is not None and shown.depth is None:
        return _opened(rows, spent_ns, shown.limit, parts)
    visible = {at for at, row in enumerate(rows) if shown.depth is None or row.depth < shown.depth}
    most = sorted(visible, key=lambda at: (-spent_ns[at], at))
    return set(most[: shown.limit])  # a row is no smaller than its parts, so what it is part of is among them


def _opened(rows: Sequence[_Row], spent_ns: Sequence[int], limit: int, parts: dict[int | None, list[int]]) -> set[int]:
    """Return the outermost rows, and the parts of the largest while there is room for all that are worth a line."""
    visible = set(parts.get(None, [])[:limit])
    left = sorted((-spent_ns[at], at) for at in visible)
    room = limit - len(visible)
    while left and room > 0:
        _, at = heappop(left)
        inside = parts.get(at, [])
        worth = [part for part in inside if rows[part].share >= _LEAST_SHARE]
        lines = len(worth) + bool(rows[at].own_ns) + (len(worth) < len(inside))
        if worth and lines <= room:
            visible.update(worth)
            room -= lines
            for part in worth:
                heappush(left, (-spent_ns[part], part))
    return visible


# --- how they are written ---------------------------------------------------------------------------------------------


def amount(value: float, *, small: bool = False) -> str:
    """Return a number with one decimal, from a thousand on with none. small: with three, below ten.

    >>> amount(12.34), amount(5522.6), amount(0.0123, small=True)
    ('12.3', '5,523', '0.012')
    """
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3f}" if small and value < 9.9995 else f"{value:.1f}"


def often(times: float) -> str:
    """Return how often something is done.

    >>> often(12.4), often(2), often(2.25)
    ('12', '2', '2.2')
    """
    return f"{times:,.0f}" if times >= 10 or times == round(times) else f"{times:.1f}"


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.0995 or not share else f"{share:.1%}" if share >= 0.0005 else "<0.1%"


def about(top: Traced) -> list[str]:
    """Return what a table is of: its trace, and the GPU."""
    return [line(Path(top.trace).name or top.trace, 60), line(top.gpu or "GPU not named", 40)]


def aligned(rows: Sequence[Sequence[str]], right: int) -> list[str]:
    """Return rows in columns, so many of which, the first ones, are aligned to the right.

    >>> aligned([("12", "a", "b"), ("3", "cd", "e")], 1)
    ['12  a   b', ' 3  cd  e']
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if at < right else "<" for at in range(len(wide))]
    return [
        "  ".join(f"{text:{side}{room}}" for text, side, room in zip(row, sides, wide, strict=True)) for row in rows
    ]


def _name(entry: TableLine[_Row], room: int) -> str:
    """Return a name within its room: of a path its end, of all else beginning and end."""
    indent = "  " * entry.depth
    often = "" if entry.row is None or entry.row.instances < 2 or entry.name == OWN else f" ×{entry.row.instances}"
    longest = max(room - len(indent) - len(often), 8)
    text = line(entry.name, _LONGEST_NAME).replace("_kernel (", " (")
    if len(text) > longest and "/" in text.rpartition(":")[0]:
        parts = text.split("/")
        while len(parts) > 1 and len("/".join(("…", *parts[1:]))) > longest:
            parts = parts[1:]
        text = "/".join(("…", *parts[1:])) if len(parts) > 1 else parts[0]
    return f"{indent}{shorten(text, longest)}{often}"


def table(
    lines: Sequence[TableLine[_Row]],
    columns: Sequence[tuple[str, Sequence[str]]],
    title: str,
    width: int,
    last: tuple[str, Sequence[str]] | None = None,
) -> Iterator[str]:
    """Yield a table: numbers, names within what room there is, and a last column where something stands in it."""
    widths = [max(len(head), *map(len, values)) for head, values in columns]
    left = "  ".join(f"{head:>{width}}" for (head, _), width in zip(columns, widths, strict=True))
    head, cells = ("", [""] * len(lines)) if last is None else last
    wide = max(map(len, (*cells, head))) if any(cells) else 0
    room = max(width - len(left) - 2 - (wide + 2 if wide else 0), _NARROWEST)
    names = _distinguished(lines, [_name(entry, room) for entry in lines], room)
    longest = max(len(title), *map(len, names))
    yield f"{left}  {title:<{longest}}{f'  {head}' if wide else ''}".rstrip()
    for at, name in enumerate(names):
        numbers = "  ".join(f"{values[at]:>{width}}" for (_, values), width in zip(columns, widths, strict=True))
        yield f"{numbers}  {name:<{longest}}  {cells[at]}".rstrip()


def _distinguished(lines: Sequence[TableLine[_Row]], names: Sequence[str], room: int) -> list[str]:
    """Return names within their room; of those that are equal when cut, what differs is kept."""
    distinct = list(names)
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
            distinct[at] = f"{begin}…{text[max(same - 2, room // 3) :][: max(room - len(begin) - 1, 4)]}"
    return distinct
