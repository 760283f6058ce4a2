"""Times as people write them, and numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracemine.units import parse_percent, parse_time, range_text, time_text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("50us", 50_000),
        ("50 µs", 50_000),
        ("50μs", 50_000),
        ("0.1ms", 100_000),
        (".5 s", 500_000_000),
        ("1.0000000001s", 1_000_000_000),
        ("0ns", 0),
        (" 2 MS ", 2_000_000),
    ],
)
def test_a_time_is_read_exactly(text: str, ns: int) -> None:
    assert parse_time(text) == ns


@pytest.mark.parametrize(
    "text",
    ["", "5", "us", "-1us", "1e3us", "1,5ms", "1 2ms", "nan s", "inf s", "١ms", "5m", "5 min", "9" * 18 + "s", "1%"],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time|31 years"):
        parse_time(text)


@pytest.mark.parametrize("text", ["", "1", "%", "-1%", "101%", "1e1%", "1%%", "1000%"])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a percentage"):
        parse_percent(text)


@given(st.integers(0, 10**18))
def test_a_time_is_within_half_a_percent_of_its_text(ns: int) -> None:
    assert abs(parse_time(time_text(ns)) - ns) <= 0.005 * ns


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**15))
def test_a_range_names_both_ends(low: int, more: int) -> None:
    text = range_text(low, low + more)
    assert text.endswith(time_text(low + more))
    assert text.startswith(time_text(low).split()[0])
