"""Single values of a Kineto trace: times to whole nanoseconds, and what stands where something else belongs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, DecimalException
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Raw

from tracemine.formats.kineto.scan import MISSING

NOT_THERE = Raw(b"")

# µs as float64. Below this bound neighbouring floats are at most 2⁻¹⁰ µs apart, so a literal with three decimals is
# off by at most 2⁻¹¹ µs = 0.49 ns. Taking the whole µs off is exact, and rounding the rest × 1000 to an integer
# therefore gives the literal's own nanoseconds. (Multiplying first would not: the product is rounded to 0.5 ns there.)
# Kineto's times since its three-month base stay below; fractional microseconds since 1970 do not, and are read as text.
_EXACT_BELOW_US = 2.0**43
_SURE_DIGITS = 18  # an integer of so many is an int64
NS_LIMIT = 1 << 62  # the sum of a base and a time below it fits int64

_ARGUMENTS = msgspec.json.Decoder(dict[str, Raw])


class InexactTimes(Exception):
    """Times too large for float64: this block and all after it are decoded with times as text."""


def exact_ns(text: bytes) -> int:
    """Nanoseconds of a JSON number of microseconds, or of a string that holds one; MISSING if it is neither.

    >>> exact_ns(b"1712195495406752.832"), exact_ns(b"12"), exact_ns(b'"1.5e3"'), exact_ns(b"null") == MISSING
    (1712195495406752832, 12000, 1500000, True)
    """
    whole, point, fraction = text.partition(b".")
    try:
        ns = int(whole + fraction) if len(fraction) == 3 else int(whole) * 1000 if not point else None
    except ValueError:
        ns = None
    if ns is None:
        try:
            number = Decimal(text.strip(b'" ').decode()) * 1000
            ns = int(number.to_integral_value()) if abs(number) < NS_LIMIT else MISSING
        except (DecimalException, UnicodeDecodeError):
            ns = MISSING
    return ns if -NS_LIMIT < ns < NS_LIMIT else MISSING


def numbers_to_ns(values: list[int | float]) -> npt.NDArray[np.int64]:
    """Nanoseconds of microseconds as they were decoded; MISSING where one is NaN.

    Raises InexactTimes if float64 need not hold what the file said.

    >>> numbers_to_ns([1.5, 0.001]).tolist()
    [1500, 1]
    """
    us = np.array(values)
    limit = NS_LIMIT // 1000
    if us.dtype.kind == "i" and ((-limit < us) & (us < limit)).all():  # whole µs, which torch wrote until 2.2
        return us * 1000
    if us.dtype.kind != "f":
        raise InexactTimes
    missing = np.isnan(us)
    us[missing] = 0
    if not (np.abs(us) < _EXACT_BELOW_US).all():
        raise InexactTimes
    whole = np.floor(us)
    ns: npt.NDArray[np.int64] = whole.astype(np.int64) * 1000
    ns += np.rint((us - whole) * 1000).astype(np.int64)
    ns[missing] = MISSING
    return ns


def texts_to_ns(values: list[Raw]) -> npt.NDArray[np.int64]:
    """As `exact_ns`, of many."""
    return np.array(list(map(exact_ns, map(bytes, values))), np.int64)


def text_of(raw: Raw) -> str:
    """Return a string as itself, null as nothing, anything else as its JSON text.

    Raises UnicodeDecodeError if it is not UTF-8.
    """
    text = bytes(raw)
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str)
    return "" if text == b"null" else text.decode()


def scalar_of(raw: Raw, absent: Any = None) -> Any:
    """Return a process or thread id: int or str."""
    text = bytes(raw)
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str)
    number = integer_of(text.decode())
    return absent if number is None else number


def integer_of(value: Any) -> int | None:
    """Return the int64 that a number or its text is; None if it is no integer in that range."""
    text = str(value).strip()
    if text.isascii() and text.isdigit() and len(text) <= _SURE_DIGITS:
        return int(text)
    try:
        number = Decimal(text)
        return int(number) if abs(number) < NS_LIMIT * 2 and number == number.to_integral_value() else None
    except DecimalException:
        return None


def members_of(raw: Raw) -> dict[str, Raw]:
    """Return the members of an object as JSON text; none of anything else."""
    try:
        return _ARGUMENTS.decode(raw)
    except msgspec.ValidationError:
        return {}


def object_of(raw: Raw) -> dict[str, Any]:
    """Return an object; an empty one of anything else."""
    value = msgspec.json.decode(raw) if bytes(raw) else {}
    return value if isinstance(value, dict) else {}


def _read_number(raw: Raw, repaired: Counter[str], absent: Any, convert: Callable[[str], Any]) -> Any:
    text = bytes(raw).decode().strip('" ')
    if text == "null":
        return absent
    value = convert(text)
    if value is None:
        repaired["text where a number belongs read as not recorded"] += 1
        return absent
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


READERS: dict[str, Callable[[Raw, Counter[str]], Any]] = {
    "integer": lambda raw, repaired: _read_number(raw, repaired, MISSING, integer_of),
    "number": lambda raw, repaired: _read_number(raw, repaired, math.nan, _finite),
    "text": lambda raw, _: None if bytes(raw) == b"null" else text_of(raw),
    "raw": lambda raw, _: NOT_THERE if bytes(raw) == b"null" else Raw(bytes(raw)),
}
