"""Output rules of what computes: pointwise, reductions, scans, sorts, softmax, losses, matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tracemine.ops.infer.arguments import Arguments, Unknown, refuse_if, wrapped
from tracemine.ops.infer.outputs import Outputs, rule
from tracemine.ops.infer.promotion import category, floating, real, result_type, whole
from tracemine.ops.infer.tensor import Sizes, TensorSpec, broadcast, contiguous, is_contiguous, iterated, like


def made(shape: Sequence[int], dtype: str | None) -> TensorSpec:
    """Return a new row-major tensor."""
    shape = tuple(shape)
    refuse_if(any(size < 0 for size in shape))
    return TensorSpec(shape, dtype, contiguous(shape))


def plain(source: TensorSpec, dtype: str | None) -> TensorSpec:
    """Return a new tensor of another's shape, row-major where the other is; else its layout is unknown."""
    dense = source.strides is not None and is_contiguous(source.shape, source.strides)
    return TensorSpec(source.shape, dtype, contiguous(source.shape) if dense else None)


def laid_like(source: TensorSpec, dtype: str | None) -> TensorSpec:
    """Return a new tensor of another's shape that keeps its layout (empty_like)."""
    strides = None if source.strides is None else like(source.shape, source.strides)
    return TensorSpec(source.shape, dtype, strides)


def known(dtype: str | None) -> str:
    """Return the dtype, where it was recorded."""
    if dtype is None:
        raise Unknown("the dtype of a list's members is not recorded")
    return dtype


def promoted(tensors: Sequence[TensorSpec], numbers: Sequence[str] = ()) -> str:
    """Promote as torch does over tensors and Python numbers."""
    shaped = [known(tensor.dtype) for tensor in tensors if tensor.shape]
    zero_dim = [known(tensor.dtype) for tensor in tensors if not tensor.shape]
    return result_type(shaped, zero_dim, numbers)


def elementwise(tensors: Sequence[TensorSpec], dtype: str | None) -> TensorSpec:
    """Return the result of a pointwise operation."""
    refuse_if(not tensors, "no tensor was recorded among the inputs")
    shape = broadcast([tensor.shape for tensor in tensors])
    return TensorSpec(shape, dtype, iterated(shape, tensors))


_DTYPES: dict[str, Callable[[str], str]] = {
    "promote": lambda dtype: dtype,
    "float": floating,
    "counted": lambda dtype: "int64" if dtype == "bool" else dtype,
    "real": real,
    "whole": whole,
    "real float": lambda dtype: real(floating(dtype)),
    "bool": lambda dtype: "bool",
}


@rule
def pointwise(call: Arguments, dtype: str = "promote", apart: str = "", backwards: bool = False) -> Outputs:
    """Broadcast inputs; promote dtypes, then take what `dtype` says.

    apart: an argument that does not promote. backwards: the last tensor's layout has the first word.
    """
    tensors, numbers = call.operands()
    if backwards:
        tensors.reverse()
    if dtype == "bool":
        return (elementwise(tensors, "bool"),)
    promoting = tensors
    if apart:
        condition = call.tensor(apart)
        promoting = [tensor for tensor in tensors if tensor is not condition]
    result = _DTYPES[dtype](promoted(promoting, numbers))
    if "rounding_mode" in call and result != promoted(promoting, numbers):
        # The mode is a string, and those are not recorded: with one, integers stay integers.
        raise Unknown("rounding_mode was not recorded")
    return (elementwise(tensors, result),)


@rule
def keeps(call: Arguments, argument: str = "self", dtype: str = "promote", agreed: bool = False) -> Outputs:
    """Return a pointwise operation over all tensors whose dtype one of them decides.

    agreed: the layout is known only where all have the same.
    """
    tensors, _ = call.operands()
    result = elementwise(tensors, _DTYPES[dtype](known(call.tensor(argument, "input").dtype)))
    if agreed and any(tensor.strides != result.strides for tensor in tensors if tensor.shape):
        result = TensorSpec(result.shape, result.dtype, None)
    return (result,)


@rule
def same(call: Arguments, argument: str = "self", dtype: str = "", layout: str = "") -> Outputs:
    """Return a new tensor like one argument, layout kept unless it is unknown."""
    source = call.tensor(argument, "input")
    return ((plain if layout else laid_like)(source, dtype or source.dtype),)


@rule
def row_major(call: Arguments, argument: str = "self") -> Outputs:
    """Return a new row-major tensor of one argument's shape."""
    source = call.tensor(argument, "input")
    return (made(source.shape, source.dtype),)


@rule
def filled(call: Arguments) -> Outputs:
    """Broadcast self to the mask, in a new row-major tensor: masked_fill and others."""
    source = call.tensor("self")
    shape = broadcast([source.shape, call.tensor("mask").shape])
    return (made(shape, source.dtype),)


@rule
def halved(call: Arguments) -> Outputs:
    """Halve the axis `dim`: glu."""
    source = call.tensor("self")
    shape = list(source.shape)
    axis = call.axis("dim", len(shape), -1)
    shape[axis] //= 2
    halves = TensorSpec(tuple(shape), source.dtype, source.strides)
    return (elementwise((halves, halves), source.dtype),)


@rule
def prelu_gradients(call: Arguments) -> Outputs:
    """Return one of each element, and one of its weight, which is summed to the weight's shape afterwards."""
    tensors = tuple(call.tensor(name) for name in ("self", "weight", "grad_output"))
    found = elementwise(tensors, tensors[0].dtype)
    return found, found


@rule
def log_sigmoid(call: Arguments) -> Outputs:
    """Return result and a buffer, which GPUs leave empty."""
    source = call.tensor("self")
    return laid_like(source, source.dtype), made((0,), source.dtype)


@rule
def dropout(call: Arguments, mask: str = "bool") -> Outputs:
    """Return the tensor and the mask of what was kept."""
    source = call.tensor("input", "self")
    trains = call.flag("train", default=True)
    return laid_like(source, source.dtype) if trains else source, laid_like(source, mask)


@rule
def dropped(call: Arguments) -> Outputs:
    """Return, in training, a new tensor laid out as the old one; else the tensor itself."""
    source = call.tensor("input")
    if not call.flag("train") or float(call.text("p")) == 0:
        return (source,)
    return (laid_like(source, source.dtype),)


@rule
def conjugate(call: Arguments) -> Outputs:
    """Return a new tensor for a complex one; a real tensor itself."""
    source = call.tensor("self")
    return (elementwise((source,), source.dtype) if category(known(source.dtype)) == 3 else source,)


# --- reductions, scans, sorts ----------------------------------------------------------------------------------------


def _axes(call: Arguments, rank: int) -> set[int]:
    """Return the axes that are reduced; all where none is named."""
    name = "axis" if "axis" in call else "dim"
    named = call.integers(name) if name in call else None
    if not named:
        return set(range(rank))
    axes = {wrapped(axis, rank) for axis in named}
    return axes if rank else set()


def reduced(shape: Sizes, axes: set[int], keep: bool) -> Sizes:
    """Return the shape that is left."""
    if keep:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


def _summed(dtype: str) -> str:
    return "int64" if category(dtype) < 2 else dtype


_REDUCED = {
    "keep": (lambda dtype: dtype,),
    "sum": (_summed,),
    "float": (floating,),
    "real": (real,),
    "truth": (lambda dtype: "uint8" if dtype == "uint8" else "bool",),
    "int64": (lambda dtype: "int64",),
    "keep keep": (lambda dtype: dtype, lambda dtype: dtype),
    "real keep": (real, lambda dtype: dtype),
    "keep int64": (lambda dtype: dtype, lambda dtype: "int64"),
}


@rule
def reduction(call: Arguments, dtype: str = "keep", named: bool = False) -> Outputs:
    """Drop axes, or keep them as 1 with keepdim; an output for each word of `dtype`. named: one must be named."""
    source = call.tensor("self", "input", "x")
    refuse_if(named and not call.integers("dim"), "no axis is named")
    shape = reduced(source.shape, _axes(call, len(source.shape)), call.flag("keepdim"))
    asked = call.dtype() if "dtype" in call else None
    return tuple(made(shape, asked or to(known(source.dtype))) for to in _REDUCED[dtype])


@rule
def extremum(call: Arguments) -> Outputs:
    """Reduce two tensors, all elements, or an axis, then with indices: max, min, median."""
    if "other" in call:
        return pointwise(call)
    return reduction(call, "keep int64" if "dim" in call else "keep")


@rule
def scan(call: Arguments, dtype: str = "keep") -> Outputs:
    """Keep the shape, row-major where torch does not keep the layout: cumsum and others."""
    source = call.tensor("self")
    asked = call.dtype() if "dtype" in call else None
    result = TensorSpec(source.shape, None, None if source.strides is None else like(source.shape, source.strides))
    return tuple(
        TensorSpec(result.shape, asked or to(known(source.dtype)), contiguous(result.shape)) for to in _REDUCED[dtype]
    )


@rule
def sort(call: Arguments, indices_only: bool = False) -> Outputs:
    """Return values and where they stood, both laid out as the input if it is dense."""
    source = call.tensor("self")
    values, places = laid_like(source, source.dtype), laid_like(source, "int64")
    return (places,) if indices_only else (values, places)


@rule
def topk(call: Arguments) -> Outputs:
    """Return k values along an axis, and their indices."""
    source = call.tensor("self")
    shape = list(source.shape)
    if shape:
        shape[call.axis("dim", len(shape), -1)] = call.integer("k")
    return made(shape, source.dtype), made(shape, "int64")


@rule
def kth_value(call: Arguments) -> Outputs:
    """Return one value along an axis, and where it stood."""
    return reduction(call, "keep int64")


@rule
def softmax(call: Arguments) -> Outputs:
    """Return the same shape; half_to_float or dtype may widen it."""
    source = call.tensor("self", "input")
    if call.flag("half_to_float"):
        return (made(source.shape, "float32"),)
    asked = call.dtype() if "dtype" in call else None
    return (made(source.shape, asked or floating(known(source.dtype))),)


@rule
def softmax_backward(call: Arguments) -> Outputs:
    """Take the dtype that the forward's input had."""
    grad = call.tensor("grad_output")
    return (made(grad.shape, call.dtype("input_dtype") or grad.dtype),)


# --- losses ----------------------------------------------------------------------------------------------------------


@rule
def loss(call: Arguments, composite: bool = False) -> Outputs:
    """One number, or with reduction 0 one an element. composite: made of several operators, each with its layout."""
    tensors = [call.tensor("self", "input"), call.tensor("target")]
    dtype = promoted(tensors)
    if call.integer("reduction", 1) == 0:
        result = elementwise(tensors, dtype)
        dense = all(tensor.strides == contiguous(result.shape) for tensor in tensors)
        return (TensorSpec(result.shape, dtype, None) if composite and not dense else result,)
    return (made((), dtype),)


@rule
def nll_loss(call: Arguments, totals: bool = False) -> Outputs:
    """Return one number, or with reduction 0 one a target; with `totals`, also the weight of all."""
    source, target = call.tensor("self"), call.tensor("target")
    none = call.integer("reduction", 1) == 0 and len(source.shape) != 1
    shape = target.shape if none else ()
    if category(known(target.dtype)) == 2:  # probabilities, one a class
        shape = reduced(source.shape, {min(1, len(source.shape) - 1)}, False) if none else ()
    result = made(shape, source.dtype)
    return (result, made((), source.dtype)) if totals else (result,)


# --- matrix products -------------------------------------------------------------------------------------------------


def _rank(tensor: TensorSpec, rank: int) -> Sizes:
    refuse_if(len(tensor.shape) != rank)
    return tensor.shape


@rule
def product(call: Arguments, left: str, right: str) -> Outputs:
    """Multiply [batch,] rows × inner by inner × columns, row-major. `out_dtype` where the overload has one."""
    first, second = call.tensor(left), call.tensor(right)
    rank = len(first.shape)
    refuse_if(rank not in (2, 3) or len(_rank(second, rank)) != rank or first.shape[-1] != second.shape[-2])
    asked = call.dtype("out_dtype") if "out_dtype" in call else None
    return (made((*first.shape[:-1], second.shape[-1]), asked or first.dtype),)


@rule
def summed_product(call: Arguments) -> Outputs:
    """Sum the products of a batch: addbmm."""
    first, second = call.tensor("batch1"), call.tensor("batch2")
    return (made((_rank(first, 3)[1], _rank(second, 3)[2]), first.dtype),)


@rule
def matrix_vector(call: Arguments, matrix: str = "self") -> Outputs:
    """Return one number a row."""
    source = call.tensor(matrix)
    return (made(_rank(source, 2)[:1], source.dtype),)


@rule
def dot(call: Arguments) -> Outputs:
    """Return one number."""
    return (made((), call.tensor("self").dtype),)


@rule
def outer(call: Arguments, left: str = "self", right: str = "vec2", layout: str = "") -> Outputs:
    """Return every product of two vectors' elements."""
    first, second = call.tensor(left), call.tensor(right)
    result = made((*_rank(first, 1), *_rank(second, 1)), promoted((first, second)))
    return (TensorSpec(result.shape, result.dtype, None) if layout else result,)


@rule
def int_product(call: Arguments) -> Outputs:
    """Multiply bytes into int32: _int_mm."""
    return (made((_rank(call.tensor("self"), 2)[0], _rank(call.tensor("mat2"), 2)[1]), "int32"),)


@rule
def linear(call: Arguments) -> Outputs:
    """Compute input · weightᵀ + bias."""
    source, weight = call.tensor("input"), call.tensor("weight")
    refuse_if(len(weight.shape) not in (1, 2) or not source.shape or source.shape[-1] != weight.shape[-1])
    return (made((*source.shape[:-1], *weight.shape[:-1]), source.dtype),)


@rule
def matmul(call: Arguments) -> Outputs:
    """Multiply vectors, matrices and batches. A matrix by a batch may come out transposed: strides are not known."""
    first, second = call.tensor("self"), call.tensor("other")
    a, b = first.shape, second.shape
    refuse_if(not a or not b or a[-1] != b[-2 if len(b) > 1 else -1])
    batch = broadcast([a[:-2], b[:-2]])
    shape = batch + a[-2:-1] * (len(a) > 1) + b[-1:] * (len(b) > 1)
    if len(a) <= 2 < len(b):
        return (TensorSpec(shape, first.dtype, None),)
    return (made(shape, first.dtype),)
