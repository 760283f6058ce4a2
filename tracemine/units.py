"""Numbers to text for people. The only module that rounds: everything else keeps integer ns and bytes."""

from __future__ import annotations

_TIME = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))


def _scaled(value: float, scale: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in scale:
        # 999.6 of a unit would round to "1000": hand such a value to the next unit up.
        if abs(value) >= factor * 0.9995 or factor == 1:
            number = value / factor
            digits = 0 if factor == 1 or abs(number) >= 99.95 else 1 if abs(number) >= 9.995 else 2
            return f"{number:.{digits}f} {unit}"
    raise AssertionError("the last factor is 1")


def time_text(ns: float) -> str:
    """A duration with three significant digits.

    >>> time_text(950), time_text(12_345), time_text(1_500_000), time_text(0)
    ('950 ns', '12.3 µs', '1.50 ms', '0 ns')
    """
    return _scaled(ns, _TIME)


def bytes_text(count: float) -> str:
    """A size in decimal units with three significant digits.

    >>> bytes_text(36_634_624), bytes_text(12)
    ('36.6 MB', '12 B')
    """
    return _scaled(count, _BYTES)


def percent_text(part: float, whole: float) -> str:
    """A share in percent; "–" of nothing.

    >>> percent_text(1, 8), percent_text(1, 0), percent_text(1, 3000)
    ('12.5 %', '–', '<0.1 %')
    """
    if not whole:
        return "–"
    share = 100 * part / whole
    return "<0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"
