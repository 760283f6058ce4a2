"""Texts on a terminal, as wide as the cells that their characters take."""

from __future__ import annotations

from textwrap import wrap

from rich.cells import cell_len

from tracemine.patterns import deferred

_SENTENCE, _CLAUSE = deferred(r"[^.][.!?](?= [A-Z`'])"), deferred(r"[,;:](?= )")
_LEAST = 0.4  # of what there is room for: less is too little to stop at


def wrapped(text: str, width: int, most: int) -> list[str]:
    """Return a text in so many lines at most; what does not fit is cut behind a sentence, else a clause, else a word.

    >>> wrapped("one two three", 8, 2), wrapped("one two three", 7, 1), wrapped("", 8, 2)
    (['one two', 'three'], ['one…'], [])
    >>> wrapped("It is so. It goes on and on", 16, 1), wrapped("it is so, and it goes on and on", 16, 1)
    (['It is so.'], ['it is so …'])
    """
    lines = _lines(text, width)
    if len(lines) <= most:
        return lines
    kept = " ".join(lines[:most])[: most * width - 2]
    for end, behind in ((_SENTENCE, ""), (_CLAUSE, " …")):
        ends = [found.end() for found in end.finditer(kept) if found.end() >= _LEAST * len(kept)]
        if ends:
            return _lines(kept[: ends[-1]].rstrip(",;:") + behind, width)
    last = lines[most - 1]
    fits = last if cell_len(last) < width else last.rpartition(" ")[0].rstrip() or _fitting(last, width - 1)
    return [*lines[: most - 1], f"{fits}…"]


def end_of(text: str, width: int) -> str:
    """Return a text, or its end behind "…" where it is too wide.

    >>> end_of("runs/decoder.json.gz", 12)
    '…der.json.gz'
    """
    if cell_len(text) <= width:
        return text
    while cell_len(text) > width - 1:
        text = text[max((cell_len(text) - width + 1) // 2, 1) :]
    return f"…{text}"


def _lines(text: str, width: int) -> list[str]:
    """Return a text wrapped by the cells that its characters take, a word that is too wide broken."""
    if cell_len(text) <= width:
        return [text] if text else []
    if text.isascii():
        return wrap(text, width, break_on_hyphens=False)
    found, now = [], ""
    for word in text.split(" "):
        while cell_len(word) > width:
            head = _fitting(word, width)
            found += [now] if now else []
            found, now, word = [*found, head], "", word[len(head) :]
        longer = f"{now} {word}" if now else word
        if cell_len(longer) > width:
            found, longer = [*found, now], word
        now = longer
    return [*found, now] if now else found


def _fitting(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits."""
    while cell_len(text) > width:
        text = text[: -max((cell_len(text) - width) // 2, 1)]
    return text.rstrip()
