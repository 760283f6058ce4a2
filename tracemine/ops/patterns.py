"""Tables that say something of names by regular expressions: the first row whose pattern fits decides.

A pattern is compiled when a name first has what one of its alternatives begins with: of most rows no trace has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tracemine.patterns import DeferredPattern, deferred
from tracemine.tables import table_beside

_TOKEN = deferred(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?.[=!]?|[*+?]|\{\d*,?\d*\}|.", re.DOTALL)
_FLAGS = deferred(r"\(\?[a-zA-Z-]")
_SPECIAL = frozenset(".^$*+?{}[]()|")
_QUANTIFIERS = ("*", "+", "?", "{")
_GROUPS = ("(", "(?:")


class LatePattern(DeferredPattern[str]):
    """A regular expression that is compiled where it may fit.

    >>> pattern = LatePattern(r"^void (cub|thrust)::|[Ss]ort_?keys")
    >>> pattern.begins, pattern.contains
    (('void ',), ('keys',))
    >>> bool(pattern.search("a Sort_keys")), bool(pattern.search("a void cub::"))
    (True, False)
    """

    def __init__(self, pattern: str) -> None:
        super().__init__(pattern)
        self.pattern = pattern
        self.begins, self.contains = _needs().get(pattern) or needs_of(pattern)

    def search(self, name: str) -> re.Match[str] | None:
        """Return where it is found in a name."""
        if name.startswith(self.begins) or any(each in name for each in self.contains):
            return self._compiled.search(name)
        return None

    def fullmatch(self, name: str) -> re.Match[str] | None:
        """Return how a whole name fits it."""
        return self._compiled.fullmatch(name) if self.search(name) else None


def needs_of(pattern: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    r"""Return what a name begins with, and what others have in them, one of which fits: a text for each alternative.

    >>> needs_of(r"^nccl\w+|^(a|bc)_x|all_?reduce|(get|put)\d?")
    (('nccl',), ('_x', 'reduce', 'get', 'put'))
    """
    if _FLAGS.search(pattern):
        return (), ("",)
    begins, contains = [], []
    for tokens in _alternatives(_TOKEN.findall(pattern)):
        if tokens[:1] == ["^"] and (literal := _runs(tokens[1:])[0][0]):
            begins.append(literal)
        else:
            contains += _needed(tokens)
    return tuple(begins), tuple(contains)


def _alternatives(tokens: list[str]) -> list[list[str]]:
    """Return the alternatives that a regular expression consists of, in tokens."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += token[0] == "("
        depth -= token[0] == ")"
        if token[0] == "|" and not depth:
            found.append([])
        else:
            found[-1].append(token)
    return found


def _needed(tokens: list[str]) -> list[str]:
    """Return texts one of which whatever fits an alternative has in it: the longest that are known."""
    return max(_runs(tokens), key=lambda each: min(map(len, each)))


def _runs(tokens: list[str]) -> list[list[str]]:
    """Return what must be there: the text that an alternative begins with, then further texts, or one of several."""
    found, run, at = [], "", 0
    while at < len(tokens):
        end = _end(tokens, at)
        token, quantifier = tokens[at], tokens[end] if end < len(tokens) else ""
        repeated = quantifier.startswith(_QUANTIFIERS)
        sign = _literal(token)
        if sign and not repeated:
            run += sign
        else:
            found.append([run])
            run = ""
            if token in _GROUPS and not repeated:
                inner = _alternatives(tokens[at + 1 : end - 1])
                found.append([text for each in inner for text in _needed(each)])
        at = end + repeated
    return [*found, [run]]


def _end(tokens: list[str], at: int) -> int:
    """Return where what begins at a token ends: a group goes on to its bracket."""
    depth = 0
    for end in range(at, len(tokens)):
        depth += tokens[end][0] == "("
        depth -= tokens[end] == ")"
        if not depth:
            return end + 1
    return len(tokens)


def _literal(token: str) -> str:
    """Return the sign that a token is itself; none where it has a meaning."""
    if token[0] == "\\":
        return "" if token[1].isalnum() else token[1]
    return "" if len(token) > 1 or token in _SPECIAL else token


@cache
def _needs() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return what is known of the tables' patterns: needs.json, which docs/generate.py writes."""
    path = Path(__file__).with_name("needs.json")
    kept = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {pattern: (tuple(begins), tuple(contains)) for pattern, (begins, contains) in kept.items()}


def needs_text(patterns: Iterable[LatePattern]) -> str:
    """Return what needs.json holds for some patterns."""
    found = {each.pattern: needs_of(each.pattern) for each in patterns}
    return json.dumps(found, indent=0, ensure_ascii=False) + "\n"


class PatternRow(NamedTuple):
    """What a table says of the names that fit a pattern, and names that do."""

    says: str | None  # None: the pattern's first group
    pattern: LatePattern
    examples: tuple[str, ...]


@cache
def document(file: str) -> dict[str, Any]:
    """Return what a TOML file next to this module holds."""
    return table_beside(__file__, file)


@cache
def pattern_rows(file: str, table: str, says: str) -> tuple[PatternRow, ...]:
    """Return the rows of a table of a file next to this module, in order; `says`: the key of what they say.

    >>> [row.says for row in pattern_rows("arithmetic.toml", "unit", "unit")][:1]
    ['vector']
    """
    rows = document(file)[table]
    return tuple(PatternRow(row.get(says), LatePattern(row["regex"]), tuple(row["examples"])) for row in rows)
