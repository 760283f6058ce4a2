"""Calls drawn at random: each step takes of what a chain has so far what eager may take, and adds a call or a few."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tracemine.codegen import GraphBuilder
from tracemine.codegen.graph import Ref
from tracemine.ops.infer import TensorSpec

FLOATS = ("float32", "float32", "bfloat16", "bfloat16", "float16")
WHOLE = ("int64", "int32", "uint8", "int8", "int16")
SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 16, 17, 33)
MOST_ELEMENTS = 1500

_FLOAT_UNARY = (
    *("exp", "expm1", "tanh", "sigmoid", "silu", "gelu", "sin", "cos", "erf", "log1p", "sqrt", "rsqrt", "log", "exp2"),
    *("reciprocal", "hardswish", "hardsigmoid", "mish", "floor", "ceil", "trunc", "round", "frac", "log2", "log10"),
    *("softplus", "elu", "leaky_relu", "isnan", "isinf", "isfinite", "nan_to_num", "hardshrink", "softshrink"),
)
_UNARY = ("neg", "abs", "relu", "square", "sign", "logical_not", "clone", "zeros_like", "ones_like")
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "fmax", "fmin", "remainder", "pow", "logaddexp", "xlogy")
_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_LOGICAL = ("logical_and", "logical_or", "logical_xor")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
_NUMBERS = (2.0, 0.5, -1.5, 3, 1, -2, 0.1, 1.0)


@dataclass
class Drawn:
    """A chain on its way: what may be read, by what it looks like."""

    draw: random.Random
    b: GraphBuilder
    specs: list[TensorSpec]
    indices: dict[int, int]  # of values that hold places, how many there are

    def value(self, fits: Callable[[TensorSpec], bool] = lambda _: True) -> Ref | None:
        """One of the values that fit, the later the likelier."""
        found = [v for v, s in enumerate(self.specs) if v not in self.indices and fits(s)]
        if not found:
            return None
        return Ref(found[max(self.draw.randrange(len(found)), self.draw.randrange(len(found)))])

    def spec(self, value: Ref) -> TensorSpec:
        return self.specs[value.value]

    def dim(self, value: Ref) -> int:
        """A dimension, counted from either end."""
        rank = len(self.spec(value).shape)
        return self.draw.randrange(-rank, rank) if rank else 0

    def meets(self, value: Ref) -> Ref | None:
        """A value whose shape broadcasts with another's."""
        shape = self.spec(value).shape
        return self.value(lambda s: _broadcast(s.shape, shape) and prod(s.shape) <= MOST_ELEMENTS)

    def number(self) -> float:
        return self.draw.choice(_NUMBERS)


def _broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    pairs = list(zip(a[::-1], b[::-1], strict=False))
    size = prod(max(x, y) for x, y in pairs)
    longer = a if len(a) > len(b) else b
    return all(x == y or 1 in (x, y) for x, y in pairs) and size * prod(longer[: abs(len(a) - len(b))]) <= MOST_ELEMENTS


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype in FLOATS


def _is_whole(spec: TensorSpec) -> bool:
    return spec.dtype in (*WHOLE, "bool")


def _has_axes(spec: TensorSpec) -> bool:
    return bool(spec.shape) and 0 not in spec.shape


Step = Callable[[Drawn], Any]


def _float_unary(d: Drawn) -> Any:
    x = d.value(_is_float if d.draw.random() < 0.9 else lambda _: True)
    name = d.draw.choice(_FLOAT_UNARY)
    named = {"approximate": d.draw.choice(("none", "tanh"))} if name == "gelu" else {}
    return x and d.b.call(f"aten::{name}", x, **named)


def _unary(d: Drawn) -> Any:
    x = d.value()
    return x and d.b.call(f"aten::{d.draw.choice(_UNARY)}", x)


def _binary(d: Drawn) -> Any:
    x = d.value()
    y = x and d.meets(x)
    name = d.draw.choice((*_BINARY, *_BINARY, *_COMPARED, *_LOGICAL))
    if not y or y == x:  # what a product leaves of itself, contracted, is no 0
        return None
    overload = ".Tensor_Tensor" if name == "pow" else ".Tensor"
    if name in ("maximum", "minimum", "fmax", "fmin", "logaddexp", *_LOGICAL):
        overload = ""
    if name in ("div", "add", "sub") and d.draw.random() < 0.2:
        return d.b.call(f"aten::{name}{overload}", x, y, **({} if name == "div" else {"alpha": d.number()}))
    return d.b.call(f"aten::{name}{overload}", x, y)


def _with_number(d: Drawn) -> Any:
    x = d.value()
    name = d.draw.choice(("add", "sub", "mul", "div", "remainder", "pow", "rsub", *_COMPARED, "clamp_min", "clamp_max"))
    if not x:
        return None
    if name in ("clamp_min", "clamp_max"):
        return d.b.call(f"aten::{name}", x, d.number())
    if name == "pow":
        return d.b.call("aten::pow.Tensor_Scalar", x, d.draw.choice((2, 3, 0.5, -0.5, 4, -2, -1, 1, 2.0, 1.7)))
    overload = "Tensor" if name in ("add", "sub", "mul", "div") and d.draw.random() < 0.5 else "Scalar"
    return d.b.call(f"aten::{name}.{overload}", x, d.number())


def _clamped(d: Drawn) -> Any:
    x = d.value()
    if not x:
        return None
    low, high = d.meets(x), d.meets(x)
    if low and high and d.draw.random() < 0.4:
        return d.b.call("aten::clamp.Tensor", x, d.draw.choice((low, None)), high)
    return d.b.call("aten::clamp", x, *d.draw.choice(((-1.0, 0.5), (None, 2), (-1, None), (0, 3))))


def _bits(d: Drawn) -> Any:
    x = d.value(_is_whole)
    y = x and d.value(lambda s: _is_whole(s) and _broadcast(s.shape, d.spec(x).shape))
    name = d.draw.choice(_BITS)
    if not y:
        return None
    if "shift" in name or d.draw.random() < 0.5:
        suffix = "Tensor_Scalar" if "shift" in name else "Scalar"
        return d.b.call(f"aten::{name}.{suffix}", x, d.draw.choice((1, 2, 3)))
    return d.b.call(f"aten::{name}.Tensor", x, y)


def _chosen(d: Drawn) -> Any:
    mask = d.value(lambda s: s.dtype == "bool")
    x = mask and d.meets(mask)
    y = (
        x
        and mask
        and d.value(lambda s: _broadcast(s.shape, d.spec(x).shape) and _broadcast(s.shape, d.spec(mask).shape))
    )
    if not y:
        return None
    kind = d.draw.randrange(4)
    if kind == 0:
        return d.b.call("aten::where.self", mask, x, y)
    if kind == 1:
        return d.b.call("aten::where.ScalarOther", mask, x, d.number())
    if kind == 2:
        return d.b.call("aten::masked_fill.Scalar", x, mask, d.draw.choice((0.0, -1e4, float("-inf"), 2)))
    return d.b.call("aten::where.ScalarSelf", mask, d.number(), x)


def _ternary(d: Drawn) -> Any:
    x = d.value(_is_float)
    y = x and d.value(lambda s: s.dtype == d.spec(x).dtype and _broadcast(s.shape, d.spec(x).shape))
    z = x and y and d.value(lambda s: s.dtype == d.spec(x).dtype and s.shape == d.spec(y).shape)
    if not z:
        return None
    kind = d.draw.randrange(4)
    if kind == 0:
        return d.b.call("aten::lerp.Scalar", x, y, 0.3)
    if kind == 1:
        return d.b.call("aten::lerp.Tensor", x, y, z)
    return d.b.call(f"aten::{('addcmul', 'addcdiv')[kind - 2]}", x, y, z, value=d.number())


def _cast(d: Drawn) -> Any:
    x = d.value()
    return x and d.b.call("aten::_to_copy", x, dtype=d.draw.choice((*FLOATS, *FLOATS, *WHOLE, "bool", "float8_e4m3fn")))


def _reduced(d: Drawn) -> Any:
    x = d.value(_has_axes)
    if not x:
        return None
    rank = len(d.spec(x).shape)
    dims = [dim - rank * d.draw.randrange(2) for dim in d.draw.sample(range(rank), d.draw.randint(1, rank))]
    keep = d.draw.random() < 0.6
    kind = d.draw.choice(("sum", "mean", "amax", "amin", "var", "std", "norm", "logsumexp", "any", "all", "max", "arg"))
    if kind in ("sum", "mean"):
        named = {"dtype": d.draw.choice(("float32", "bfloat16"))} if d.draw.random() < 0.2 else {}
        if d.draw.random() < 0.2:
            return d.b.call(f"aten::{kind}", x, **named)
        return d.b.call(f"aten::{kind}.{'dim_IntList' if kind == 'sum' else 'dim'}", x, dims, keep, **named)
    if kind in ("var", "std"):
        both = d.draw.random() < 0.3
        return d.b.call(
            f"aten::{kind}{'_mean' * both}.correction", x, dims, correction=d.draw.choice((0, 1)), keepdim=keep
        )
    if kind == "norm":
        return d.b.call("aten::linalg_vector_norm", x, d.draw.choice((2, 1, float("inf"))), dims, keep)
    if kind in ("any", "all"):
        return d.b.call(f"aten::{kind}.dim", x, dims[0], keep)
    if kind == "max":
        return d.b.call(f"aten::{d.draw.choice(('max', 'min'))}.dim", x, dims[0], keep)
    if kind == "arg":
        return d.b.call(f"aten::{d.draw.choice(('argmax', 'argmin'))}", x, dims[0], keep)
    return d.b.call(f"aten::{kind}", x, dims, keep)


def _walked(d: Drawn) -> Any:
    x = d.value(lambda s: _is_float(s) and _has_axes(s))
    if not x:
        return None
    shape = d.spec(x).shape
    kind = d.draw.choice(("_softmax", "_softmax", "_log_softmax", "cumsum", "layer", "group", "rms"))
    if kind == "cumsum":
        return d.b.call("aten::cumsum", x, d.dim(x))
    if kind == "layer":
        inner = list(shape[d.draw.randrange(len(shape)) :])
        return d.b.call("aten::native_layer_norm", x, inner, None, None, 1e-5)
    if kind == "rms":
        return d.b.call("aten::_fused_rms_norm", x, [shape[-1]], None, 1e-5)
    if kind == "group":
        if len(shape) < 3:
            return None
        groups = d.draw.choice([n for n in (1, 2, 3) if shape[1] % n == 0])
        return d.b.call("aten::native_group_norm", x, None, None, shape[0], shape[1], prod(shape[2:]), groups, 1e-5)
    return d.b.call(f"aten::{kind}", x, d.dim(x), False)


def _turned(d: Drawn) -> Any:
    x = d.value(_has_axes)
    if not x:
        return None
    shape = list(d.spec(x).shape)
    rank, dim = len(shape), d.dim(x)
    size = shape[dim]
    kind = d.draw.choice(
        ("transpose", "permute", "view", "unsqueeze", "squeeze", "expand", "slice", "select", "flip", "roll", "pad",
         "tril", "split", "unbind", "reshape", "clone", "chunk")
    )  # fmt: skip
    if kind == "transpose":
        return d.b.call("aten::transpose.int", x, dim, d.dim(x))
    if kind == "permute":
        return d.b.call("aten::permute", x, d.draw.sample(range(rank), rank))
    if kind in ("view", "reshape"):
        at = dim % rank
        if at + 1 < rank and d.draw.random() < 0.5:
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif factors := [n for n in range(2, size) if size % n == 0]:
            n = d.draw.choice(factors)
            shape[at : at + 1] = [n, size // n]
        return d.b.call(f"aten::{kind}", x, shape)
    if kind == "unsqueeze":
        return d.b.call("aten::unsqueeze", x, d.draw.randrange(-rank - 1, rank + 1)) if rank < 4 else None
    if kind == "squeeze":
        return d.b.call("aten::squeeze.dim", x, dim)
    if kind == "expand":
        wider = [d.draw.choice((n, 3, 5)) if n == 1 else d.draw.choice((n, -1)) for n in shape]
        if prod(map(abs, wider)) > MOST_ELEMENTS:
            return None
        return d.b.call("aten::expand", x, [d.draw.choice((1, 2))] * (rank < 4) + wider)
    if kind == "slice":
        start, step = d.draw.randrange(-size, size), d.draw.choice((1, 1, 2, 3))
        return d.b.call("aten::slice.Tensor", x, dim, start, d.draw.choice((size, 2**63 - 1, size - 1)), step)
    if kind == "select":
        return d.b.call("aten::select.int", x, dim, d.draw.randrange(-size, size))
    if kind == "flip":
        return d.b.call("aten::flip", x, d.draw.sample(range(rank), d.draw.randint(1, rank)))
    if kind == "roll":
        return d.b.call("aten::roll", x, [d.draw.randrange(-size, size + 1)], [dim])
    if kind == "pad":
        padding = [d.draw.choice((0, 1, 2, -1)) for _ in range(2 * d.draw.randint(1, rank))]
        return d.b.call("aten::constant_pad_nd", x, padding, d.draw.choice((0, 1.5)))
    if kind == "tril":
        name = d.draw.choice(("tril", "triu"))
        return d.b.call(f"aten::{name}", x, d.draw.choice((0, 1, -1))) if rank > 1 else None
    if kind == "split":
        return d.b.call("aten::split.Tensor", x, max(1, size // 2), dim)
    if kind == "chunk":
        return d.b.call("aten::chunk", x, 2, dim)
    if kind == "unbind":
        return d.b.call("aten::unbind.int", x, dim) if size <= 4 else None
    return d.b.call("aten::clone", x, memory_format=0)


def _joined(d: Drawn) -> Any:
    x = d.value(_has_axes)
    if not x:
        return None
    shape, dim = d.spec(x).shape, d.dim(x)
    if d.draw.random() < 0.4:
        members = [x, *filter(None, (d.value(lambda s: s.shape == shape) for _ in range(d.draw.randint(0, 2))))]
        return d.b.call("aten::stack", members, dim) if len(shape) < 4 else None

    def fits(spec: TensorSpec) -> bool:
        alike = len(spec.shape) == len(shape)
        return alike and all(
            n == m for at, (n, m) in enumerate(zip(spec.shape, shape, strict=True)) if at != dim % len(shape)
        )

    members = [x, *filter(None, (d.value(fits) for _ in range(d.draw.randint(1, 3))))]
    if sum(prod(d.spec(m).shape) for m in members) > MOST_ELEMENTS:
        return None
    d.draw.shuffle(members)
    return d.b.call("aten::cat", members, dim)


def _looked_up(d: Drawn) -> Any:
    found = list(d.indices.items())
    if not found:
        return None
    at, below = d.draw.choice(found)
    index, shape = Ref(at), d.specs[at].shape
    x = d.value(lambda s: below in s.shape)
    if not x:
        return None
    dim = d.spec(x).shape.index(below)
    kind = d.draw.choice(("index_select", "index", "embedding", "gather", "one_hot"))
    if kind == "index_select" and len(shape) == 1:
        return d.b.call("aten::index_select", x, dim, index)
    if kind == "embedding" and dim == 0 and len(d.spec(x).shape) == 2:
        return d.b.call("aten::embedding", x, index)
    if kind == "gather" and len(shape) == len(d.spec(x).shape):
        if all(n <= m for k, (n, m) in enumerate(zip(shape, d.spec(x).shape, strict=True)) if k != dim):
            return d.b.call("aten::gather", x, dim, index)
        return None
    if kind == "one_hot" and len(shape) < 3:
        place = d.b.call("aten::arange", below, dtype="int64")
        d.specs.append(TensorSpec((below,), "int64", (1,)))
        return d.b.call("aten::eq.Tensor", d.b.call("aten::unsqueeze", index, -1), place)
    return d.b.call("aten::index.Tensor", x, [None] * dim + [index]) if kind == "index" else None


def _in_place(d: Drawn) -> Any:
    x = d.value(lambda s: 0 not in (s.strides or ()))
    y = x and d.value(lambda s: _fits_into(s.shape, d.spec(x).shape))
    kind = d.draw.choice(("add", "mul", "copy", "fill", "relu", "clamp", "masked", "zero", "number", "div", "sub"))
    if not x or not y:
        return None
    if kind in ("add", "mul", "div", "sub"):
        return d.b.call(f"aten::{kind}_.Tensor", x, y) if x != y else None
    if kind == "copy":
        return d.b.call("aten::copy_", x, y)
    if kind == "fill":
        return d.b.call("aten::fill_.Scalar", x, d.number())
    if kind == "masked":
        mask = d.value(lambda s: s.dtype == "bool" and _fits_into(s.shape, d.spec(x).shape))
        return mask and d.b.call("aten::masked_fill_.Scalar", x, mask, d.number())
    if kind == "number":
        return d.b.call(f"aten::{d.draw.choice(('add', 'mul', 'sub', 'div'))}_.Scalar", x, d.number())
    if kind == "clamp":
        return d.b.call("aten::clamp_", x, -0.5, 2)
    return d.b.call(f"aten::{kind}_", x)


def _fits_into(small: Sequence[int], large: Sequence[int]) -> bool:
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(small[::-1], large[::-1], strict=False))


def _made(d: Drawn) -> Any:
    x = d.value()
    kind = d.draw.choice(("full", "arange", "full_like", "zeros", "scalar"))
    if kind == "arange":
        return d.b.call("aten::arange", d.draw.choice(SIZES), dtype=d.draw.choice(("int64", "float32")))
    if kind == "full_like":
        return x and d.b.call("aten::full_like", x, d.number())
    if kind == "zeros":
        return x and d.b.call("aten::zeros", list(d.spec(x).shape), dtype=d.draw.choice(FLOATS))
    return d.b.call("aten::full", list(d.spec(x).shape) if x and kind == "full" else [], d.number(), dtype="float32")


STEPS: tuple[tuple[Step, int], ...] = (
    (_float_unary, 6), (_unary, 3), (_binary, 8), (_with_number, 5), (_clamped, 2), (_bits, 1), (_chosen, 3),
    (_ternary, 2), (_cast, 4), (_reduced, 6), (_walked, 3), (_turned, 9), (_joined, 3), (_looked_up, 3), (_in_place, 3),
    (_made, 1),
)  # fmt: skip
