"""Tensors of a graph as expressions: each says from which others, and how, any one of its elements comes.

An expression is not evaluated as a whole. A kernel asks for an element at an index, and the question is passed on
through views, slices and casts down to what is loaded; so no layout call costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce

import msgspec

from tracemine.codegen.axes import Axes, Dim, Dims
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG
from tracemine.codegen.operators import expression

TYPE_OF = {
    **dict.fromkeys(("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"), FLOAT),
    **dict.fromkeys(("int8", "int16", "int32", "uint8"), INT),
    "int64": LONG,
    "bool": BOOL,
}
CODES = ("float8_e4m3fn", "float8_e5m2")
NARROW = ("bfloat16", "float16")  # floats that the fp32-through build does not round to on the way


class ScalarArg(msgspec.Struct, frozen=True):
    """A scalar argument, or with no name a constant of the operator's own."""

    value: float | int | bool
    name: str | None = None


class Tensor(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Base. `origin`: number of the call that gives it, −1 for inputs."""

    dims: Dims
    dtype: str
    origin: int = -1

    @property
    def type(self) -> str:
        """What its elements are computed in."""
        return TYPE_OF[self.dtype]


class Input(Tensor, frozen=True, kw_only=True):
    """In memory before the kernel starts."""

    buffer: str


class Pointwise(Tensor, frozen=True, kw_only=True):
    """An expression over the elements of others at the same place, broadcast. `as_is`: arguments not converted."""

    operation: str
    args: tuple[Tensor | ScalarArg, ...]
    compute: str  # the type that the arguments are converted to
    as_is: tuple[int, ...] = ()


class Cast(Tensor, frozen=True, kw_only=True):
    """Another, rounded to `dtype`. `always`: in every build, for the rounding is the point (quantisation)."""

    arg: Tensor
    always: bool


class Reduction(Tensor, frozen=True, kw_only=True):
    """Some dimensions of another made one element. `over`: dimensions of `arg`; `kept`: for each own dim the arg's.

    `part`: where rows are reduced in parts, the own dimension that counts these, the first.
    """

    kind: str
    arg: Tensor
    over: tuple[int, ...]
    kept: tuple[int | None, ...]
    part: Dim = ()


class CumulativeSum(Tensor, frozen=True, kw_only=True):
    """Running sum of another along a dimension."""

    arg: Tensor
    along: int


class Reshape(Tensor, frozen=True, kw_only=True):
    """The same axes in the same order, in other dimensions: view, squeeze, unsqueeze."""

    arg: Tensor


class Permute(Tensor, frozen=True, kw_only=True):
    """Dimensions in another order; `source`: for each own dimension that of the arg, None where it repeats."""

    arg: Tensor
    source: tuple[int | None, ...]


class SliceOf(Tensor, frozen=True, kw_only=True):
    """Every `step`-th element of a dimension from `start` on; a step may be negative.

    `turns` (rotates): what would lie beyond the dimension's end is found at its beginning.
    """

    arg: Tensor
    dim: int
    start: int
    step: int
    turns: bool = False


class Concat(Tensor, frozen=True, kw_only=True):
    """Others one behind the other along a dimension; their sizes there."""

    args: tuple[Tensor, ...]
    dim: int
    sizes: tuple[int, ...]


class Gather(Tensor, frozen=True, kw_only=True):
    """Elements of `table` at indices that tensors hold.

    For each dimension of the table: own dimensions that it takes over, or the index tensor to ask. An index tensor is
    asked at the own dimensions in `asked`, aligned to its last ones.
    """

    table: Tensor
    indices: tuple[int | Tensor, ...]
    asked: tuple[int, ...]
    wraps: bool = False


class RandomBits(Tensor, frozen=True, kw_only=True):
    """Uniform random numbers of 24 bits, by place. `stream`: what else than the seed tells them from others'."""

    seed: str
    stream: int


class Iota(Tensor, frozen=True, kw_only=True):
    """Each element is its own place along a dimension."""

    along: int


class NumElements(Tensor, frozen=True, kw_only=True):
    """How many elements some axes have together."""

    over: tuple[int, ...]


class Complex(Tensor, frozen=True, kw_only=True):
    """Complex numbers: no expression, but two. Dimensions are those of `real`."""

    real: Tensor
    imaginary: Tensor


def arguments(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the expressions that an expression is made of."""
    if isinstance(tensor, Pointwise | Concat):
        return tuple(a for a in tensor.args if isinstance(a, Tensor))
    if isinstance(tensor, Gather):
        return (tensor.table, *(p for p in tensor.indices if isinstance(p, Tensor)))
    arg = getattr(tensor, "arg", None)
    return () if arg is None else (arg,)


def met(tensors: Iterable[Tensor], ends: Callable[[Tensor], bool] = lambda _: False) -> list[Tensor]:
    """Return expressions and all that they are made of, once; of what `ends` holds for, that alone."""
    found: dict[Tensor, None] = {}
    todo = [*tensors]
    while todo:
        here = todo.pop()
        if here not in found:
            found[here] = None
            todo.extend(() if ends(here) else reversed(arguments(here)))
    return list(found)


def _loops(tensor: Tensor) -> bool:
    return isinstance(tensor, Reduction | CumulativeSum)


def nearest_reductions(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the reductions and scans that an expression meets first, itself included."""
    return tuple(filter(_loops, met((tensor,), _loops)))


def expensive_parts(tensor: Tensor) -> list[Tensor]:
    """Return the expensive expressions that an expression is made of, short of reductions."""
    return [t for t in met((tensor,), _loops) if isinstance(t, Pointwise) and expression(t.operation).expensive]


def factors(axes: Axes, tensor: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what a sum of products multiplies, where it is a matrix product: rows of one, and of another, meet.

    >>> axes = Axes()
    >>> (m,), (n,), (k,) = (axes.dims((size,)) for size in (4, 8, 16))
    >>> x, y = (Input(dims=dims, dtype="float32", buffer="") for dims in ((m, (), k), (n, k)))
    >>> each = Pointwise(dims=(m, n, k), dtype="float32", operation="mul", args=(x, y), compute="float32")
    >>> factors(axes, Reduction(dims=(m, n), dtype="float32", kind="sum", arg=each, over=(2,), kept=(0, 1))) == (x, y)
    True
    """
    if not isinstance(tensor, Reduction) or (tensor.kind, tensor.dtype) != ("sum", FLOAT):
        return None
    each = _uncast(tensor.arg)
    if not isinstance(each, Pointwise) or (each.operation, each.dims) != ("mul", tensor.arg.dims):
        return None
    left, right = each.args
    if not (isinstance(left, Tensor) and isinstance(right, Tensor)):
        return None
    over = {leaf for d in tensor.over for leaf in axes.leaves(each.dims[d])}
    first, second = ({*axes.flat(operand.dims)} for operand in (left, right))
    meet = all((over, over <= first & second, first - second, second - first, left.type == FLOAT))
    return (left, right) if meet and left.dtype == right.dtype else None


def _uncast(tensor: Tensor) -> Tensor:
    while isinstance(tensor, Cast) and not tensor.always:
        tensor = tensor.arg
    return tensor


def columns_of(axes: Axes, tensor: Tensor) -> Dim:
    """Return the axes that a reduction or a scan loops over, in the order of its argument's dimensions."""
    assert isinstance(tensor, Reduction | CumulativeSum)  # noqa: S101  (what `fronts` gives)
    over = tensor.over if isinstance(tensor, Reduction) else (tensor.along,)
    return reduce(lambda found, d: found + axes.leaves(tensor.arg.dims[d]), over, ())
