"""What fixes of a rule were measured to save in programs, by what was said of them: corrects what is said of others."""

from __future__ import annotations

from typing import Final

import msgspec

from tracemine.perfmodel import Range
from tracemine.tables import table_beside


class MeasuredFixes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one rule, measured savings of a step by the likely one that was said; least and most without the outermost."""

    programs: int
    least: float
    middle: float
    most: float


MEASURED: Final[dict[str, MeasuredFixes]] = msgspec.convert(
    table_beside(__file__, "measured_fixes.toml"), dict[str, MeasuredFixes]
)


def corrected(said: Range, measured: MeasuredFixes | None) -> Range:
    """Return a saving as fixes of its rule turned out elsewhere: its interval holds what it held, and more.

    >>> corrected(Range(0, 100, 120), MeasuredFixes(programs=9, least=0.5, middle=1.2, most=1.6))
    Range(low=0, mid=120, high=160)
    """
    if measured is None:
        return said
    mid = round(said.mid * measured.middle)
    low, high = min(said.low, round(said.mid * measured.least)), max(said.high, round(said.mid * measured.most))
    return Range(min(low, mid), mid, max(high, mid))
