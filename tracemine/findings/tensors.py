"""Recorded inputs of an operator call, for people: the first shape, and the dtype of what is read."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tracemine.ops import dtype, lookup
from tracemine.rows.signature import texts


@lru_cache(maxsize=16384)
def read_dtype(op: str, dtypes: str) -> str | None:
    """Return the dtype of the first tensor that a call reads; None where no single tensor is read.

    >>> read_dtype("aten::copy_", '["float", "c10::BFloat16", "Scalar"]')
    'bfloat16'
    """
    types = texts(dtypes) or ()
    operator = lookup(op)
    overload = None if operator is None else operator.pick(types)
    overwritten = () if overload is None else overload.overwrites
    known = (dtype(recorded) for position, recorded in enumerate(types) if position not in overwritten)
    return next((name for name in known if name is not None), None)


def first_shape(shapes: str) -> str | None:
    """Return the first shape with axes among the recorded inputs, as text; of a list of tensors, its first member's.

    >>> first_shape("[[], [2, 3]]"), first_shape("[[[4], [5]]]"), first_shape("damaged")
    ('[2, 3]', '[4]', None)
    """
    try:
        dims = msgspec.json.decode(shapes)
    except (msgspec.DecodeError, RecursionError):
        return None
    for dim in dims if isinstance(dims, list) else ():
        shape = dim[0] if isinstance(dim, list) and dim and isinstance(dim[0], list) else dim
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
            return str(shape)
    return None
