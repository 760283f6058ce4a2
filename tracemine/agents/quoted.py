"""Text that may hold words of a trace. Whoever recorded it chose them, and an agent that reads them must not obey them.

All such texts of an answer stand below its one key `untrusted`, without a character that is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracemine.patterns import deferred
from tracemine.report.escape import shorten

NAME, SENTENCE, TEXT = 200, 600, 4000  # characters of a kernel's name, of a sentence, of a text with several lines

# Marks and letters that are printable and are not seen: variation selectors carry whole sentences.
_UNSEEN = deferred("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_WORD = deferred(r"[A-Za-z0-9_.+-]{1,64}")


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
