"""A ticket's text as GitHub's Markdown. Everything goes through report/escape.py; no `<!--` comes through."""

from __future__ import annotations

from collections.abc import Iterator

from tracemine.patterns import deferred
from tracemine.report.escape import code, code_cell, fenced, line, prose, prose_cell, table
from tracemine.tickets.document import Block, Bullets, Code, Folded, Name, Paragraph, Run, Runs, Strong, Text
from tracemine.tickets.marks import END_LINE, mark_lines
from tracemine.tickets.record import TicketDraft

_LONGEST_TITLE = 200
_LONGEST_BODY = 60_000  # GitHub takes 65,536 characters
# Each of these makes a link or a mention where a title is shown; a title has no escapes.
_AUTOMATIC = deferred(r"@(?=\w)|#(?=\d)|(?i:\bgh-)(?=\d)|:(?=//)")


def markdown(blocks: tuple[Block, ...], longest: int = _LONGEST_BODY) -> str:
    """Return the blocks as Markdown; sections that are too long for a ticket are left out, and a line says so."""
    parts: list[str] = []
    room = longest
    for block in blocks:
        part = "\n".join(_lines(block)).replace("<!--", "<! --")
        room -= len(part) + 2
        if room < 0:
            parts.append("*The rest is too long for a ticket.*")
            break
        parts.append(part)
    return "\n\n".join(parts)


def body(draft: TicketDraft) -> str:
    """Return the hidden lines, and between them the text."""
    return f"{mark_lines(draft.mark)}\n\n{markdown(draft.blocks)}\n\n{END_LINE}"


def title(text: str) -> str:
    """Return a title: one line without markup, mentions or links.

    >>> title("Fix #12 for @all")
    'Fix #\\u200b12 for @\\u200ball'
    """
    return _AUTOMATIC.sub(lambda found: f"{found[0]}\u200b", line(text, longest=_LONGEST_TITLE).replace("`", "'"))


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield _runs(block.runs)
    elif isinstance(block, Bullets):
        yield from (f"- {_runs(item)}" for item in block.items)
    elif isinstance(block, Code):
        yield fenced(block.text, block.language)
    elif isinstance(block, Folded):
        inner = "\n\n".join("\n".join(_lines(one)) for one in block.blocks)
        yield f"<details><summary>{prose(block.title)}</summary>\n\n{inner}\n\n</details>"
    else:
        rows = [[_runs(cell, cell=True) for cell in row] for row in block.rows]
        yield table([*map(prose_cell, block.head)], rows)


def _runs(runs: Runs, *, cell: bool = False) -> str:
    whole: list[Run] = []
    for run in runs:  # a sentence in parts is escaped as one
        if isinstance(run, Text) and whole and isinstance(before := whole[-1], Text):
            whole[-1] = Text(before.text + run.text)
        else:
            whole.append(run)
    return "".join(_run(run, cell=cell) for run in whole)


def _run(run: Run, *, cell: bool) -> str:
    if isinstance(run, Name):
        return code_cell(run.text) if cell else code(run.text)
    inner = run.text.strip()
    text = prose_cell(inner) if cell else prose(inner)
    if isinstance(run, Strong):
        text = f"**{text}**" if text else ""
    before = " " if run.text[:1].isspace() else ""
    after = " " if run.text[-1:].isspace() and inner else ""
    return f"{before}{text}{after}"
