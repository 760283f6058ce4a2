"""Long lists in short answers: a page, and a cursor to the next one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tracemine.errors import UsageError
from tracemine.patterns import deferred

_Item = TypeVar("_Item")
_CURSOR = deferred(r"([0-9a-f]{12})-([0-9]{1,9})")


def page(
    items: Sequence[_Item], limit: int, cursor: str | None, question: object
) -> tuple[Sequence[_Item], str | None]:
    """Return a page of items, and the cursor of the next one; None: this was the last.

    question: all that decides what the items are. A cursor of another question is refused.

    >>> first, cursor = page("abc", 2, None, "letters")
    >>> first, page("abc", 2, cursor, "letters")
    ('ab', ('c', None))
    """
    mark = hashlib.sha256(msgspec.json.encode(question)).hexdigest()[:12]
    start = _start(cursor, mark)
    end = start + limit
    return items[start:end], f"{mark}-{end}" if end < len(items) else None


def _start(cursor: str | None, mark: str) -> int:
    if cursor is None:
        return 0
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise UsageError("cursor: is none that an answer gave", hint="leave it out to begin with the first page")
    if match[1] != mark:
        says = "cursor: is of another question, or the trace changed meanwhile"
        raise UsageError(says, hint="leave it out to begin with the first page")
    return int(match[2])
