"""Type promotion: the dtype of a result, from those of tensors with axes, of 0-dim tensors and of Python numbers."""

from __future__ import annotations

from collections.abc import Iterable

DEFAULT = "float32"  # what a Python float becomes among integers; a trace does not say that the default was changed

_CATEGORY = {
    "bool": 0,
    **dict.fromkeys(("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"), 1),
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), 2),
    **dict.fromkeys(("complex32", "complex64", "complex128"), 3),
}
_FLOATS = {"float16": 0, "bfloat16": 0, "float32": 1, "float64": 2}
_SIGNED = {"int8": 0, "int16": 1, "int32": 2, "int64": 3}
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_WHOLES = {"float16": "complex32", "bfloat16": "complex64", "float32": "complex64", "float64": "complex128"}


def category(dtype: str) -> int:
    """Return 0 for bool, 1 integer, 2 floating, 3 complex. Raises ValueError for types that do not take part.

    >>> category("int64"), category("bfloat16")
    (1, 2)
    """
    found = _CATEGORY.get(dtype)
    if found is None:
        raise ValueError(f"{dtype} takes no part in type promotion")
    return found


def promote(first: str, second: str) -> str:
    """Return the common dtype of two tensors of equal rank in promotion. Raises ValueError where torch has none.

    >>> promote("float16", "bfloat16"), promote("uint8", "int8"), promote("int64", "float16")
    ('float32', 'int16', 'float16')
    """
    if first == second:
        return first
    low, high = sorted((first, second), key=category)
    kind, above = category(low), category(high)
    if above == 3:
        part = _PARTS[high]
        return _WHOLES[promote(part, _PARTS.get(low, low))] if kind >= 2 else high
    if kind != above:
        return high
    if above == 2:
        return "float32" if _FLOATS[low] == _FLOATS[high] else max(low, high, key=_FLOATS.__getitem__)
    if low in _SIGNED and high in _SIGNED:
        return max(low, high, key=_SIGNED.__getitem__)
    signed = {low, high} & _SIGNED.keys()
    if "uint8" in (low, high) and signed:
        return max("int16", *signed, key=_SIGNED.__getitem__)
    raise ValueError(f"{low} and {high} have no common dtype")


def real(dtype: str) -> str:
    """Return the dtype of the parts of a complex one; any other as it is.

    >>> real("complex64"), real("int8")
    ('float32', 'int8')
    """
    return _PARTS.get(dtype, dtype)


def whole(dtype: str) -> str:
    """Return the complex dtype of which a real one is the parts; any other as it is.

    >>> whole("float32"), whole("complex64")
    ('complex64', 'complex64')
    """
    return _WHOLES.get(dtype, dtype)


def floating(dtype: str) -> str:
    """Return what arithmetic that leaves the integers makes of a dtype.

    >>> floating("int64"), floating("bfloat16")
    ('float32', 'bfloat16')
    """
    return DEFAULT if category(dtype) < 2 else dtype


def result_type(shaped: Iterable[str], zero_dim: Iterable[str] = (), numbers: Iterable[str] = ()) -> str:
    """Promote as torch.result_type: a lower rank counts only by a higher category. Raises ValueError without answer.

    >>> result_type(["float16"], ["float64"]), result_type(["int32"], [], ["float64"]), result_type(["bool"], ["int8"])
    ('float16', 'float32', 'int8')
    """
    ranks = (_common(shaped), _common(zero_dim), _common(_weak(number) for number in numbers))
    result = _over(ranks[0], _over(ranks[1], ranks[2]))
    if result is None:
        raise ValueError("no tensor takes part")
    return result


def _weak(number: str) -> str:
    return {"float64": DEFAULT, "complex128": _WHOLES[DEFAULT]}.get(number, number)


def _common(dtypes: Iterable[str]) -> str | None:
    result: str | None = None
    for dtype in dtypes:
        result = dtype if result is None else promote(result, dtype)
    return result


def _over(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return higher or lower
    above, below = category(higher), category(lower)
    if above == 2 and below == 3:
        return _WHOLES[higher]
    return promote(higher, lower) if above < 2 and (above == 0 or below >= 2) else higher
