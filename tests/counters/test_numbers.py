"""Numbers of every locale are read as they were meant, or it is said that nothing tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.formats.ncu.table import Style, is_unsure, parser, style_of


def printed(value: float, style: Style, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return text if style == "." else text.translate(str.maketrans(".,", ",."))


@given(st.floats(0, 1e12), st.sampled_from([".", ","]), st.sampled_from([0, 1, 2, 6]))
def test_a_number_never_tells_the_other_locale(value: float, style: Style, decimals: int) -> None:
    text = printed(value, style, decimals)
    assert style_of(text) in (style, None)
    assert parser(style)(text) == pytest.approx(value, abs=0.6 * 10**-decimals, rel=1e-15)


@pytest.mark.parametrize("text", ["1,234", "1.234", "117.344", "999,000"])
def test_one_group_of_three_is_unsure(text: str) -> None:
    assert is_unsure(text)
    assert style_of(text) is None


@pytest.mark.parametrize("text", ["n/a", "nan", "(!) nan", "inf", "-inf", "PolicySpread", "", "all", "1_000", "0x10"])
def test_a_word_is_no_number(text: str) -> None:
    assert parser(".")(text) is None


def test_blanks_may_group_thousands() -> None:
    assert parser(",")("1\u202f234\u00a0567,5") == 1234567.5
