"""What an operator reads and writes, from its recorded inputs and the bytes that its kernel writes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import msgspec

from tracemine.cost import Tensor
from tracemine.ops import dtype, itemsize, lookup

_LARGEST = 1 << 44  # bytes; no tensor on a GPU is as large: a shape that says so is damaged
_PYTHON_NUMBERS = ("float64", "int64", "bool")


@lru_cache(maxsize=16384)
def inputs(
    shapes: str, dtypes: str, strides: str | None = None, list_dtype: str | None = None
) -> tuple[tuple[int, Tensor], ...] | None:
    """Position and tensor of every tensor input; the members of a list share a position. None where one is not known.

    The texts are those of the timeline's `ops` table. The dtype of a list's members is not recorded: it is taken to be
    `list_dtype`. Shapeless inputs of a Python number's type are Python numbers and no tensors. An axis of stride 0
    repeats one element, which counts once.

    >>> inputs("[[2, 3], [], []]", '["float", "Scalar", "double"]')
    ((0, Tensor(elements=6, dtype='float32', nbytes=24)),)
    """
    try:
        dims, types = msgspec.json.decode(shapes), msgspec.json.decode(dtypes)
        steps = msgspec.json.decode(strides) if strides is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        return None
    if not isinstance(steps, list) or len(steps) != len(dims):
        steps = [None] * len(dims)
    found: list[tuple[int, Tensor]] = []
    for position, (dim, type_, step) in enumerate(zip(dims, types, steps, strict=True)):
        name = dtype(type_) if isinstance(type_, str) else None
        is_list = name is None and isinstance(dim, list) and bool(dim)
        members = [(d, list_dtype) for d in dim] if is_list else [(dim, name)] if name is not None else []
        for size, kind in members:
            tensor = _tensor(size, kind, None if is_list else step)
            if tensor is None:
                return None
            if size or kind not in _PYTHON_NUMBERS:
                found.append((position, tensor))
    return tuple(found)


@lru_cache(maxsize=16384)
def traffic(
    op: str, shapes: str, dtypes: str, strides: str | None, list_dtype: str | None, written_bytes: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None:
    """Tensors that a call reads and writes; None where its inputs are not known.

    The dtype of a list is known only by its bytes: `list_dtype` must make them what is written, as cat and stack do.
    Inputs that the operator overwrites are written and not read; inputs that it mutates are both. What else it writes
    is one tensor of `written_bytes`, of an input's dtype where one fits.

    >>> traffic("aten::copy_", "[[8], [8], []]", '["float", "c10::BFloat16", "Scalar"]', None, None, 32)
    ((Tensor(elements=8, dtype='bfloat16', nbytes=16),), (Tensor(elements=8, dtype='float32', nbytes=32),))
    >>> traffic("aten::gt", "[[8], []]", '["float", "Scalar"]', None, None, 8)[1]
    (Tensor(elements=8, dtype='bool', nbytes=8),)
    """
    known = inputs(shapes, dtypes, strides, list_dtype)
    if known is None:
        return None
    positions = [position for position, _ in known]
    if len(set(positions)) < len(positions) and sum(tensor.nbytes for _, tensor in known) != written_bytes:
        return None
    mutates, overwrites = _written(op, dtypes)
    reads = tuple(tensor for position, tensor in known if position not in overwrites)
    writes = tuple(tensor for position, tensor in known if position in mutates)
    if not writes:
        writes = (_output([tensor for _, tensor in known], written_bytes),)
    return reads, writes


@lru_cache(maxsize=16384)
def read_dtype(op: str, shapes: str, dtypes: str) -> str | None:
    """Dtype of the first tensor that a call reads; None where no single tensor is read.

    >>> read_dtype("aten::copy_", "[[8], [8], []]", '["float", "c10::BFloat16", "Scalar"]')
    'bfloat16'
    """
    _, overwrites = _written(op, dtypes)
    known = inputs(shapes, dtypes) or ()
    return next((tensor.dtype for position, tensor in known if position not in overwrites), None)


def first_shape(shapes: str) -> str | None:
    """The first shape with axes among the recorded inputs, as text; of a list of tensors, its first member's.

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


def _written(op: str, dtypes: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of the inputs that the call writes, and of those that it does not read before."""
    operator = lookup(op)
    try:
        overload = operator.pick(msgspec.json.decode(dtypes, type=list[str])) if operator is not None else None
    except msgspec.DecodeError:
        overload = None
    return (overload.mutates, overload.overwrites) if overload is not None else ((), ())


def _output(read: list[Tensor], nbytes: int) -> Tensor:
    """The output that fits its bytes: as large as the largest input where a dtype's width allows, else smaller."""
    elements = max((tensor.elements for tensor in read), default=0)
    widths = [(tensor.dtype, tensor.nbytes // tensor.elements) for tensor in read if tensor.elements]
    for name, width in sorted(widths, key=lambda pair: -pair[1]):
        if elements * width == nbytes:
            return Tensor(elements, name, nbytes)
    if elements == nbytes:
        return Tensor(elements, "bool", nbytes)
    name, width = widths[0] if widths else ("uint8", 1)
    return Tensor(nbytes // width, name, nbytes)


def _tensor(dim: Any, name: str | None, strides: Any) -> Tensor | None:
    width = itemsize(name) if name is not None else None
    if name is None or width is None or not isinstance(dim, list):
        return None
    if not all(isinstance(n, int) and 0 <= n < 1 << 40 for n in dim):
        return None
    repeated = strides if isinstance(strides, list) and len(strides) == len(dim) else [1] * len(dim)
    elements = math.prod(n for n, step in zip(dim, repeated, strict=True) if step != 0 or n == 0)
    return Tensor(elements, name, elements * width) if elements * width <= _LARGEST else None
