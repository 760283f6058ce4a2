"""The first screen on a terminal: 24 lines at most, and no line that wraps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from tracemine.documents.bar import IDLE
from tracemine.documents.screen import Screen, ScreenRow, first_screen
from tracemine.patterns import deferred
from tracemine.report.escape import line
from tracemine.report.paragraphs import console_for
from tracemine.report.wrapping import end_of, wrapped
from tracemine.units import shares

if TYPE_CHECKING:
    from tracemine.documents.bar import BarPart
    from tracemine.findings.record import Scan
    from tracemine.report import Drawing

WIDEST = 100
_DIM, _BOLD = "dim", "bold"
_PART_STYLES = {
    "products": "cyan",
    "attention": "magenta",
    "memory_bound": "yellow",
    "optimizer": "green",
    "other": "white",
    "copies": "blue",
    "communication": "red",
    "idle": "dim",
}
_WORK, _IDLE = "█", "░"
_NARROW = {"cause": 16, "place": 12}  # columns that give way, and how far
_LEFT_OUT = "effort"  # where that is not enough
_NOTES, _NOTES_ALONE, MOST_LINES = 2, 5, 24
_GAP = 2  # columns between two
_TIMES = deferred(r" ×[\d,]+$")  # how often a step
_LINE = deferred(r"[^ ]+:\d+(?= )")  # a file's line, behind which its function stands


def render(scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write the first screen of a scan."""
    width = min(options.width, WIDEST)
    console = console_for(out, options)
    for row in rows_of(first_screen(scan, options.frames, width - 2 * _GAP - 1), width):
        row.rstrip()
        console.print(row, no_wrap=True, overflow="ignore", crop=False)


def rows_of(screen: Screen, width: int) -> Iterator[Text]:
    """Yield the lines of a screen, none wider than that."""
    below = [*_wrapped(f"Next: {' · '.join(screen.commands)}", width, _DIM, _folded(width))]
    room = MOST_LINES - len(below) - min(len(screen.notes), 1 if screen.unpriced else _NOTES)
    above = [*_above_notes(screen, width, 2)]
    if len(above) > room:  # what to do gives way: the whole of it is in `explain`
        above = [*_above_notes(screen, width, 1)]
    yield from above
    yield from _notes(screen, width, MOST_LINES - len(above) - len(below))
    yield from below


def _above_notes(screen: Screen, width: int, most: int) -> Iterator[Text]:
    """Yield all but notes and commands. most: lines of what to do."""
    yield from _wrapped(screen.doubts, width, "bold red", 2 if screen.rows else 3)
    yield from _wrapped(screen.headline, width, _BOLD, 2)
    yield from _about(screen, width)
    if screen.bar:
        yield Text()
        yield from bar_rows(screen.bar, width)
    yield from _wrapped(screen.beside, width, _DIM, 1)
    yield Text()
    yield from _together(screen.at_once, width, most)
    yield from _table(screen, width, most)
    yield from _wrapped(screen.total, width, _BOLD if screen.rows else "", 2)
    for number, text in enumerate(screen.nothing):
        yield from _wrapped(text, width, "" if number else _BOLD, 2)


def _about(screen: Screen, width: int) -> Iterator[Text]:
    """Yield the path with what is said of the trace, or each on a line; a wider path gives way at its beginning."""
    facts = " · ".join(line(text) for text in screen.about)
    path = line(screen.path)
    if cell_len(path) + cell_len(facts) + 3 <= width:
        yield Text.assemble(path, (f" · {facts}", _DIM))
        return
    yield Text(end_of(path, width))
    yield from _wrapped(facts, width, _DIM, _folded(width))


def _folded(width: int) -> int:
    """Return how many lines a text has that fits into one where a terminal is as wide as usual."""
    return 1 if width >= WIDEST else 2


def bar_rows(parts: Sequence[BarPart], width: int) -> Iterator[Text]:
    """Yield the bar with names in front of pieces and shares below them; shares alone where there is no room."""
    least = [max(cell_len(part.title) + 2, len(part.share)) for part in parts]
    room = width - sum(least) - len(parts) + 1
    if room < 0:
        yield from _wrapped(", ".join(part.label for part in parts), width, "", 4)
        return
    lengths = [each + 1 for each in shares([part.ns for part in parts], room)] if room else [1] * len(parts)
    lengths = [
        each + least_ - cell_len(part.title) - 2 for part, each, least_ in zip(parts, lengths, least, strict=True)
    ]
    drawn, below = Text(), Text()
    for part, length in zip(parts, lengths, strict=True):
        fill = _IDLE if part.name == IDLE else _WORK
        piece = Text.assemble(f"{part.title} ", (fill * max(length, 1), _PART_STYLES.get(part.name, "")), " ")
        drawn.append_text(piece)
        below.append(f"{part.share:<{piece.cell_len}}")
    yield drawn
    yield below


def _together(text: str, width: int, most: int) -> Iterator[Text]:
    """Yield what one edit does of several rows, and the edit, which has a line of its own where both do not fit."""
    said, behind, edit = text.partition("): ")
    if most < 2 or cell_len(text) <= width or cell_len(edit) > width - _GAP:
        yield from _wrapped(text, width, "bold cyan", _folded(width))
        return
    yield Text(f"{said}{behind}".rstrip(), "bold cyan")
    yield Text(f"{' ' * _GAP}{edit}", "bold cyan")


def _table(screen: Screen, width: int, most: int) -> Iterator[Text]:
    """Yield the head, and of each finding a line with what it is, and what to do in so many lines at most."""
    if not screen.rows:
        return
    heads = {
        "number": ("", ""),
        "saves": ("saves", screen.unit),
        "share": ("% of", screen.whole),
        "cause": ("cause", "× per step" if any(_TIMES.search(row.cause) for row in screen.rows) else ""),
        "place": ("your code" if screen.own else "where", ""),
        "sure": ("sure", ""),
        "effort": ("effort", ""),
    }
    above, below = ({name: head[at] for name, head in heads.items()} for at in (0, 1))
    cells = [{name: line(str(getattr(row, name))) for name in heads} for row in screen.rows]
    widths = _fit([above, below, *cells], width)
    yield Text(_joined(above, widths), _DIM)
    yield Text(_joined(below, widths), _DIM)
    for row, each in zip(screen.rows, cells, strict=True):
        yield _styled(_joined(each, widths), widths)
        yield from _todo(row, width, widths["number"] + _GAP, most)


def _fit(rows: Sequence[dict[str, str]], width: int) -> dict[str, int]:
    """Return how wide each column is. Where the table is too wide, functions behind their lines give way, then the
    effort where that is enough, then the ends of what is long.
    """
    widths, over = _widths(rows, width)
    if over > 0:
        for row in rows:
            row["place"] = _short_place(row["place"], widths["place"] - over)
        widths, over = _widths(rows, width)
    if over > widths[_LEFT_OUT] + _GAP or over <= 0:
        for name in sorted(_NARROW, key=lambda name: -widths[name]):
            less = max(min(over, widths[name] - _NARROW[name]), 0)
            widths[name], over = widths[name] - less, over - less
    if over > 0:
        del widths[_LEFT_OUT]
    return widths


def _widths(rows: Sequence[dict[str, str]], width: int) -> tuple[dict[str, int], int]:
    """Return how wide each column wants to be, and by how much all of them are too wide."""
    widths = {name: max(cell_len(row[name]) for row in rows) for name in rows[0]}
    return widths, sum(widths.values()) + _GAP * (len(widths) - 1) - width


def _short_place(text: str, room: int) -> str:
    """Return a place that is wider than that without its function, its file's first letters, or all but one name.

    >>> _short_place("train.py:7 forward", 12), _short_place("before mm, add", 10), _short_place("Net.Norm", 3)
    ('train.py:7', 'before mm', 'Norm')
    >>> _short_place("modeling_bert.py:28 → BertLayer", 24)
    '…_bert.py:28 → BertLayer'
    """
    if cell_len(text) <= room:
        return text
    if " → " in text:
        return end_of(text, max(room, _NARROW["place"]))
    if (found := _LINE.match(text)) is not None:
        return found[0]
    return text.partition(", ")[0] if ", " in text or " " in text else text.rpartition(".")[2]


_RIGHT = ("number", "saves", "share")


def _joined(cells: dict[str, str], widths: dict[str, int]) -> str:
    fitted = []
    for name, room in widths.items():
        text = cells[name]
        text = _fitted(text, room)
        blanks = " " * (room - cell_len(text))
        fitted.append(blanks + text if name in _RIGHT else text + blanks)
    return (" " * _GAP).join(fitted)


def _fitted(text: str, room: int) -> str:
    """Return a text no wider than that; how often something occurs stays in sight.

    >>> _fitted("Layout copies, channels_last not set ×7", 24), _fitted("train.py:7 forward", 12)
    ('Layout copies, channe…×7', 'train.py:7 …')
    """
    if cell_len(text) <= room:
        return text
    times = found[0].lstrip() if (found := _TIMES.search(text)) else ""
    return f"{set_cell_size(text, room - 1 - cell_len(times))}…{times}"


def _styled(text: str, widths: dict[str, int]) -> Text:
    """Return a row with its saving and its cause in the styles that catch the eye."""
    drawn, saves = Text(text), widths["number"] + _GAP
    cause = saves + widths["saves"] + widths["share"] + 2 * _GAP
    drawn.stylize("bold green", saves, saves + widths["saves"])
    drawn.stylize(_BOLD, cause, cause + widths["cause"])
    return drawn


def _todo(row: ScreenRow, width: int, indent: int, most: int) -> Iterator[Text]:
    for one in _wrapped(row.todo, width - indent, "cyan", most):
        yield Text.assemble(" " * indent, one)


def _notes(screen: Screen, width: int, room: int) -> Iterator[Text]:
    """Yield two notes at most, or one that decides what was looked for, and how many more there are. Where nothing ran
    on a GPU they are all there is, and more of them are shown.

    room: lines, of which a note has two where it needs them.
    """
    notes, label = screen.notes, "Note: "
    shown = notes[: 1 if screen.unpriced else _NOTES if screen.bar else _NOTES_ALONE]
    behind = f" (+{len(notes) - len(shown):,} more: --all)" if len(notes) > len(shown) else ""
    for left, note in zip(range(len(shown) - 1, -1, -1), shown, strict=True):
        last = "" if left else behind
        texts = _noted(note, width - len(label), len(last), 2 if room - left >= 2 else 1)
        room -= len(texts)
        for number, text in enumerate(texts):
            counted = last if number == len(texts) - 1 else ""
            yield Text.assemble((" " * len(label) if number else label, _DIM), text, (counted, _DIM))


def _noted(note: str, width: int, room: int, most: int) -> list[str]:
    """Return a note's lines, with so much room behind the last."""
    lines = wrapped(line(note, 2_000), width, most)
    if cell_len(lines[-1]) + room <= width:
        return lines
    if len(lines) < most:
        return [*lines, ""]
    return [*lines[:-1], *wrapped(f"{lines[-1].removesuffix('…')} …", width - room, 1)]


def _wrapped(text: str, width: int, style: str, most: int) -> Iterator[Text]:
    return (Text(one, style) for one in wrapped(line(text, 2_000), width, most))
