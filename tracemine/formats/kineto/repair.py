"""The slow, strict path: a stretch of events that does not decode is read event by event, and repaired where it can be.

An event that cannot be repaired is dropped and counted; the events around it are kept. What is known to be wrong in
real files, and what is done about it, is the table `REPAIRS`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from tracemine.formats.json_text import PATIENCE, end_of_value

Event = TypeVar("Event")

UNREADABLE = "not valid JSON"
CUT_OFF = "cut off by the end of the file"

# So many events that cannot be read, more than one in four, are no trace. Each is tried with every repair, which takes
# long, so reading stops there to be asked.
MOST_UNREADABLE = 100_000

_BETWEEN_EVENTS = re.compile(rb"[\s,]*+")
# Where an event may end: before the next one, before the array's end, at the end of the text.
_EVENT_END = re.compile(rb"\}(?=\s*+,\s*+\{|\s*+,?+\s*+\]|\s*+\Z)")
# The array's end, if it is that: behind it a key, a brace, or nothing may stand.
_ARRAY_END = re.compile(rb"\](?!\s*+,?+\s*+\{)")
_EVENT_START = re.compile(rb'\{\s*+"')

# What msgspec says of text that is valid as far as it goes, and of valid text with more behind it.
_MISJUDGED = ("truncated", "trailing characters")

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRINGS = re.compile(_STRING, re.DOTALL)
_NO_NUMBER = re.compile(
    _STRING + rb"|(?<![\w.+-])([+-]?+(?:nan|inf|infinity)(?:\([a-z]*+\))?+|N/A)(?![\w.])", re.I | re.S
)
_TRAILING_COMMA = re.compile(_STRING + rb"|,(\s*+[}\]])", re.DOTALL)
_BACKSLASH = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATES = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CONTROL = re.compile(rb"[\x00-\x1f]")


def _valid_utf8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _escape_controls(text: bytes) -> bytes:
    if _CONTROL.search(text) is None:
        return text
    return _STRINGS.sub(lambda string: _CONTROL.sub(lambda c: b"\\u%04x" % ord(c[0]), string[0]), text)


def _double_lone_backslashes(text: bytes) -> bytes:
    return _BACKSLASH.sub(lambda m: m[0] if m[1] else b"\\\\", text) if b"\\" in text else text


def _null_what_is_no_number(text: bytes) -> bytes:
    return _NO_NUMBER.sub(lambda m: b"null" if m[1] else m[0], text)


def _drop_trailing_commas(text: bytes) -> bytes:
    return _TRAILING_COMMA.sub(lambda m: m[1] or m[0], text)


def _replace_lone_surrogates(text: bytes) -> bytes:
    return _SURROGATES.sub(lambda m: m[1] or rb"\ufffd", text) if b"\\" in text else text


# In this order: each makes the text one that the next can tokenise.
Repairs = tuple[tuple[str, Callable[[bytes], bytes]], ...]
REPAIRS: Repairs = (
    ("invalid UTF-8 replaced", _valid_utf8),
    ("lone backslash doubled", _double_lone_backslashes),
    ("lone surrogate replaced", _replace_lone_surrogates),
    ("control character escaped", _escape_controls),
    ("NaN, inf or N/A read as not recorded", _null_what_is_no_number),
    ("trailing comma removed", _drop_trailing_commas),
)


class EventReading(Generic[Event]):
    """What `read_events` made of a stretch of text."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.consumed = 0  # the text up to here is done with
        self.ended = False  # the array's closing bracket was met, just before `consumed`
        self.dropped = Counter[str]()
        self.repaired = Counter[str]()


def read_events(text: bytes, decode: Callable[[bytes], Event], *, final: bool) -> EventReading[Event]:
    """Read events from `text`, which begins at an event (or a comma or blank before it) and ends anywhere.

    `decode` reads the text of one event. Unless the text is the `final` one, an event that it cuts off is left
    unconsumed, to be read again when more is there; a final one is dropped and counted. The rest is left unconsumed too
    where many events cannot be read.

    Raises RecursionError if an event is nested too deeply.

    >>> import json
    >>> reading = read_events(b'{"a": 1}, {"a": NaN, }, {"b": "c}, {', msgspec.json.decode, final=False)
    >>> reading.events, reading.consumed, sorted(reading.repaired)
    ([{'a': 1}, {'a': None}], 24, ['NaN, inf or N/A read as not recorded', 'trailing comma removed'])
    """
    reading: EventReading[Event] = EventReading()
    patience = PATIENCE  # for following an event that does not end at its apparent end to where its brackets close
    position = 0
    while True:
        gap = _BETWEEN_EVENTS.match(text, position)
        reading.consumed = position = gap.end() if gap else position
        if position == len(text) or reading.dropped[UNREADABLE] > MOST_UNREADABLE:
            return reading
        if _ARRAY_END.match(text, position):
            if not final and not text[position + 1 :].strip(b" \t\r\n,"):
                return reading  # what follows decides
            reading.consumed, reading.ended = position + 1, True
            return reading
        if text[position] != 0x7B:
            start = _EVENT_START.search(text, position + 1)
            if start is None and not final:
                return reading
            reading.dropped[UNREADABLE] += 1
            position = start.start() if start else len(text)
            continue
        behind, patience = _read_one(reading, text, position, decode, patience, final)
        if behind is None:
            return reading
        position = behind


def _read_one(
    reading: EventReading[Event],
    text: bytes,
    position: int,
    decode: Callable[[bytes], Event],
    patience: int,
    final: bool,
) -> tuple[int | None, int]:
    """Read the event that begins at `position`: where it ends, None if it is cut off; and what is left of patience."""
    end = _EVENT_END.search(text, position)
    piece = text[position : end.end()] if end else text[position:]
    try:
        reading.events.append(decode(piece))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        misjudged = end is None or any(sign in str(error) for sign in _MISJUDGED)
    else:
        return position + len(piece), patience
    if misjudged and patience > 0:
        # It ends elsewhere: an object inside it looks like an event, or something else follows it.
        whole = end_of_value(text, position, len(text))
        if whole is None and not final:
            return None, patience
        if whole is None:
            patience -= len(text) - position
        else:
            piece = text[position:whole]
    again = mended(piece, decode, reading.repaired)
    if again is not None:
        reading.events.append(again)
    elif final and position + len(piece) == len(text) and end_of_value(text, position, len(text)) is None:
        reading.dropped[CUT_OFF] += 1
    else:
        reading.dropped[UNREADABLE] += 1
    return position + len(piece), patience


def mended(
    piece: bytes, decode: Callable[[bytes], Event], repaired: Counter[str], repairs: Repairs = REPAIRS
) -> Event | None:
    """What `decode` reads from the text of one event once all `repairs` are made; None if it still reads nothing.

    >>> made = Counter()
    >>> mended(b'{"a": NaN}', msgspec.json.decode, made), dict(made)
    ({'a': None}, {'NaN, inf or N/A read as not recorded': 1})
    """
    done = []
    for name, repair in repairs:
        better = repair(piece)
        if better != piece:
            done.append(name)
            piece = better
    try:
        event = decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    repaired.update(done)
    return event
