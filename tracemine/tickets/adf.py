"""A ticket's text as Jira's Atlassian Document Format: a tree, in which no text can be markup.

Nodes and marks as https://developer.atlassian.com/cloud/jira/platform/apis/document/structure/ has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracemine.report.escape import line, spans
from tracemine.tickets.document import Block, Bullets, Code, Folded, Name, Paragraph, Run, Runs, Strong, TicketTable

Node = dict[str, Any]
_LONGEST_TITLE = 200
_LONGEST_TEXT = 30_000  # Jira's texts end at 32,767 characters
_LONGEST_RUN = 4_000
_LONGEST_LINE = 1_000


def document(blocks: tuple[Block, ...]) -> Node:
    """Return the blocks as a document; what is too long for a ticket is left out, and a line says so."""
    content: list[Node] = []
    room = _LONGEST_TEXT
    for block in blocks:
        node = _node(block)
        room -= sum(len(text) for text in texts(node))
        if room < 0:
            content.append(_paragraph((Strong("The rest is too long for a ticket."),)))
            break
        content.append(node)
    return {"type": "doc", "version": 1, "content": content}


def texts(node: Node) -> Iterator[str]:
    """Yield every text of a node, in order."""
    if node.get("type") == "text":
        yield str(node.get("text", ""))
    for child in node.get("content") or ():
        yield from texts(child)


def title(text: str) -> str:
    """Return a title: one line of what can be seen."""
    return line(text, longest=_LONGEST_TITLE).replace("`", "'")


def _node(block: Block) -> Node:
    if isinstance(block, Paragraph):
        return _paragraph(block.runs)
    if isinstance(block, Bullets):
        items = [{"type": "listItem", "content": [_paragraph(item)]} for item in block.items]
        return {"type": "bulletList", "content": items}
    if isinstance(block, Code):
        lines = "\n".join(line(one, _LONGEST_LINE) for one in block.text.splitlines())
        content = [{"type": "text", "text": lines}] if lines else []
        return {"type": "codeBlock", "attrs": {"language": block.language}, "content": content}
    if isinstance(block, Folded):
        return {"type": "expand", "attrs": {"title": block.title}, "content": [_node(one) for one in block.blocks]}
    return _table(block)


def _table(table: TicketTable) -> Node:
    head = [_cell("tableHeader", (Strong(text),)) for text in table.head]
    rows = [head, *([_cell("tableCell", cell) for cell in row] for row in table.rows)]
    return {"type": "table", "content": [{"type": "tableRow", "content": row} for row in rows]}


def _cell(kind: str, runs: Runs) -> Node:
    return {"type": kind, "attrs": {}, "content": [_paragraph(runs)]}


def _paragraph(runs: Runs) -> Node:
    return {"type": "paragraph", "content": list(_inline(runs))}


def _inline(runs: Runs) -> Iterator[Node]:
    for run in runs:
        for is_code, text in _parts(run):
            if text:  # an empty text node is refused
                node: Node = {"type": "text", "text": text}
                kind = "code" if is_code else "strong" if isinstance(run, Strong) else None
                yield node | ({"marks": [{"type": kind}]} if kind else {})


def _parts(run: Run) -> Iterator[tuple[bool, str]]:
    text = line(run.text, longest=_LONGEST_RUN)
    if isinstance(run, Name):
        yield True, text.strip()
    else:
        yield from spans(text)
