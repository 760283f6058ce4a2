"""Numbers as Nsight Compute prints them: with the groups and the decimal sign of the user's locale."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Literal

Style = Literal[".", ","]  # the decimal sign; the other one groups thousands

# What only one of the two can have written. `1,234` and `1.234` fit both: they say nothing.
_POINT = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+\.\d*|\d{1,3}(?:,\d{3}){2,}|\d+\.\d{1,2}|\d{4,}\.\d+|\d+\.\d{4,}|0\.\d+)")
_COMMA = re.compile(r"-?(?:\d{1,3}(?:\.\d{3})+,\d*|\d{1,3}(?:\.\d{3}){2,}|\d+,\d{1,2}|\d{4,},\d+|\d+,\d{4,}|0,\d+)")
_UNSURE = re.compile(r"-?\d{1,3}[.,]\d{3}")
_BLANKS = {ord(blank): None for blank in "\u00a0\u202f '’"}  # which some locales group by


def style_of(text: str) -> Style | None:
    """Return the decimal sign that this number must have been printed with; None where it tells nothing.

    >>> [style_of(text) for text in ("1,234.5", "12,50", "27.595.520", "1,234", "n/a")]
    ['.', ',', ',', None, None]
    """
    text = text.translate(_BLANKS)
    return "." if _POINT.fullmatch(text) else "," if _COMMA.fullmatch(text) else None


def is_unsure(text: str) -> bool:
    """Return whether a number reads as two numbers 1000 times apart, by the style.

    >>> is_unsure("1,234"), is_unsure("12.50")
    (True, False)
    """
    return _UNSURE.fullmatch(text.translate(_BLANKS)) is not None


def parser(style: Style) -> Callable[[str], float | None]:
    """Return what reads numbers of this style; it gives None for what is no finite number (`n/a`, `(!) nan`, a word).

    >>> parser(".")("1,234.5"), parser(",")("1.234,5"), parser(".")("n/a"), parser(".")("inf")
    (1234.5, 1234.5, None, None)
    """
    group = "," if style == "." else "."

    def number(text: str) -> float | None:
        plain = text.translate(_BLANKS).replace(group, "").replace(style, ".")
        try:
            value = float(plain)
        except ValueError:
            return None
        return value if math.isfinite(value) and "_" not in plain else None

    return number


def styles_of(texts: Iterable[str]) -> dict[Style, str]:
    """Return the styles that these numbers were printed in, each with the first number that shows it.

    >>> styles_of(["7", "1,234", "12.50", "12,50"])
    {'.': '12.50', ',': '12,50'}
    """
    found: dict[Style, str] = {}
    for text in texts:
        style = style_of(text)
        if style is not None:
            found.setdefault(style, text)
    return found
