"""Can a recording be trusted, what is missing in it, and how to record it right: `tracemine doctor`.

check_up(timeline, scan)   a Checkup, from what reading and scanning found out already
render(checkup, width)     the same on one screen

`having` says what was recorded and what a missing thing costs, `doubts` what distorts it. How to record: recipes.toml.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from tracemine.doctor.doubts import doubts_of
from tracemine.doctor.having import parts_of
from tracemine.doctor.record import CHECKUP_SCHEMA_VERSION, Checkup, Doubt, Recipe
from tracemine.findings import Scan
from tracemine.report.escape import line
from tracemine.report.wrapping import wrapped
from tracemine.tables import table_beside
from tracemine.timeline import Timeline

_CODE: dict[str, str] = table_beside(__file__, "recipes.toml")
COMMAND = "tracemine capture -o run -- python train.py"


def recipe_for(trace_format: str) -> Recipe:
    """Return how to record what a trace of this format is of.

    >>> recipe_for("kineto").command
    'tracemine capture -o run -- python train.py'
    """
    code = _CODE.get(trace_format, _CODE["torch"])
    if trace_format in _CODE and trace_format != "nsys":
        return Recipe(code=code, capture=None, command="")
    return Recipe(code=code, capture=_CODE["capture"], command=COMMAND)


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


__all__ = ["CHECKUP_SCHEMA_VERSION", "Checkup", "check_up", "render"]

_OPTIONAL = ("memory",)  # a recording without it is none the less fine


def check_up(timeline: Timeline, scan: Scan) -> Checkup:
    """Return what a recording holds, what distorts it, and how to record it right, from its timeline and its scan."""
    parts, doubts = tuple(parts_of(timeline, scan)), tuple(doubts_of(timeline, scan))
    missing = any(not part.recorded for part in parts if part.name not in _OPTIONAL)
    serious = any(doubt.serious for doubt in doubts)
    return Checkup(
        path=scan.trace.path,
        format=scan.trace.format,
        producer=timeline.meta.producer,
        gpu=scan.trace.gpu,
        verdict="serious" if serious else "limited" if missing or doubts else "fine",
        parts=parts,
        doubts=doubts,
        recipe=recipe_for(scan.trace.format),
    )
