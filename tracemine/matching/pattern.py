"""The pattern language: text to a checked tree, and the tree to a regular expression over bytes.

    pattern  = sequence ("|" sequence)*
    sequence = (variable quantifier? | "(" pattern ")")*
    quantifier = "?" | "*" | "+" | "{n}" | "{n,}" | "{n,m}"

The meaning is that of SQL:2016 MATCH_RECOGNIZE: the leftmost match, as many rows as a quantifier can take, the left
alternative first. `re` prefers in the same order, so each row becomes one byte and `re` does the matching.

A trace is something a stranger mails, so a pattern whose matching time can grow faster than the number of rows is
refused when the rule is loaded, whatever the rows are. Two bounds make it linear:

* A repetition of more than `SHORT` rows ("long") must scan each row once, which holds where
  (a) everything after it may be left out, so that reaching it is a match and what it scanned is consumed; or
  (b) it stands after a variable, and before one, that no row of the repetition can be: then it can start only where
      its run of rows starts, and giving rows back cannot help; or
  (c) it may open the pattern, is unbounded, and neither what follows nor what may end the pattern can be a row of it:
      then a match starts only where its run starts, which a lookbehind says.
* All other freedom is bounded: the ways to divide rows between repetitions are at most `WAYS` from one row.

Where no row can be both a repetition's and the next variable's, the repetition is written possessive: it gives nothing
back because that could never help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Final

from msgspec import Struct

from tracemine.patterns import deferred

SHORT: Final = 64  # a longer repetition is "long": re-scanning it from every row would be quadratic
WAYS: Final = 256  # 100,000 hostile rows take about a second at most (tests/matching/test_pattern_cost.py)
COUNT_LIMIT: Final = 1000  # the largest n or m in {n,m}
OVERLAP_ROWS: Final = 256  # rows of one match where matches may overlap: output is rows x this at worst

_TOKEN = deferred(r"\s*(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<repeat>[?*+]|\{[^}]*\}?)|(?P<mark>[|()]))")
_BRACES = deferred(r"\{\s*(\d{1,9})\s*(?:(,)\s*(\d{1,9})?\s*)?\}")
_QUANTIFIERS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_NESTING_LIMIT = 50


class PatternError(Exception):
    """What is wrong with a pattern, in words that name the column; the loader adds file and line."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Step(Struct, frozen=True, tag=True):
    """One variable in the pattern: between `low` and `high` rows (None: any number) at text column `column`."""

    variable: str
    low: int
    high: int | None
    number: int  # 0, 1, … in the order of the text: tells two uses of one variable apart
    column: int  # 1-based

    @property
    def long(self) -> bool:
        """More rows than may be scanned again from every start."""
        return self.high is None or self.high > SHORT

    def __str__(self) -> str:
        if (self.low, self.high) == (1, 1):
            return self.variable
        for sign, counts in _QUANTIFIERS.items():
            if (self.low, self.high) == counts:
                return self.variable + sign
        if self.low == self.high:
            return f"{self.variable}{{{self.low}}}"
        return f"{self.variable}{{{self.low},{'' if self.high is None else self.high}}}"


class Parts(Struct, frozen=True, tag=True):
    """Parts one after another; or one of them, the left one first."""

    parts: tuple[Node, ...]
    one_of: bool


Node = Step | Parts


class Pattern(Struct, frozen=True):
    """A pattern that was checked: its text, tree, steps in order, and how each step may be written."""

    text: str
    tree: Node
    steps: tuple[Step, ...]
    possessive: frozenset[int]  # steps that need give nothing back
    anchored: frozenset[int]  # steps that, opening a match, must stand at the start of their run


# --- text to tree ----------------------------------------------------------------------------------------------------


def parse(text: str) -> Node:
    """Return the tree of a pattern's text. Raises PatternError naming the column.

    >>> parse("a{2,}")
    Step(variable='a', low=2, high=None, number=0, column=1)
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.at = 0
        self.steps = 0

    def _tokens(self) -> list[tuple[str, str, int]]:
        tokens, at = [], 0
        end = len(self.text.rstrip())
        while at < end:
            found = _TOKEN.match(self.text, at)
            if found is None:
                at += len(self.text[at:]) - len(self.text[at:].lstrip())
                raise PatternError(
                    f"column {at + 1}: {self.text[at]!r} means nothing in a pattern",
                    "a pattern has variables, ( ) and |, and ? * + {n} {n,} {n,m} after a variable",
                )
            kind = str(found.lastgroup)
            tokens.append((kind, found[kind], found.start(kind) + 1))
            at = found.end()
        return [*tokens, ("end", "", end + 1)]

    def parse(self) -> Node:
        tree = self._choice(0)
        kind, text, column = self.tokens[self.at]
        if kind != "end":
            raise PatternError(f"column {column}: {text!r} closes a group that was never opened")
        return tree

    def _choice(self, depth: int) -> Node:
        if depth > _NESTING_LIMIT:
            raise PatternError(f"column {self.tokens[self.at][2]}: more than {_NESTING_LIMIT} groups inside each other")
        options = [self._sequence(depth)]
        while self.tokens[self.at][1] == "|":
            self.at += 1
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Parts(tuple(options), one_of=True)

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while True:
            kind, text, column = self.tokens[self.at]
            if kind == "name":
                parts.append(self._step())
            elif text == "(":
                parts.append(self._group(depth))
            elif kind == "repeat":
                previous = self.tokens[self.at - 1][1] if self.at else ""
                what = "a group" if previous == ")" else "nothing" if previous in ("", "(", "|") else f"{previous!r}"
                raise PatternError(
                    f"column {column}: {text!r} follows {what}; only a variable can be repeated",
                    "define one variable for the choice and repeat that" if what == "a group" else None,
                )
            else:
                return parts[0] if len(parts) == 1 else Parts(tuple(parts), one_of=False)

    def _group(self, depth: int) -> Node:
        opened = self.tokens[self.at][2]
        self.at += 1
        inside = self._choice(depth + 1)
        if self.tokens[self.at][1] != ")":
            raise PatternError(f"column {opened}: '(' is never closed")
        self.at += 1
        following, sign, column = self.tokens[self.at]
        if following == "repeat":
            raise PatternError(
                f"column {column}: {sign!r} follows a group; only a variable can be repeated",
                "define one variable for the choice and repeat that; (a |) says that a may be left out",
            )
        return inside

    def _step(self) -> Step:
        _, name, column = self.tokens[self.at]
        self.at += 1
        low: int = 1
        high: int | None = 1
        kind, sign, sign_column = self.tokens[self.at]
        if kind == "repeat":
            self.at += 1
            low, high = _QUANTIFIERS[sign] if sign in _QUANTIFIERS else _counts(sign, sign_column)
        self.steps += 1
        return Step(name, low, high, self.steps - 1, column)


def _counts(text: str, column: int) -> tuple[int, int | None]:
    found = _BRACES.fullmatch(text)
    if found is None:
        raise PatternError(f"column {column}: {text!r} is not a count", "write {n}, {n,} or {n,m} with integers")
    low = int(found[1])
    high = int(found[3]) if found[3] else None if found[2] else low
    if high is not None and high < max(low, 1):
        raise PatternError(f"column {column}: {text!r} allows no row", "write {n,m} with n ≤ m and m ≥ 1")
    if max(low, high or 0) > COUNT_LIMIT:
        raise PatternError(f"column {column}: {text!r} counts beyond {COUNT_LIMIT}", "write {n,} for any number")
    return low, high


# --- what may stand next to what --------------------------------------------------------------------------------------


class _Edges(Struct, frozen=True):
    """Which steps a node may begin and end with, whether it may match no row, and how many ways it has."""

    first: tuple[Step, ...]
    last: tuple[Step, ...]
    empty: bool

    def then(self, after: _Edges) -> _Edges:
        """Return the edges of this part and another right after it."""
        return _Edges(
            self.first + after.first if self.empty else self.first,
            self.last + after.last if after.empty else after.last,
            self.empty and after.empty,
        )


def _edges(node: Node, follow: dict[int, list[Step]]) -> _Edges:
    """Fill `follow` (Glushkov) with the steps that may come right after each step (itself left out)."""
    if isinstance(node, Step):
        return _Edges((node,), (node,), node.low == 0)
    if node.one_of:
        options = [_edges(option, follow) for option in node.parts]
        return _Edges(
            tuple(step for option in options for step in option.first),
            tuple(step for option in options for step in option.last),
            any(option.empty for option in options),
        )
    before = _Edges((), (), True)
    for part in node.parts:
        after = _edges(part, follow)
        for step in before.last:
            follow.setdefault(step.number, []).extend(after.first)
        before = before.then(after)
    return before


def _ways(node: Node, fixed: frozenset[int]) -> int:
    """Return in how many ways rows can be divided from one row on; steps in `fixed` have one way."""
    if isinstance(node, Step):
        return 1 if node.number in fixed or node.high is None else node.high - node.low + 1
    return (sum if node.one_of else prod)(_ways(part, fixed) for part in node.parts)


def _most_rows(node: Node) -> int | None:
    """Return the most rows that one match can have; None where there is no bound."""
    if isinstance(node, Step):
        return node.high
    rows = [_most_rows(part) for part in node.parts]
    bounded = [count for count in rows if count is not None]
    if len(bounded) < len(rows):
        return None
    return max(bounded) if node.one_of else sum(bounded)


def _steps(node: Node) -> tuple[Step, ...]:
    if isinstance(node, Step):
        return (node,)
    return tuple(step for part in node.parts for step in _steps(part))


def variables(node: Node) -> tuple[str, ...]:
    """Return variables in the order of their first use.

    >>> variables(parse("mm (bias | cast) mm"))
    ('mm', 'bias', 'cast')
    """
    return tuple(dict.fromkeys(step.variable for step in _steps(node)))


def may_match(node: Node, there: Callable[[str], bool]) -> bool:
    """Return whether rows may match where there are none but of some variables. there: whether of this one.

    >>> tree = parse("mm (bias | cast) act?")
    >>> may_match(tree, {"mm", "cast"}.__contains__), may_match(tree, {"mm", "act"}.__contains__)
    (True, False)
    """
    if isinstance(node, Step):
        return node.low == 0 or there(node.variable)
    return (any if node.one_of else all)(may_match(part, there) for part in node.parts)


Exclusive = Callable[[str, str], bool]


def _preceding(steps: Iterable[Step], follow: Mapping[int, Iterable[Step]]) -> dict[int, list[Step]]:
    """Return the steps that may come right before each step, by its number."""
    precede: dict[int, list[Step]] = {}
    for step in steps:
        for next_step in follow.get(step.number, ()):
            precede.setdefault(next_step.number, []).append(step)
    return precede


def checked(
    tree: Node, *, text: str = "", exclusive: Exclusive = lambda one, other: False, overlapping_matches: bool = False
) -> Pattern:
    """Return the pattern, once it is known to match something and to take time linear in the rows.

    `exclusive(one, other)` is whether no row at all can satisfy both variables; without it nothing is excluded.
    `overlapping_matches` is the after_match of "skip to next row". Raises PatternError.

    >>> checked(parse("a+ b"))
    Traceback (most recent call last):
    tracemine.matching.pattern.PatternError: column 1: a+ would be scanned again from each of its rows
    >>> checked(parse("a+ b"), exclusive=lambda one, other: one != other).anchored
    frozenset({0})
    """
    follow: dict[int, list[Step]] = {}
    edges = _edges(tree, follow)
    steps = _steps(tree)
    if edges.empty:
        raise PatternError("the pattern can match no row at all", "make one variable mandatory")

    def apart(step: Step, others: Sequence[Step]) -> bool:
        return all(exclusive(step.variable, other.variable) for other in others)

    precede = _preceding(steps, follow)
    # A step that may end the pattern is followed only by what may be left out: reaching it is a match.
    ends = {step.number for step in edges.last}
    starts = {step.number for step in edges.first}
    possessive = frozenset(
        step.number for step in steps if step.number in ends or apart(step, follow.get(step.number, ()))
    )
    anchored = set()
    for step in (step for step in steps if step.long and step.number not in ends):
        once = step.number in possessive and apart(step, precede.get(step.number, ()))
        if once and step.number not in starts:
            continue
        if not once or step.high is not None or not apart(step, edges.last):
            where = f"column {step.column}"
            raise PatternError(f"{where}: {step} would be scanned again from each of its rows", _way_out(step))
        anchored.add(step.number)
    _check_size(tree, possessive, overlapping_matches=overlapping_matches)
    return Pattern(text, tree, steps, possessive, frozenset(anchored))


def _check_size(tree: Node, possessive: frozenset[int], *, overlapping_matches: bool) -> None:
    """Raise PatternError where there are too many ways to match, or overlapping matches may be too long."""
    ways = _ways(tree, possessive)
    if ways > WAYS:
        raise PatternError(
            f"the pattern has {ways:,} ways to divide the rows from one start; at most {WAYS:,} are tried",
            "lower the counts, or define variables that no row satisfies two of",
        )
    most = _most_rows(tree)
    if overlapping_matches and (most is None or most > OVERLAP_ROWS):
        raise PatternError(
            f"matches may overlap and one may have {'any number of' if most is None else f'{most:,}'} rows",
            f'bound the repetitions to {OVERLAP_ROWS} rows in all, or use after_match = "skip past last row"',
        )


def _way_out(step: Step) -> str:
    return (
        f"bound it to at most {SHORT} rows, such as {step.variable}{{{max(1, min(step.low, SHORT))},{SHORT}}}; or let "
        f"{step.variable} and the variables next to it, and the pattern's last, test one column for different values"
    )


# --- tree to regular expression --------------------------------------------------------------------------------------
