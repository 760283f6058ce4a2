"""Numbers to text for people, and people's times to numbers. The only module that rounds: everything else keeps
integer ns and bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

MINUS = "−"  # as wide as a plus; a hyphen is none
_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3, "μs": 10**3, "ns": 1}  # both of Unicode's micro signs
_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))


# No wait is longer than this: 31 years. It keeps every product of two numbers within an int64.
_LONGEST_NS = 10**18


def _scaled(value: float, scale: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in scale:
        # 999.6 of a unit would round to "1000": hand such a value to the next unit up.
        if abs(value) >= factor * 0.9995 or factor == 1:
            number = value / factor
            digits = 0 if factor == 1 or abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
            return f"{number:.{digits}f} {unit}".replace("-", MINUS)
    raise AssertionError("the last factor is 1")


def time_text(ns: float) -> str:
    """Return a duration with three significant digits.

    >>> time_text(950), time_text(12_345), time_text(1_500_000), time_text(0)
    ('950 ns', '12.3 µs', '1.50 ms', '0 ns')
    """
    return _scaled(ns, _TIME)


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """One unit for a column of times, as fine as the longest of them needs."""

    name: str
    ns: int
    digits: int

    @staticmethod
    def of(longest_ns: int) -> TimeUnit:
        """Return the unit in which a time has two digits before the point, and what is a hundredth of it one.

        >>> TimeUnit.of(1_360_000).text(270_000), TimeUnit.of(15_000_000).text(270_000), TimeUnit.of(85_000).text(900)
        ('270', '0.3', '0.9')
        """
        for ns, name in _TIME:
            if longest_ns >= 9.9995 * ns or ns == 1:
                return TimeUnit(name, ns, 1 if (longest_ns < 99.95 * ns or ns > 1_000) and ns > 1 else 0)
        raise AssertionError("the last factor is 1")

    def text(self, ns: float) -> str:
        """Return a time in this unit, without its name: something is not said to be nothing.

        >>> TimeUnit.of(1_360_000).text(1_360_499), TimeUnit.of(1_360_000).text(100), TimeUnit.of(1_360_000).text(0)
        ('1,360', '<1', '0')
        """
        least = 10.0**-self.digits
        number = ns / self.ns
        if 0 < number < least:
            return f"<{least:.{self.digits}f}"
        return f"{number:,.{self.digits}f}" if number else "0"


def bytes_text(count: float) -> str:
    """Return a size in decimal units with three significant digits.

    >>> bytes_text(36_634_624), bytes_text(12)
    ('36.6 MB', '12 B')
    """
    return _scaled(count, _BYTES)


def percent_text(part: float, whole: float) -> str:
    """Return a share in percent; "–" of nothing.

    >>> percent_text(1, 8), percent_text(1, 0), percent_text(1, 3000)
    ('12.5%', '–', '<0.1%')
    """
    if not whole:
        return "–"
    share = 100 * part / whole
    return "<0.1%" if 0 < share < 0.1 else f"{share:.1f}%".replace("-", MINUS)


def range_text(low_ns: int, high_ns: int) -> str:
    """Return the text from the low to the high end of an estimate.

    >>> range_text(310_000, 520_000), range_text(950_000, 1_200_000), range_text(0, 80_000), range_text(5, 5)
    ('310–520 µs', '950 µs–1.20 ms', '0–80.0 µs', '5 ns')
    >>> range_text(-3_000, 2_000)
    '−3.00 µs to 2.00 µs'
    """
    low, high = time_text(low_ns), time_text(high_ns)
    if low == high:
        return low
    if low_ns < 0:
        return f"{low} to {high}"  # a dash before a minus sign is hard to read
    (number, unit), (_, high_unit) = low.split(), high.split()
    return f"{number}–{high}" if unit == high_unit or number == "0" else f"{low}–{high}"


def count_text(count: int, noun: str) -> str:
    """Return an integer with its noun.

    >>> count_text(1, "finding"), count_text(12_345, "activity"), count_text(2, "match"), count_text(2, "graph")
    ('1 finding', '12,345 activities', '2 matches', '2 graphs')
    """
    if count != 1:
        noun = (
            f"{noun[:-1]}ies"
            if noun.endswith("y") and noun[-2] not in "aeiou"
            else f"{noun}es"
            if noun.endswith(("ch", "sh", "s", "x", "z"))
            else f"{noun}s"
        )
    return f"{count:,} {noun}"


def shares(weights: Sequence[int], whole: int) -> list[int]:
    """Return integers in proportion to the weights, with that sum: each rounded down, the largest remainders up.

    >>> shares([1, 1, 1], 100), shares([0, 5], 3), shares([0, 0], 7)
    ([34, 33, 33], [0, 3], [0, 0])
    """
    total = sum(weights)
    if not total:
        return [0] * len(weights)
    found = [weight * whole // total for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda at: -(weights[at] * whole % total))
    for at in by_remainder[: whole - sum(found)]:
        found[at] += 1
    return found


def ratio_text(ratio: float) -> str:
    """Return a plain number with two significant digits, such as FLOP per byte.

    >>> ratio_text(0.1234), ratio_text(3.4567), ratio_text(2152.4), ratio_text(0)
    ('0.12', '3.5', '2,152', '0')
    """
    return f"{ratio:,.0f}" if ratio >= 9.5 or ratio == 0 else f"{ratio:.2g}"


def parse_time(text: str) -> int:
    """Return whole nanoseconds of "0.1ms", "50us", "50 µs", "2 s".

    Raises ValueError for everything else: a number without a unit, a negative one, more than 31 years.

    >>> parse_time("0.1ms"), parse_time("50us"), parse_time("2 s")
    (100000, 50000, 2000000000)
    """
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,18})?|\.\d{1,18})\s*([a-zµμ]+)\s*", text, re.ASCII | re.IGNORECASE)
    factor = found and _NS.get(found[2].lower())
    if not found or not factor:
        raise ValueError(f"{text!r} is not a time")
    ns = round(Fraction(found[1]) * factor)
    if ns > _LONGEST_NS:
        raise ValueError(f"{text!r} is longer than 31 years")
    return ns


def parse_percent(text: str) -> Fraction:
    """Return the share that "1%" or "0.5%" says, exactly.

    Raises ValueError for everything else, and for more than 100%.

    >>> parse_percent("0.5%")
    Fraction(1, 200)
    """
    found = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,18})?|\.\d{1,18})\s*%\s*", text, re.ASCII)
    share = Fraction(found[1]) / 100 if found else Fraction(2)
    if share > 1:
        raise ValueError(f"{text!r} is not a percentage")
    return share


@dataclass(frozen=True, slots=True)
class Threshold:
    """At least this much: whole nanoseconds over the trace, or a share of its span."""

    ns: int | None = None
    share: Fraction | None = None

    def of(self, span_ns: int) -> int:
        """Return a time in nanoseconds, for a trace that spans so many.

        >>> Threshold(share=Fraction(1, 100)).of(5_000)
        50
        """
        return self.ns if self.ns is not None else round((self.share or 0) * span_ns)


def parse_threshold(text: str) -> Threshold:
    """Return a time or a share: "0.1ms", "50us", "1%".

    Raises ValueError for what is neither.

    >>> parse_threshold("0.1ms")
    Threshold(ns=100000, share=None)
    """
    return Threshold(share=parse_percent(text)) if "%" in text else Threshold(ns=parse_time(text))


_UNEVEN = 0.2  # (p90 − p10) ÷ p50 beyond which one number is not what a step takes


def uneven_text(p10_ns: int | None, p50_ns: int, p90_ns: int | None) -> str:
    """Say between what steps lie, where they differ so much that the middle one does not represent them; else "".

    >>> uneven_text(90_000, 100_000, 111_000), uneven_text(95_000, 100_000, 110_000), uneven_text(None, 100_000, None)
    ('8 of 10 steps took 90.0 µs to 111 µs', '', '')
    """
    if p10_ns is None or p90_ns is None or p90_ns - p10_ns <= _UNEVEN * p50_ns:
        return ""
    return f"8 of 10 steps took {time_text(p10_ns)} to {time_text(p90_ns)}"
