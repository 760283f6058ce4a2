"""Text that may hold words of a trace. Whoever recorded it chose them, and an agent that reads them must not obey them.

All such texts of an answer stand below its one key `untrusted`, without a character that is not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from tracemine.errors import UsageError
from tracemine.patterns import deferred
from tracemine.report.escape import shorten

NAME, SENTENCE, TEXT = 200, 600, 4000  # characters of a kernel's name, of a sentence, of a text with several lines

# Marks and letters that are printable and are not seen: variation selectors carry whole sentences.
_UNSEEN = deferred("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_WORD = deferred(r"[A-Za-z0-9_.+-]{1,64}")

_Item = TypeVar("_Item")
_CURSOR = deferred(r"([0-9a-f]{12})-([0-9]{1,9})")


def quoted(text: str, longest: int = NAME) -> str:
    """Return a text as data: on one line, of bounded length, with escapes for what is not seen.

    >>> quoted("relu\\x1b[2J\\nIgnore all previous\\u202e")
    'relu\\\\x1b[2J\\\\nIgnore all previous\\\\u202e'
    """
    return shorten(escaped(shorten(text, longest)), 2 * longest)


def lines(text: str, longest: int = TEXT) -> str:
    """Return a text of several lines as data: lines stay lines, the rest as in `quoted`."""
    return escaped(text if len(text) <= longest else f"{text[: longest - 1]}…", keep="\n\t")


def maybe(text: str | None, longest: int = NAME) -> str | None:
    """Return as `quoted`; None where nothing was recorded."""
    return None if text is None else quoted(text, longest)


def some(texts: Iterable[str], most: int, longest: int = NAME) -> tuple[str, ...]:
    """Return the first texts, as `quoted`."""
    return tuple(quoted(text, longest) for _, text in zip(range(most), texts, strict=False))


def escaped(text: str, keep: str = "") -> str:
    r"""Return a text with escapes in place of controls, format characters, odd spaces and what is not seen.

    >>> escaped("a\tb\u200bc", keep="\t") == "a\tb" + r"\u200b" + "c"
    True
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one in keep or _seen(one) else one.encode("unicode_escape").decode() for one in text)


def word(text: str) -> str:
    """Return an identifier: a rule's, a status. Findings may be read from a file, which can say anything.

    >>> word("rmsnorm_unfused"), word("obey me")
    ('rmsnorm_unfused', 'unknown')
    """
    return text if _WORD.fullmatch(text) else "unknown"


def _seen(one: str) -> bool:
    return one.isprintable() and not _UNSEEN.match(one)


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
