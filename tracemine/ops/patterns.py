"""Tables that say something of names by regular expressions: the first row whose pattern fits decides.

A pattern is compiled when a name first has what one of its alternatives begins with: of most rows no trace has it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

_SPECIAL = frozenset(".^$*+?{}[]()|\\")
_MAY_BE_NONE = ("*", "?", "{")  # behind a character: it need not be there


class LatePattern:
    """A regular expression that is compiled where it may fit.

    >>> pattern = LatePattern(r"^void (cub|thrust)::|sort_?keys")
    >>> pattern.begins, pattern.contains
    (('void ',), ('sort',))
    >>> bool(pattern.search("a sort_keys")), bool(pattern.search("a void cub::"))
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        each = alternatives(pattern)
        self.begins = tuple(literal(one[1:]) for one in each if one[:1] == "^")
        self.contains = tuple(literal(one) for one in each if one[:1] != "^")

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def search(self, name: str) -> re.Match[str] | None:
        """Return where it is found in a name."""
        if name.startswith(self.begins) or any(each in name for each in self.contains):
            return self._compiled.search(name)
        return None

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """Return how a whole name fits it."""
        return self._compiled.fullmatch(name) if name.startswith((*self.begins, *self.contains)) else None


def alternatives(pattern: str) -> list[str]:
    r"""Return the alternatives that a regular expression consists of.

    >>> alternatives(r"^a(b|c)[|]|\|d|e")
    ['^a(b|c)[|]', '\\|d', 'e']
    """
    begin, depth, in_class, found = 0, 0, False, []
    for at, sign in _tokens(pattern):
        if in_class:
            in_class = sign != "]"
        elif sign == "|" and not depth:
            found.append(pattern[begin:at])
            begin = at + 1
        else:
            in_class = sign == "["
            depth += {"(": 1, ")": -1}.get(sign, 0)
    return [*found, pattern[begin:]]


def literal(pattern: str) -> str:
    r"""Return the text that what fits one alternative begins with, as far as it is known.

    >>> [literal(each) for each in (r"all_?reduce", r"\[CUDA mem(cpy|set)", "(a|b)", "[ab]", "x+y")]
    ['all', '[CUDA mem', '', '', 'x']
    """
    found: list[str] = []
    for _, sign in _tokens(pattern):
        if sign in _MAY_BE_NONE:
            return "".join(found[:-1])
        if sign in _SPECIAL or (len(sign) > 1 and sign[1].isalnum()):
            break
        found.append(sign[-1])
    return "".join(found)


def _tokens(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield a regular expression character by character, with what is escaped as one."""
    at = 0
    while at < len(pattern):
        sign = pattern[at : at + 1 + (pattern[at] == "\\")]
        yield at, sign
        at += len(sign)


class PatternRow(NamedTuple):
    """What a table says of the names that fit a pattern, and names that do."""

    says: str | None  # None: the pattern's first group
    pattern: LatePattern
    examples: tuple[str, ...]


@cache
def document(file: str) -> dict[str, Any]:
    """Return what a TOML file next to this module holds."""
    return tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))


@cache
def pattern_rows(file: str, table: str, says: str) -> tuple[PatternRow, ...]:
    """Return the rows of a table of a file next to this module, in order; `says`: the key of what they say.

    >>> [row.says for row in pattern_rows("arithmetic.toml", "unit", "unit")][:1]
    ['vector']
    """
    rows = document(file)[table]
    return tuple(PatternRow(row.get(says), LatePattern(row["regex"]), tuple(row["examples"])) for row in rows)
