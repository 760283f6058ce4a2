"""Patterns that are compiled late fit what they fit when compiled at once."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.ops import patterns
from tracemine.ops.kernel_names import unit_rows
from tracemine.ops.kernels import family_rows, functor_rows
from tracemine.ops.operators import name_rows
from tracemine.ops.patterns import LatePattern, needs_text

PATTERNS = [
    *(pattern for row in family_rows() for pattern in (row.head, row.within) if pattern is not None),
    *(row.pattern for row in chain(functor_rows(), unit_rows(), name_rows())),
]
EXAMPLES = [
    *(example for row in family_rows() for example in row.examples),
    *(example for row in chain(functor_rows(), unit_rows(), name_rows()) for example in row.examples),
]


@pytest.mark.parametrize("name", EXAMPLES[:: max(len(EXAMPLES) // 200, 1)])
def test_each_pattern_of_the_tables_fits_what_it_fits_compiled(name: str) -> None:
    for pattern in PATTERNS:
        plain = re.compile(pattern.pattern)
        assert bool(pattern.search(name)) == bool(plain.search(name)), pattern.pattern
        assert bool(pattern.fullmatch(name)) == bool(plain.fullmatch(name)), pattern.pattern


LETTERS = ["a", "b", "ab", "a?", "b*", "a+", "a{0,2}", "[ab]", "[|a]", r"\|", r"\w", ".", "^", "|", "$"]
PIECES = st.sampled_from([*LETTERS, "(a|b)", "(?:ab|b)", "(", ")", "(?=a)", "(?i:a)"])


@given(st.lists(PIECES, max_size=7).map("".join), st.text("ab|", max_size=6))
def test_any_pattern_fits_what_it_fits_compiled(text: str, name: str) -> None:
    with suppress(re.error):
        plain = re.compile(text)
        fits_alike(LatePattern(text), plain, name)


def fits_alike(late: LatePattern, plain: re.Pattern[str], name: str) -> None:
    assert str(late.search(name)) == str(plain.search(name))
    assert str(late.fullmatch(name)) == str(plain.fullmatch(name))


def test_what_the_tables_patterns_need_is_known_beforehand() -> None:
    place = Path(patterns.__file__).with_name("needs.json")
    assert place.read_text("utf-8") == needs_text(PATTERNS), "python docs/generate.py writes it"


def test_a_pattern_of_the_tables_is_compiled_for_few_names() -> None:
    """Of a name that fits none of them three patterns cannot say so."""
    asked = [each for each in PATTERNS if each.begins == ("",) or "" in each.contains]
    assert len(asked) <= 3
