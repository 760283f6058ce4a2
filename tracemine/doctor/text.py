"""A check-up on one screen: at most 24 lines of 100 columns."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from tracemine.doctor.record import Checkup, Doubt
from tracemine.report.escape import line
from tracemine.report.wrapping import wrapped

LINES, COLUMNS = 24, 100
_NAME = 16  # columns of a part's name
_HEADS = {
    "fine": "This recording can be trusted.",
    "limited": "This recording can be used; mind what is below.",
    "serious": "Do not take this recording's figures as they stand:",
}


def render(found: Checkup) -> str:
    """Return the screen."""
    head = [_head(found), _about(found), *_parts(found)]
    code = ["", *_code(found)] if found.verdict != "fine" else []
    room = LINES - len(head) - len(code) - 1
    doubts = ["", *_doubts(found.doubts, room)] if found.doubts else []
    return "\n".join(text[:COLUMNS].rstrip() for text in (*head, *doubts, *code)) + "\n"


def _head(found: Checkup) -> str:
    first = next((doubt.says for doubt in found.doubts if doubt.serious), "")
    return shorten(f"{_HEADS[found.verdict]} {line(first)}".strip(), COLUMNS, placeholder=" …")


def _about(found: Checkup) -> str:
    facts = (found.path, found.producer or found.format, found.gpu or "GPU not named")
    return line(" · ".join(facts), longest=COLUMNS)


def _parts(found: Checkup) -> Iterator[str]:
    for part in found.parts:
        switch = f"  → {part.switch}" if part.switch else ""
        mark = "yes" if part.recorded else "no "
        yield f"{mark} {part.name:<{_NAME}} {line(part.says, longest=COLUMNS - _NAME - 5)}{switch}"


def _doubts(doubts: tuple[Doubt, ...], room: int) -> Iterator[str]:
    """Yield doubts in so many lines: as many as fit, and how many more there are."""
    blocks = [_block(doubt) for doubt in doubts]
    left = len(blocks)
    for block in blocks:
        if len(block) + (left > 1) > room:
            break
        yield from block
        left, room = left - 1, room - len(block)
    if left:
        yield f"    {left} more: --format json"


def _block(doubt: Doubt) -> list[str]:
    mark = "!!  " if doubt.serious else "!   "
    text = f"{line(doubt.says, longest=600)}{f' → {doubt.do}' if doubt.do else ''}"
    first, *more = wrapped(text, COLUMNS - len(mark), 2)
    return [mark + first, *(" " * len(mark) + one for one in more)]


def _code(found: Checkup) -> Iterator[str]:
    command = found.recipe.command
    yield f"Record it right: {command}    or:" if command else "Record it right:"
    yield from (f"    {one}" for one in found.recipe.code.splitlines())
