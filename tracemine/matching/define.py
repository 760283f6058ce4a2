"""DEFINE: what a variable's tests mean, for one value, for a whole column, and for two variables side by side.

Tests are data. Nothing in a rule file is evaluated; a regular expression sees each distinct text once, and of a long
one the first 4,096 characters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Final, cast

import numpy as np
from msgspec import Struct

from tracemine.matching.rule import ColumnTest, Value
from tracemine.patterns import deferred
from tracemine.rows.table import BoolArray, Categories, Column, Numbers

# A regular expression over a text of n characters may take n² steps, times this.
_REGEX_WAYS: Final = 1000
_REGEX_SHORT: Final = 16
# The text is a stranger's too: no more of it is searched than of a kernel's name (ops/kernels.py).
LONGEST_SEARCHED: Final = 4096


class Relation(Struct, frozen=True):
    """How a test compares: for which kinds of column, whether a list of values is allowed, and for one value."""

    kinds: tuple[str, ...]
    many: bool
    holds: Callable[[Value, Value], bool]


def _found(value: Value, text: Value) -> bool:
    return re.search(str(text), str(value)[:LONGEST_SEARCHED]) is not None


RELATIONS: Final = {
    "is": Relation(("numbers", "categories", "flags"), True, operator.eq),
    "contains": Relation(("categories",), True, lambda value, text: str(text) in str(value)),
    "re": Relation(("categories",), False, _found),
    "lt": Relation(("numbers",), False, operator.lt),
    "lte": Relation(("numbers",), False, operator.le),
    "gt": Relation(("numbers",), False, operator.gt),
    "gte": Relation(("numbers",), False, operator.ge),
}


def holds(test: ColumnTest, value: Value) -> bool:
    """Return whether one value passes the test.

    >>> holds(ColumnTest("op", "is", ("gelu", "silu")), "silu"), holds(ColumnTest("dur_ns", "lt", (5,)), 5)
    (True, False)
    """
    relation = RELATIONS[test.relation]
    return any(relation.holds(value, other) for other in test.values)


def column_holds(test: ColumnTest, column: Column, rows: slice) -> BoolArray:
    """Return which of the rows pass the test; a null never does."""
    if isinstance(column, Categories):
        return category_holds(test, column)[column.codes[rows]]
    values = column.values[rows]
    relation = RELATIONS[test.relation].holds
    passed = cast("BoolArray", relation(cast("int", values), test.values[0]))
    for other in test.values[1:]:
        passed |= cast("BoolArray", relation(cast("int", values), other))
    if isinstance(column, Numbers) and column.valid is not None:
        passed &= column.valid[rows]
    return passed


def holds_of_some(test: ColumnTest, column: Column) -> bool:
    """Return whether a value of the column may pass the test; of categories alone that is looked at.

    >>> names = Categories(np.array([0, 0], np.int32), ("gelu",))
    >>> holds_of_some(ColumnTest("op", "is", ("silu",)), names), holds_of_some(ColumnTest("op", "is", ("gelu",)), names)
    (False, True)
    """
    return not isinstance(column, Categories) or any(holds(test, value) for value in column.values)


def category_holds(test: ColumnTest, column: Categories) -> BoolArray:
    """Return which distinct values pass, by code; one more at the end, for code -1 (null), which does not."""
    return np.fromiter((*(holds(test, value) for value in column.values), False), np.bool_, len(column.values) + 1)


# --- variables side by side ------------------------------------------------------------------------------------------


def exclusive(one: Sequence[ColumnTest], other: Sequence[ColumnTest]) -> bool:
    """Return whether the tests themselves say that no row passes both; False where they do not tell.

    >>> gelu, add = ColumnTest("op", "is", ("gelu",)), ColumnTest("op", "is", ("add",))
    >>> exclusive([gelu], [add]), exclusive([gelu], [ColumnTest("dur_ns", "lt", (5,))])
    (True, False)
    """
    shared = {test.column for test in one} & {test.column for test in other}
    return any(impossible([test for test in (*one, *other) if test.column == column]) for column in shared)


def impossible(tests: Iterable[ColumnTest]) -> bool:
    """Return whether no value can pass all these tests on one column.

    >>> impossible([ColumnTest("dur_ns", "lt", (5,)), ColumnTest("dur_ns", "gte", (5,))])
    True
    """
    tests = list(tests)
    for test in tests:
        if test.relation == "is":
            return not any(all(holds(each, value) for each in tests) for value in test.values)
    floors = [(cast("float", t.values[0]), t.relation == "gt") for t in tests if t.relation in ("gt", "gte")]
    ceilings = [(cast("float", t.values[0]), t.relation == "lt") for t in tests if t.relation in ("lt", "lte")]
    return any(
        low > high or (low == high and (low_open or high_open))
        for low, low_open in floors
        for high, high_open in ceilings
    )


# --- regular expressions of a stranger's rule ------------------------------------------------------------------------

_REGEX_TOKEN = deferred(
    r"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\((?:\?[^:)]*:?)?)"
    r"|(?P<close>\))|(?P<or>\|)|(?P<repeat>[*+?]|\{\d*,?\d*\})|(?P<other>.)",
    re.DOTALL,
)


def regex_problem(text: str) -> str | None:
    """Return why this regular expression may not be used; None where it may.

    Refused: what `re` does not read, back-references, lookaround, a repeated group (its repetitions can nest and take
    exponential time), and more unbounded repetitions than keep the time at the square of the text's length.

    >>> regex_problem(r"^void .*elementwise_kernel"), regex_problem("(a+)+x")
    (None, "a group is repeated by '+', which can take exponential time")
    """
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        return f"it is not a regular expression: {error}"
    tokens = [(str(found.lastgroup), found[0]) for found in _REGEX_TOKEN.finditer(text)]
    steps = list(pairwise([("start", ""), *tokens]))
    if refused := next(filter(None, (_refused(before, kind, token) for (before, _), (kind, token) in steps)), None):
        return refused
    branches, alternatives = _regex_branches(kind for _, (kind, _) in steps)
    # A second sign only makes the first lazy or possessive.
    repeats = [_regex_counts(token) for (before, _), (kind, token) in steps if kind == "repeat" and before != "repeat"]
    lengths = [high - low + 1 for low, high in repeats if high is not None and high <= _REGEX_SHORT]
    unbounded, ways = len(repeats) - len(lengths), alternatives * prod(lengths)
    searched = int(branches != 1 or not text.startswith(("^", r"\A")))
    if unbounded + searched > 2:
        return (
            f"{unbounded} unbounded repetitions in it can take the {_power(unbounded + searched)} power of the text's "
            "length; one is allowed, or two after a leading ^"
        )
    if ways * branches > _REGEX_WAYS:
        return f"its choices multiply to {ways * branches:,}; at most {_REGEX_WAYS:,} are tried"
    return None


def _regex_branches(kinds: Iterable[str]) -> tuple[int, int]:
    """Return how many alternatives an expression has outside its groups, and the product of those inside."""
    inside, branches = 1, [1]
    for kind in kinds:
        if kind == "open":
            branches.append(1)
        elif kind == "or":
            branches[-1] += 1
        elif kind == "close":
            inside *= branches.pop()
    return branches[0], inside


def _refused(before: str, kind: str, token: str) -> str | None:
    """Say why a token may not stand behind another; None: it may."""
    if kind == "open" and token.startswith("(?") and not re.fullmatch(r"\(\?[aims-]*:", token):
        return f"{token!r} is not offered: only ( ) and (?: )"
    if kind == "escape" and token[1] in "123456789":
        return f"{token!r} refers back to a group"
    if kind == "repeat" and before == "close" and token != "?":  # noqa: S105 — a token of the grammar
        return f"a group is repeated by {token!r}, which can take exponential time"
    return None


def _regex_counts(token: str) -> tuple[int, int | None]:
    if token in ("*", "+", "?"):
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token]
    low, comma, high = token[1:-1].partition(",")
    return int(low or 0), int(high) if high else None if comma else int(low or 0)


def _power(number: int) -> str:
    return {3: "third", 4: "fourth", 5: "fifth"}.get(number, f"{number}th")
