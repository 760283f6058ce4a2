"""What the text of an NVTX range says: an operator with its shapes and the makers of its inputs, a step, or a scope."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

import msgspec

from tracemine.formats.kineto import names
from tracemine.ops import lookup

_SEQUENCE = re.compile(r"-?\d{1,18}")
_ID = re.compile(r"\d{1,18}")
_SIZES = re.compile(r"\[[\[\]\d, ]++")
_MAKERS = re.compile(r"\[(?:\(\d{1,18}+,-?\d{1,9}+\)(?:, )?+)*+\]")
# What most texts of operators end with: one match in place of three.
LAST_PARTS = re.compile(
    rf"(.*), op_id = ({_ID.pattern}), sizes = (\[[\[\]\d, ]*\]), input_op_ids = ({_MAKERS.pattern})", re.DOTALL
)
_AS_JSON = str.maketrans("()", "[]")
_MAKER = re.compile(r"\((\d+),(-?\d+)\)")
_STEP = re.compile(
    r"(?:train(?:ing)?|inference)?[ _-]?(?:step|iter|iteration|batch)[ #:=_-]{0,3}(\d{1,18})", re.IGNORECASE
)
# Operators are named in lower case (`aten::mul`, `c10d::allreduce_`, `detach_`), nodes of the backward pass by class.
_OPERATOR = re.compile(r"[a-z_]\w*+(?:::\w++)++(?:\.\w++)?+|[a-z_]\w*+_")
_BACKWARD = re.compile(r"autograd::engine::evaluate_function: .*|(?:\w++::)*+\w+(?:Backward\d*+|AccumulateGrad)")
_MOST_ELEMENTS = (1 << 62) - 1  # of a tensor: more is damage
LONGEST_NAME = 4096  # characters; demangled types in ranges of C++ code stay below

Sizes = tuple[tuple[int, ...], ...]
Maker = tuple[int, int]  # op_id and which of its outputs; (0, −1): none is known


class NvtxRange(msgspec.Struct, frozen=True):  # made in a fifth of the time that a dataclass takes
    """One distinct text, taken apart. None: the text does not say."""

    name: str
    is_op: bool
    sequence: int | None = None
    op_id: int | None = None
    sizes: Sizes | None = None
    makers: tuple[Maker, ...] | None = None


def parsed(text: str) -> NvtxRange:
    """Return the parts of a text that torch's emit_nvtx wrote, or `nsys profile --pytorch=autograd-shapes-nvtx`.

    Names hold commas and brackets of their own, so the parts are taken off from the right.

    >>> r = parsed("aten::relu, seq = 7, op_id = 2, sizes = [[8192, 2048]], input_op_ids = [(1,0)]")
    >>> r.name, r.sequence, r.op_id, r.sizes, r.makers
    ('aten::relu', 7, 2, ((8192, 2048),), ((1, 0),))
    >>> parsed("forward (a, b)")
    NvtxRange(name='forward (a, b)', is_op=False, sequence=None, op_id=None, sizes=None, makers=None)
    """
    most = LAST_PARTS.fullmatch(text)
    rest, op_id, sizes, makers = most.groups() if most else last_parts(text)
    rest, sequence = _part(rest, ", seq = ", _SEQUENCE)
    said = op_id is not None or sequence is not None
    return NvtxRange(
        name=rest[:LONGEST_NAME],
        is_op=said and _is_op(rest, has_sizes=sizes is not None),
        sequence=None if sequence is None or int(sequence) < 0 else int(sequence),
        op_id=None if op_id is None else int(op_id),
        sizes=None if sizes is None else _sizes(sizes),
        makers=None if makers is None else _makers(makers),
    )


def last_parts(text: str) -> tuple[str, str | None, str | None, str | None]:
    """Return what stands in front, and the last parts as far as they are there."""
    rest, makers = _part(text, ", input_op_ids = ", _MAKERS)
    rest, sizes = _part(rest, ", sizes = ", _SIZES)
    rest, op_id = _part(rest, ", op_id = ", _ID)
    return rest, op_id, sizes, makers


def _part(text: str, mark: str, allowed: re.Pattern[str]) -> tuple[str, str | None]:
    """Return the text before the last mark, and what stands behind it; all of it where that is not as it should be."""
    before, found, after = text.rpartition(mark)
    return (before, after) if found and allowed.fullmatch(after) else (text, None)


@lru_cache(maxsize=1 << 14)
def _is_op(name: str, *, has_sizes: bool) -> bool:
    """Return an operator, and not a user's record_function, whose text has the same parts."""
    if names.MARKS.match(name):
        return False
    return bool(is_backward(name) or _OPERATOR.fullmatch(name) or (has_sizes and name.isidentifier()) or lookup(name))


def is_backward(name: str) -> bool:
    """Return whether a range is a node of the backward pass.

    >>> is_backward("autograd::engine::evaluate_function: MulBackward0"), is_backward("mul")
    (True, False)
    """
    return _BACKWARD.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def _sizes(text: str) -> Sizes | None:
    try:
        found = msgspec.json.decode(text, type=Sizes)
    except msgspec.DecodeError:
        return None
    return found if all(max(prod(size), *size, 0) <= _MOST_ELEMENTS for size in found) else None


def _makers(text: str) -> tuple[Maker, ...]:
    """Return the pairs of a text that `_MAKERS` allows."""
    try:
        return msgspec.json.decode(text.translate(_AS_JSON), type=tuple[Maker, ...])
    except msgspec.DecodeError:  # a number that begins with 0
        return tuple((int(a), int(b)) for a, b in _MAKER.findall(text))


def step_number(name: str) -> int | None:
    """Return N of a range that marks a step.

    >>> step_number("step 3"), step_number("ProfilerStep#12"), step_number("iteration_7"), step_number("Step 9 to 19")
    (3, 12, 7, None)
    """
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else names.step_number(name)
