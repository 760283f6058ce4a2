"""JSON as text: where a value ends, and the members of an object of which parts cannot be read."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tracemine.patterns import deferred

# A string is one token, so that brackets and quotes inside it count for nothing. Quantifiers are possessive (no
# backtracking), or text made for the purpose could take quadratic time.
_STRUCTURE = deferred(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?+)|[\[{]++|[\]}]++', re.DOTALL)
# How many bytes are looked through for the ends of values that have none: each look goes to the end of the text, so
# text made for it would take quadratic time.
PATIENCE = 8_000_000
_MOST_TOKENS = 1_000_000  # of one value: brackets and texts; real ones have some thousands
_MOST_MEMBERS = 100_000  # of one object; real headers have some ten
_SCALAR = deferred(rb"[^\s,\]}]*+")
_BLANK = deferred(rb"\s*+")
_BLANK_OR_COMMA = deferred(rb"[\s,]*+")
_KEY = deferred(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+:\s*+', re.DOTALL)


def end_of_value(text: bytes | bytearray, start: int, stop: int) -> int | None:
    """Return the position after the JSON value at `start`, judged by brackets and quotes; None if it is cut off.

    One of more than a million brackets and texts counts as cut off.

    >>> end_of_value(b'{"a": "}"}, 1', 0, 13), end_of_value(b'[[1]', 0, 4), end_of_value(b"12, 3", 0, 5)
    (10, None, 2)
    """
    if text[start] not in b'{["':
        match = _SCALAR.match(text, start, stop)
        return match.end() if match and match.end() < stop else None
    depth = 0
    for token in islice(_STRUCTURE.finditer(text, start, stop), _MOST_TOKENS):
        first = text[token.start()]
        if first == 0x22:
            if not token[1]:
                return None
            if not depth:
                return token.end()
        elif first in b"{[":
            depth += token.end() - token.start()
        elif token.end() - token.start() >= depth:
            return token.start() + depth
        else:
            depth -= token.end() - token.start()
    return None


class JsonMembers:
    """The members of one object that could be read, and how the others could not."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.duplicates = 0
        self.unreadable: list[str] = []

    def add(self, key: str, text: bytes | None) -> None:
        """Read one member's value, None if it has no end; the last of two with one key wins.

        Raises RecursionError if it is nested too deeply.
        """
        if text is None:
            self.unreadable.append(key)
            return
        counter: Counter[str] = Counter()
        try:
            value = json.loads(
                text.decode("utf-8", "replace"),
                strict=False,
                parse_constant=lambda _: None,
                object_pairs_hook=lambda pairs: _last_wins(pairs, counter),
            )
        except ValueError:
            self.unreadable.append(key)
            return
        self.duplicates += counter.total() + (key in self.values)
        self.values[key] = value


def _last_wins(pairs: list[tuple[str, Any]], counter: Counter[str]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        counter["duplicate"] += len(pairs) - len(members)
    return members


def members(
    text: bytes | bytearray, start: int, stop: int, *, upto: str | None = None
) -> Iterator[tuple[str, int, int | None]]:
    """Yield key, start and end of each member's value, from just after an object's `{` to its `}`; end None: cut off.

    The closing brace is yielded last, as key ""; without it the text is cut off. Of the member `upto` only the start
    is yielded, and nothing after it. What cannot be read as a member is passed over, up to the next key that stands
    first on a line indented as the member was: there every writer that forgets to escape (Kineto before 2026) puts it.
    Where that takes long no value's end is looked for any more.

    >>> [(key, end) for key, _, end in members(b'"a": [1], "b": 2}', 0, 17)]
    [('a', 8), ('b', 16), ('', 17)]
    """
    position = start
    patience = PATIENCE
    for _ in range(_MOST_MEMBERS):
        position = _skip(_BLANK_OR_COMMA, text, position, stop)
        if position >= stop:
            return
        if text[position] == 0x7D:
            yield "", position, position + 1
            return
        key = _KEY.match(text, position, stop)
        if key is None:
            position = _next_key(text, position, stop, rb"[ \t]*+")
            continue
        name = key[1].decode("utf-8", "replace")
        value = key.end()
        if name == upto:
            yield name, value, None
            return
        end = end_of_value(text, value, stop) if value < stop and patience > 0 else None
        yield name, value, end
        if end is not None and _closes(text, end, stop):
            position = end
        else:
            patience -= (end or stop) - value
            line = text.rfind(b"\n", 0, position) + 1
            indent = re.escape(bytes(text[line:position])) if not text[line:position].strip() else rb"[ \t]*+"
            position = _next_key(text, value, stop, indent)


def _closes(text: bytes | bytearray, position: int, stop: int) -> bool:
    """Return whether a member may end here: a comma or the object's end follows."""
    position = _skip(_BLANK, text, position, stop)
    return position >= stop or text[position] in b",}"


def _next_key(text: bytes | bytearray, position: int, stop: int, indent: bytes) -> int:
    match = re.compile(rb"\n" + indent + rb'"[A-Za-z_][^"\n]*+"\s*+:').search(text, position, stop)
    return match.start() if match else stop


def _skip(pattern: re.Pattern[bytes], text: bytes | bytearray, position: int, stop: int) -> int:
    match = pattern.match(text, position, stop)
    return match.end() if match else position
