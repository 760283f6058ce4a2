"""Patterns that are compiled late fit what they fit when compiled at once."""

from __future__ import annotations

import re
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.ops.arithmetic import unit_rows
from tracemine.ops.kernels import family_rows, functor_rows
from tracemine.ops.operators import name_rows
from tracemine.ops.patterns import LatePattern

PATTERNS = [
    *(row.head for row in family_rows()),
    *(row.within for row in family_rows() if row.within is not None),
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


PIECES = st.sampled_from(
    ["a", "b", "ab", "a?", "b*", "a+", "a{0,2}", "[ab]", "[|a]", "(a|b)", r"\|", r"\w", ".", "^", "|", "$"]
)


@given(st.lists(PIECES, max_size=7).map("".join), st.text("ab|", max_size=6))
def test_any_pattern_fits_what_it_fits_compiled(text: str, name: str) -> None:
    late, plain = LatePattern(text), re.compile(text)
    assert str(late.search(name)) == str(plain.search(name))
    assert str(late.fullmatch(name)) == str(plain.fullmatch(name))
