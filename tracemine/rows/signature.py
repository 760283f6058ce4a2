"""The JSON texts in which an operator's inputs are recorded, read for rules. Damaged text reads as not recorded."""

from __future__ import annotations

from typing import Any

import msgspec

from tracemine.ops import dtype


def texts(json_text: str | None) -> tuple[str, ...] | None:
    """Return a list of strings, such as recorded dtypes; None where it is not one.

    >>> texts('["float","Scalar"]'), texts(None), texts("[1]")
    (('float', 'Scalar'), None, None)
    """
    if json_text is None:
        return None
    try:
        return tuple(msgspec.json.decode(json_text, type=list[str]))
    except (msgspec.DecodeError, RecursionError):
        return None


def decoded_inputs(
    shapes: str | None, dtypes: str | None, strides: str | None, concrete: str | None
) -> tuple[Any, Any, Any, Any] | None:
    """Return a call's inputs as `infer` takes them; None where shapes or dtypes were not recorded, or one is damaged.

    >>> decoded_inputs("[[2, 3]]", '["float"]', None, None)
    ([[2, 3]], ['float'], None, None)
    """
    if shapes is None or dtypes is None:
        return None
    try:
        sizes, types = msgspec.json.decode(shapes), msgspec.json.decode(dtypes)
        steps, values = (None if text is None else msgspec.json.decode(text) for text in (strides, concrete))
    except (msgspec.DecodeError, RecursionError):
        return None
    return sizes, types, steps, values


def first_tensor(shapes: str | None, dtypes: str | None) -> tuple[str | None, str | None]:
    """Return the shape, as text, and the dtype of the first tensor input; of a TensorList, the first member's shape.

    >>> first_tensor("[[],[16,559,1024]]", '["Scalar","c10::BFloat16"]')
    ('[16,559,1024]', 'bfloat16')
    >>> first_tensor("[[[2,3],[2,3]],[]]", '["TensorList","Scalar"]')
    ('[2,3]', None)
    """
    types = texts(dtypes)
    if shapes is None or types is None:
        return None, None
    try:
        sizes: list[Any] = msgspec.json.decode(shapes, type=list[list[Any]])
    except (msgspec.DecodeError, RecursionError):
        return None, None
    for size, recorded in zip(sizes, types, strict=False):
        if recorded in ("TensorList", "GenericList"):
            if size and isinstance(size[0], list):
                return _text(size[0]), None
        elif (name := dtype(recorded)) is not None:
            return _text(size), name
    return None, None


def _text(shape: list[Any]) -> str | None:
    if not all(isinstance(size, int) for size in shape):
        return None
    return "[" + ",".join(map(str, shape)) + "]"
