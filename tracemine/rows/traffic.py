"""Compulsory device memory traffic of one operator's kernel, from the shapes, dtypes and strides that were recorded.

Compulsory: each input element read once and each output element written once, as if nothing stayed in a cache and
nothing was read twice. An axis of stride 0 is broadcast from one element, so it counts once. Outputs are not recorded;
what they must be follows from the operator's class. Where it does not, the answer is None: never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Annotated

import msgspec

from tracemine.ops import dtype as canonical_dtype
from tracemine.ops import itemsize, lookup, scalar_type
from tracemine.ops.operators import Overload
from tracemine.rows.signature import texts

_LARGEST = 1 << 60  # a recorded shape that says more bytes than this is damaged
_PYTHON_NUMBERS = ("float64", "int64")  # dtypes of the 0-dim tensor that a Python number is recorded as


@dataclass(frozen=True, slots=True)
class Tensor:
    """One recorded input: its shape, canonical dtype, and strides in elements where they were recorded."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Distinct elements: axes of stride 0 repeat one.

        >>> Tensor((4, 8), "float32").elements, Tensor((4, 8), "float32", (0, 1)).elements
        (32, 8)
        """
        strides = self.strides or (1,) * len(self.shape)
        return prod(size for size, stride in zip(self.shape, strides, strict=True) if stride != 0 or size == 0)

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements.

        >>> Tensor((4, 8), "bfloat16").bytes
        64
        """
        return self.elements * _size(self.dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call as recorded. An input is a Tensor, a tuple of shapes (a TensorList, dtype unknown), or None."""

    op: str
    overload: Overload
    inputs: tuple[Tensor | tuple[tuple[int, ...], ...] | None, ...]
    concrete: tuple[str, ...] | None  # text of each scalar input; None: not recorded
    element_bytes: int | None = None  # what the kernel's own name says of its element, for TensorLists

    def tensor(self, name: str) -> Tensor | None:
        """The tensor given for the argument of this name."""
        for argument, given in zip(self.overload.arguments, self.inputs, strict=True):
            if argument.name == name:
                return given if isinstance(given, Tensor) else None
        return None

    def text(self, name: str) -> str | None:
        """The scalar given for the argument of this name, as text; "" for None; None where it was not recorded."""
        for position, argument in enumerate(self.overload.arguments):
            if argument.name == name:
                return None if self.concrete is None else self.concrete[position]
        return ""

    @property
    def read(self) -> tuple[Tensor, ...]:
        """The tensors whose elements are read. A Python number among tensors is none."""
        skipped = self.overload.overwrites
        tensors = [t for i, t in enumerate(self.inputs) if i not in skipped and isinstance(t, Tensor)]
        sized = any(tensor.shape for tensor in self.inputs if isinstance(tensor, Tensor))
        return tuple(t for t in tensors if t.shape or not sized or t.dtype not in _PYTHON_NUMBERS)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read and written; None: not known."""

    read_bytes: int | None
    written_bytes: int | None


UNKNOWN = Traffic(None, None)


def traffic(
    op: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None = None,
    concrete: str | None = None,
    element_bytes: int | None = None,
) -> Traffic:
    """Compulsory traffic of a call, from the JSON texts of the timeline's `ops` table.

    >>> traffic("aten::mul", "[[4,8],[8]]", '["float","float"]')
    Traffic(read_bytes=160, written_bytes=128)
    >>> traffic("aten::mul", None, None)
    Traffic(read_bytes=None, written_bytes=None)
    """
    call = _parse(op, shapes, dtypes, strides, concrete, element_bytes)
    if call is None:
        return UNKNOWN
    rule = _RULES.get(op.partition(".")[0]) or _RULES.get(call.overload.op_class)
    if rule is None:
        return UNKNOWN
    read, written = rule(call)
    return Traffic(*(None if count is None or count > _LARGEST else count for count in (read, written)))


# --- reading the recorded texts --------------------------------------------------------------------------------------


def _parse(
    op: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None,
    concrete: str | None,
    element_bytes: int | None,
) -> Call | None:
    operator = lookup(op)
    if operator is None or shapes is None or dtypes is None:
        return None
    try:
        sizes = msgspec.json.decode(shapes, type=list[_Sizes])
        types = texts(dtypes)
        steps = None if strides is None else msgspec.json.decode(strides, type=list[_Sizes])
    except (msgspec.DecodeError, RecursionError):
        return None
    overload = None if types is None else operator.pick(types)
    if types is None or overload is None or not len(overload.arguments) == len(types) == len(sizes):
        return None
    scalars = texts(concrete)
    if scalars is not None and len(scalars) != len(sizes):
        scalars = None
    if steps is None or len(steps) != len(sizes):
        steps = [[]] * len(sizes)
    inputs = tuple(map(_input, sizes, types, steps))
    return Call(op, overload, inputs, scalars, element_bytes)


_Size = Annotated[int, msgspec.Meta(ge=0)]
_Sizes = list[_Size | list[_Size]]  # sizes, or strides, of a tensor; of a TensorList one list a member


def _input(
    sizes: list[int | list[int]], recorded_type: str, strides: list[int | list[int]]
) -> Tensor | tuple[tuple[int, ...], ...] | None:
    if recorded_type in ("TensorList", "GenericList"):
        return tuple(tuple(shape) for shape in sizes if isinstance(shape, list))
    dtype = canonical_dtype(recorded_type)
    if dtype is None:
        return None
    shape = tuple(size for size in sizes if isinstance(size, int))
    steps = tuple(step for step in strides if isinstance(step, int))
    return Tensor(shape, dtype, steps if len(steps) == len(shape) else None)


def _size(dtype: str) -> int:
    size = itemsize(dtype)
    assert size is not None  # noqa: S101  (canonical names only)
    return size


# --- what follows from the class -------------------------------------------------------------------------------------

Counts = tuple[int | None, int | None]  # bytes read, bytes written


def _mutated(call: Call) -> int | None:
    """Bytes of the tensors that the call writes into; None where it makes new ones."""
    written = [call.inputs[i] for i in call.overload.mutates]
    if not written or not all(isinstance(tensor, Tensor) for tensor in written):
        return None
    total = sum(tensor.bytes for tensor in written if isinstance(tensor, Tensor))
    # An empty out= is resized by the call: its recorded shape says nothing.
    return total if total or not any(tensor.elements for tensor in call.read) else None


def _elementwise(call: Call) -> Counts:
    """Inputs broadcast against each other; the result has the promoted dtype, or is the tensor written in place."""
    read = sum(tensor.bytes for tensor in call.read)
    if call.overload.mutates:
        return read, _mutated(call)
    shape, dtype = _broadcast(tensor.shape for tensor in call.read), _result_dtype(call)
    if shape is None or dtype is None or len(call.overload.outputs) != 1:
        return read, None
    return read, prod(shape) * _size(dtype)


def _broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...] | None:
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for axis, size in enumerate(reversed(shape), start=1):
            if size != 1 and result[-axis] not in (1, size):
                return None
            result[-axis] = size if result[-axis] == 1 else result[-axis]
    return tuple(result)


_COMPARISONS = frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isneginf", "isposinf", "logical_and",
        "logical_or", "logical_not", "logical_xor",
    }
)  # fmt: skip
# What these do to integers is known: they stay what they are, or become float32. Of others it is not.
_KEEPS_INTEGERS = frozenset(
    {
        "add", "sub", "mul", "rsub", "neg", "abs", "sign", "clamp", "clamp_min", "clamp_max", "maximum", "minimum",
        "where", "remainder", "fmod", "floor_divide", "square", "relu", "bitwise_and", "bitwise_or", "bitwise_xor",
        "bitwise_not", "__and__", "__or__", "__xor__", "masked_fill", "threshold",
    }
)  # fmt: skip
_MAKES_FLOATS = frozenset(
    {
        "div", "true_divide", "sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "tan", "tanh", "sigmoid",
        "erf", "atan2",
    }
)  # fmt: skip
_CATEGORIES = ("bool", "int", "float", "complex")


def _category(dtype: str) -> int:
    return next((i for i, name in enumerate(_CATEGORIES) if name in dtype), 1)


def _promoted(dtypes: Iterable[str]) -> str | None:
    """The common dtype of one category: the widest; None where two of one width differ in kind, but for halves."""
    distinct = set(dtypes)
    widest = max((_size(name) for name in distinct), default=0)
    candidates = {name for name in distinct if _size(name) == widest}
    if candidates == {"float16", "bfloat16"}:
        return "float32"
    return candidates.pop() if len(candidates) == 1 else None


def _result_dtype(call: Call) -> str | None:
    """torch's promotion: tensors with axes decide, 0-dim tensors and Python numbers only by a higher category."""
    name = call.op.partition("::")[2].partition(".")[0]
    if name in _COMPARISONS:
        return "bool"
    tensors = [tensor for tensor in call.inputs if isinstance(tensor, Tensor)]
    ranks = [[t.dtype for t in tensors if t.shape], [t.dtype for t in tensors if not t.shape]]
    result = None
    for dtypes in ranks:
        highest = max((_category(dtype) for dtype in dtypes), default=-1)
        if highest > (-1 if result is None else _category(result)):
            promoted = _promoted(dtype for dtype in dtypes if _category(dtype) == highest)
            # A Python float among integer tensors gives the default dtype, not its own float64.
            result = "float32" if result is not None and promoted == "float64" else promoted
            if result is None:
                return None
    if result is None or _category(result) >= 2:
        return result
    fractional = any("." in text or "e" in text for text in _scalars(call))
    if name in _MAKES_FLOATS or (fractional and name in _KEEPS_INTEGERS):
        return "float32"
    return result if name in _KEEPS_INTEGERS else None


def _scalars(call: Call) -> list[str]:
    texts = call.concrete or ()
    return [t for t, argument in zip(texts, call.overload.arguments, strict=False) if argument.type == "Scalar" and t]


def _reduction(call: Call) -> Counts:
    """All elements are read; the axes in `dim` go, or become 1 with `keepdim`. Without `dim` one element is left."""
    source = call.inputs[0] if call.inputs and isinstance(call.inputs[0], Tensor) else None
    read = sum(tensor.bytes for tensor in call.read)
    if source is None:
        return None, None
    if call.overload.mutates:
        return read, _mutated(call)
    left, dtype = _elements_left(call, source), _reduced_dtype(call, source)
    if left is None or dtype is None:
        return read, None
    name, outputs = call.op.partition("::")[2].partition(".")[0], len(call.overload.outputs)
    if outputs == 1:
        return read, left * _size(dtype)
    if outputs == 2 and name in ("max", "min", "median", "mode"):  # values and where they stood
        return read, left * (_size(dtype) + _size("int64"))
    return read, left * 2 * _size(dtype) if outputs == 2 and name in ("var_mean", "std_mean", "aminmax") else None


def _elements_left(call: Call, source: Tensor) -> int | None:
    text = call.text("dim")
    if text is None:
        return None
    try:
        dims = [int(part) for part in text.strip("[]").split(",") if part.strip()]
        gone = {dim % len(source.shape) for dim in dims}
    except (ValueError, ZeroDivisionError):
        return None
    if not gone:
        return 1
    return prod(size for axis, size in enumerate(source.shape) if axis not in gone)


def _reduced_dtype(call: Call, source: Tensor) -> str | None:
    name = call.op.partition("::")[2].partition(".")[0]
    if name in ("any", "all"):
        return "bool"
    if name in ("argmax", "argmin", "count_nonzero"):
        return "int64"
    asked = call.text("dtype")
    if asked is None:
        return None
    if asked:
        return scalar_type(asked)
    return "int64" if name in ("sum", "prod") and _category(source.dtype) < 2 else source.dtype


def _softmax(call: Call) -> Counts:
    """As many elements out as in; half_to_float and input_dtype say of which dtype."""
    read = sum(tensor.bytes for tensor in call.read)
    if call.overload.mutates:
        return read, _mutated(call)
    source = call.read[0]
    wider, asked = call.text("half_to_float"), call.text("input_dtype")
    if wider is None or asked is None:
        return read, None
    dtype = "float32" if wider == "True" else scalar_type(asked) if asked else source.dtype
    return read, None if dtype is None else prod(source.shape) * _size(dtype)


def _layer_norm(call: Call) -> Counts:
    """The normalised tensor and, a row, its statistics in float32 (mean and rstd; rstd alone for RMS norm)."""
    read = sum(tensor.bytes for tensor in call.read)
    text = call.text("normalized_shape")
    if text is None:
        return read, None
    try:
        row = prod(int(part) for part in text.strip("[]").split(",") if part.strip())
    except ValueError:
        return read, None
    source = call.read[0]
    elements = prod(source.shape)
    statistics = len(call.overload.outputs) - 1
    return read, elements * _size(source.dtype) + (elements // row if row else 0) * statistics * _size("float32")


def _dropout(call: Call) -> Counts:
    """The tensor and its mask."""
    source = call.read[0]
    return source.bytes, prod(source.shape) * (_size(source.dtype) + _size("bool"))


def _joined(call: Call) -> Counts:
    """cat, stack: everything is read and written once. A list's dtype is not recorded, the kernel's name may say."""
    shapes = call.inputs[0] if call.inputs else None
    if not isinstance(shapes, tuple) or call.element_bytes is None:
        return None, None
    count = sum(prod(shape) for shape in shapes) * call.element_bytes
    return count, count


def _selected(call: Call) -> Counts:
    """index_select, gather: what is written was read, and the index."""
    source, index = call.tensor("self"), call.tensor("index")
    if source is None or index is None:
        return None, None
    elements = prod(index.shape)
    if call.overload.arguments[0].name == "self" and call.op.startswith("aten::index_select"):
        try:
            dim = int(call.text("dim") or "") % len(source.shape)
        except (ValueError, ZeroDivisionError):
            return None, None
        elements *= prod(size for axis, size in enumerate(source.shape) if axis != dim)
    written = elements * _size(source.dtype)
    return written + index.bytes, written


def _product(call: Call) -> Counts:
    """Both factors, and what is added, are read once; rows of the first by columns of the second are written."""
    read = sum(tensor.bytes for tensor in call.read)
    left = call.tensor("mat1") or call.tensor("batch1") or call.tensor("self")
    right = call.tensor("mat2") or call.tensor("batch2")
    if left is None or right is None or not left.shape or not right.shape:
        return read, None
    return read, prod(left.shape[:-1]) * right.shape[-1] * _size(left.dtype)


# By operator where one differs from its class, else by class.
_RULES: dict[str, Callable[[Call], Counts]] = {
    "aten::cat": _joined,
    "aten::_cat": _joined,
    "aten::stack": _joined,
    "aten::native_layer_norm": _layer_norm,
    "aten::_fused_rms_norm": _layer_norm,
    "aten::native_dropout": _dropout,
    "aten::index_select": _selected,
    "aten::gather": _selected,
    "aten::mm": _product,
    "aten::bmm": _product,
    "aten::addmm": _product,
    "aten::baddbmm": _product,
    "aten::copy_": _elementwise,
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax,
    "aten::_log_softmax_backward_data": _softmax,
    "pointwise": _elementwise,
    "reduction": _reduction,
}


def _written_only(call: Call) -> Counts:
    """fill_, normal_: nothing is read, the target is written."""
    return (0, _mutated(call)) if call.overload.mutates else (0, None)


_RULES |= {"fill": _written_only, "random": _written_only}
