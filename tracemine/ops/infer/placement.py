"""Output rules of what makes, moves, joins and looks up elements: factories, copies, cat, gather, embedding, pad."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from msgspec.structs import replace

from tracemine.ops.infer.arguments import Arguments, number_type, refuse_if
from tracemine.ops.infer.arithmetic import elementwise, known, laid_like, made, promoted
from tracemine.ops.infer.outputs import Outputs, rule
from tracemine.ops.infer.promotion import DEFAULT, floating
from tracemine.ops.infer.tensor import (
    TensorSpec,
    channels_last,
    contiguous,
    is_channels_last,
    is_contiguous,
    like,
    looks_channels_last,
    suggested,
)

_PRESERVE, _CONTIGUOUS = 1, 0  # torch's numbers of memory formats; 2 and 3 are channels last


def _formatted(shape: Sequence[int], dtype: str | None, memory_format: int) -> TensorSpec:
    if memory_format == _CONTIGUOUS:
        return made(shape, dtype)
    refuse_if(memory_format not in (2, 3) or len(shape) != memory_format + 2, "the memory format does not fit")
    return TensorSpec(tuple(shape), dtype, channels_last(shape))


def _format(call: Arguments, default: int) -> int:
    return call.integer("memory_format", default) if "memory_format" in call else default


# --- factories -------------------------------------------------------------------------------------------------------


@rule
def new(call: Arguments, dtype: str = DEFAULT, by: str = "", size: str = "size") -> Outputs:
    """Make a tensor of a given shape. The dtype is given, or of `self`, or of the number named `by`, or the default."""
    asked = call.dtype() if "dtype" in call else None
    if asked is None and "self" in call:
        asked = call.tensor("self").dtype
    if asked is None and by:
        kind = number_type(call.text(by))
        asked = kind if kind in ("bool", "int64") else floating(DEFAULT) if kind == "float64" else "complex64"
    shape = call.sizes(size) if size else ()
    return (_formatted(shape, asked or dtype, _format(call, _CONTIGUOUS)),)


@rule
def new_strided(call: Arguments) -> Outputs:
    """Make a tensor of given shape and strides."""
    shape, strides = call.sizes("size"), call.sizes("stride")
    refuse_if(len(shape) != len(strides))
    asked = call.dtype() or (call.tensor("self").dtype if "self" in call else DEFAULT)
    return (TensorSpec(shape, asked, strides),)


@rule
def new_like(call: Arguments, dtype: str = "") -> Outputs:
    """Take the shape, and where not asked otherwise dtype and layout, of self: empty_like and others."""
    source = call.tensor("self")
    asked = (call.dtype() if "dtype" in call else None) or dtype or source.dtype
    memory_format = _format(call, _PRESERVE)
    if memory_format == _PRESERVE:
        return (laid_like(source, asked),)
    return (_formatted(source.shape, asked, memory_format),)


@rule
def arange(call: Arguments) -> Outputs:
    """Count from start by step to before end. All integers unless one is not, or a dtype is asked for."""
    texts = [call.text(name) for name in ("start", "end", "step") if name in call]
    asked = call.tensor("out").dtype if "out" in call else call.dtype()
    dtype = asked or ("int64" if all(number_type(text) == "int64" for text in texts) else DEFAULT)
    values = [float(text) if number_type(text) == "float64" else int(text) for text in texts]
    if dtype == "int64":  # counted in integers, whatever was given
        values = [int(value) for value in values]
    start, end, step = (0, values[0], 1) if len(values) == 1 else (*values, 1)[:3]
    count = -((start - end) // step) if dtype == "int64" else ceil((end - start) / step)
    return (made((max(0, int(count)),), dtype),)


@rule
def counted(call: Arguments, argument: str, dtype: str = DEFAULT) -> Outputs:
    """Make a tensor of a given length: linspace, randperm, windows."""
    asked = call.dtype() if "dtype" in call else None
    return (made((call.integer(argument),), asked or dtype),)


@rule
def eye(call: Arguments) -> Outputs:
    """Make n × m, or n × n."""
    rows = call.integer("n")
    return (made((rows, call.integer("m", rows) if "m" in call else rows), call.dtype() or DEFAULT),)


@rule
def resized(call: Arguments) -> Outputs:
    """resize_: the same tensor with another shape, row-major unless asked otherwise."""
    source, size = call.tensor("self"), call.sizes("size")
    result = _formatted(size, source.dtype, _format(call, _CONTIGUOUS))
    kept = source.shape == size and not call.recorded("memory_format")
    return (source if kept else result,)


# --- copies ----------------------------------------------------------------------------------------------------------


@rule
def to_copy(call: Arguments, clones: bool = False) -> Outputs:
    """Return a copy, with another dtype or layout if asked for."""
    source = call.tensor("self")
    dtype = (call.dtype() if "dtype" in call else None) or source.dtype
    memory_format = _format(call, _PRESERVE)
    if memory_format == _PRESERVE:
        if source.strides is None:
            return (TensorSpec(source.shape, dtype, None),)
        dense = like(source.shape, source.strides)
        if not clones and dense is not source.strides:  # a cast does not keep the order of axes of what is not dense
            dense = suggested(source.shape, source.strides)
        return (TensorSpec(source.shape, dtype, dense),)
    return (_formatted(source.shape, dtype, memory_format),)


@rule
def to(call: Arguments) -> Outputs:
    """Return the tensor itself where it is already so, else a copy: which of both shows only where one is not dense."""
    source = call.tensor("self")
    dtype = call.tensor("other").dtype if "other" in call else (call.dtype() if "dtype" in call else None)
    (copy,) = to_copy(call)
    if copy is None or source.strides is None:
        return (TensorSpec(source.shape, dtype or source.dtype, None),)
    certain = copy.strides == source.strides or (dtype is not None and dtype != source.dtype)
    strides = copy.strides if certain or call.flag("copy") else None
    return (TensorSpec(source.shape, dtype or source.dtype, strides),)


@rule
def contiguous_(call: Arguments) -> Outputs:
    """Return the tensor itself where it already lies so, else a copy."""
    source = call.tensor("self")
    memory_format = _format(call, _CONTIGUOUS)
    copy = _formatted(source.shape, source.dtype, memory_format)
    if source.strides is None:
        return (copy,)
    settled = is_contiguous if memory_format == _CONTIGUOUS else is_channels_last
    return (source if settled(source.shape, source.strides) else copy,)


@rule
def flip(call: Arguments) -> Outputs:
    """Return the same shape, layout kept."""
    source = call.tensor("self")
    return (laid_like(source, source.dtype),)


@rule
def cat(call: Arguments) -> Outputs:
    """Concatenate along an axis. Old-style empty members of shape [0] count for nothing."""
    members = call.tensors("tensors")
    sized = [member for member in members if member.shape != (0,)] or list(members[:1])
    first = sized[0].shape
    axis = call.axis("dim", len(first), 0)
    total = 0
    for member in sized:
        refuse_if(len(member.shape) != len(first) or not first)
        refuse_if(member.shape[:axis] + member.shape[axis + 1 :] != first[:axis] + first[axis + 1 :])
        total += member.shape[axis]
    shape = (*first[:axis], total, *first[axis + 1 :])
    return (TensorSpec(shape, _common(members), _joined_layout(shape, members)),)


def _common(members: Sequence[TensorSpec]) -> str | None:
    return None if any(member.dtype is None for member in members) else promoted(members)


def _joined_layout(shape: tuple[int, ...], members: Sequence[TensorSpec]) -> tuple[int, ...] | None:
    """Return channels last where all members suggest it, else row-major."""
    if len(shape) not in (4, 5):
        return contiguous(shape)
    if any(member.strides is None for member in members):
        return None
    votes = [looks_channels_last(member.shape, member.strides or ()) for member in members]
    return channels_last(shape) if all(votes) else contiguous(shape)


@rule
def stack(call: Arguments) -> Outputs:
    """Stack along a new axis: concatenated along the axis that follows, which is then split, or a last one."""
    members = call.tensors("tensors")
    shape, count = members[0].shape, len(members)
    refuse_if(any(member.shape != shape for member in members))
    axis = call.axis("dim", len(shape) + 1, 0)
    if axis < len(shape):
        layout = _joined_layout((*shape[:axis], count * shape[axis], *shape[axis + 1 :]), members)
        split = layout and (*layout[:axis], shape[axis] * layout[axis], *layout[axis:])
    else:
        longer = [replace(m, shape=(*shape, 1), strides=m.strides and (*m.strides, 1)) for m in members]
        split = _joined_layout((*shape, count), longer)
    return (TensorSpec((*shape[:axis], count, *shape[axis:]), _common(members), split),)


@rule
def repeat(call: Arguments, argument: str = "repeats") -> Outputs:
    """Return every axis so many times."""
    source, times = call.tensor("self"), call.sizes(argument)
    shape = (1,) * (len(times) - len(source.shape)) + source.shape
    times = (1,) * (len(shape) - len(times)) + times
    return (made([size * count for size, count in zip(shape, times, strict=True)], source.dtype),)


@rule
def repeat_interleave(call: Arguments) -> Outputs:
    """Return every index of an axis so many times, where that is one number."""
    source = call.tensor("self")
    refuse_if(call.recorded("repeats") not in ("Scalar", "Int"), "how often each index repeats is data")
    shape, times = list(source.shape), call.integer("repeats")
    if not call.recorded("dim"):
        return (made((source.elements * times,), source.dtype),)
    shape[call.axis("dim", len(shape))] *= times
    return (made(shape, source.dtype),)


@rule
def pad(call: Arguments, layout: str = "") -> Outputs:
    """Return pairs of lengths before and behind, last axis first. Channels last is kept, unless that is not known.

    Where nothing is added the input is narrowed and cloned, and any layout is kept (ConstantPadNd.cpp).
    """
    source, pairs = call.tensor("self"), call.sizes("pad" if "pad" in call else "padding")
    shape = list(source.shape)
    for place in range(len(pairs) // 2):
        shape[-1 - place] += pairs[2 * place] + pairs[2 * place + 1]
    refuse_if(any(size < 0 for size in shape))
    narrowed = TensorSpec(tuple(shape), source.dtype, source.strides)
    adds = any(length > 0 for length in pairs)
    strides = _suggested(source, shape) if adds else laid_like(narrowed, source.dtype).strides
    certain = not layout or strides == contiguous(shape)
    return (TensorSpec(tuple(shape), source.dtype, strides if certain else None),)


def _suggested(source: TensorSpec, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return strides of a new tensor of `shape` in the memory format that `source` suggests."""
    if len(shape) not in (4, 5):
        return contiguous(shape)
    if source.strides is None:
        return None
    return channels_last(shape) if looks_channels_last(source.shape, source.strides) else contiguous(shape)


# --- lookups ---------------------------------------------------------------------------------------------------------


@rule
def gather(call: Arguments) -> Outputs:
    """Return one element an index."""
    return (made(call.tensor("index").shape, call.tensor("self").dtype),)


@rule
def index_select(call: Arguments) -> Outputs:
    """Return the axis becomes as long as the index."""
    source, index = call.tensor("self"), call.tensor("index")
    shape = list(source.shape)
    if shape:
        shape[call.axis("dim", len(shape))] = index.elements
    return (made(shape, source.dtype),)


@rule
def embedding(call: Arguments) -> Outputs:
    """Return one row of the table an index."""
    table, indices = call.tensor("weight"), call.tensor("indices")
    return (made((*indices.shape, *table.shape[1:]), table.dtype),)


@rule
def embedding_backward(call: Arguments) -> Outputs:
    """Return the gradient of the whole table."""
    grad = call.tensor("grad_output")
    return (made((call.integer("num_weights"), grad.shape[-1]), grad.dtype),)


@rule
def one_hot(call: Arguments) -> Outputs:
    """Return a new last axis, one place a class."""
    classes = call.integer("num_classes")
    refuse_if(classes < 0, "the number of classes is data")
    return (made((*call.tensor("self").shape, classes), "int64"),)


@rule
def full_gradient(call: Arguments, argument: str = "input_sizes") -> Outputs:
    """slice_backward and its kin: the gradient of the whole tensor, zero but for what was looked at."""
    return (made(call.sizes(argument), call.tensor("grad_output", "grad").dtype),)


@rule
def foreach(call: Arguments) -> Outputs:
    """Return a pointwise operation on each member, with the members of other lists that stand at its place."""
    lists = [given for given in call.inputs if isinstance(given, tuple) and given]
    refuse_if(not lists or len({len(members) for members in lists}) != 1, "the members of the lists were not recorded")
    found = []
    for members in zip(*lists, strict=True):
        result = elementwise(members, members[0].dtype)
        agreed = all(member.strides == result.strides for member in members)  # else fast and slow kernels differ
        found.append(result if agreed else TensorSpec(result.shape, result.dtype, None))
    return found


@rule
def foreach_norm(call: Arguments) -> Outputs:
    """Return one number a member."""
    asked = call.dtype() if "dtype" in call else None
    return tuple(made((), asked or member.dtype) for member in call.tensors("self"))


@rule
def flattened(call: Arguments) -> Outputs:
    """Return everything in one row: flatten_dense_tensors."""
    members = call.tensors("tensors")
    return (made((sum(prod(member.shape) for member in members),), known(members[0].dtype)),)
