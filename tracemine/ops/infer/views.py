"""Output rules of views of the same storage. Where strides were not recorded, shapes are still inferred."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from tracemine.ops.dtypes import itemsize
from tracemine.ops.infer.arguments import MISFIT, Arguments, Unknown, refuse_if, wrapped
from tracemine.ops.infer.arithmetic import known, made
from tracemine.ops.infer.outputs import Outputs, rule
from tracemine.ops.infer.promotion import category, real
from tracemine.ops.infer.tensor import Sizes, TensorSpec, broadcast, viewed


def _pick(source: TensorSpec, axes: Sequence[int]) -> TensorSpec:
    """Return the tensor with its axes in another order."""
    strides = None if source.strides is None else tuple(source.strides[axis] for axis in axes)
    return TensorSpec(tuple(source.shape[axis] for axis in axes), source.dtype, strides)


def _with(source: TensorSpec, axis: int, size: int, step: int = 1) -> TensorSpec:
    """Return the tensor with another length of one axis, its stride times `step`."""
    shape = (*source.shape[:axis], size, *source.shape[axis + 1 :])
    strides = source.strides
    if strides is not None and step != 1:
        strides = (*strides[:axis], strides[axis] * step, *strides[axis + 1 :])
    return TensorSpec(shape, source.dtype, strides)


def _without(source: TensorSpec, axes: set[int]) -> TensorSpec:
    return _pick(source, [axis for axis in range(len(source.shape)) if axis not in axes])


@rule
def alias(call: Arguments) -> Outputs:
    """Return the tensor itself."""
    return (call.tensor("self", "input", "data"),)


@rule
def transpose(call: Arguments, first: str = "dim0", second: str = "dim1") -> Outputs:
    """Swap two axes."""
    source = call.tensor("self")
    rank = len(source.shape)
    axes = list(range(rank))
    a, b = call.axis(first, rank), call.axis(second, rank)
    if axes:
        axes[a], axes[b] = axes[b], axes[a]
    return (_pick(source, axes),)


@rule
def transposed_matrix(call: Arguments) -> Outputs:
    """Swap the last two axes: t, mT."""
    source = call.tensor("self")
    axes = list(range(len(source.shape)))
    axes[-2:] = axes[-2:][::-1]
    return (_pick(source, axes),)


@rule
def reversed_axes(call: Arguments) -> Outputs:
    """Reverse all axes: numpy_T."""
    source = call.tensor("self")
    return (_pick(source, range(len(source.shape) - 1, -1, -1)),)


@rule
def permute(call: Arguments) -> Outputs:
    """Return the axes in the order given."""
    source = call.tensor("self")
    axes = [wrapped(axis, len(source.shape)) for axis in call.sizes("dims")]
    refuse_if(sorted(axes) != list(range(len(source.shape))))
    return (_pick(source, axes),)


@rule
def movedim(call: Arguments) -> Outputs:
    """Return some axes move, the rest keep their order."""
    source = call.tensor("self")
    rank = len(source.shape)
    origins = [wrapped(axis, rank) for axis in call.sizes("source")]
    targets = [wrapped(axis, rank) for axis in call.sizes("destination")]
    moved = dict(zip(targets, origins, strict=True))
    rest = iter(axis for axis in range(rank) if axis not in origins)
    return (_pick(source, [moved[place] if place in moved else next(rest) for place in range(rank)]),)


def _filled_in(wanted: Sizes, elements: int) -> Sizes:
    """Return a shape with its one −1 worked out."""
    refuse_if(wanted.count(-1) > 1 or any(size < -1 for size in wanted))
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        refuse_if(not rest or elements % rest > 0)
        wanted = tuple(elements // rest if size == -1 else size for size in wanted)
    refuse_if(prod(wanted) != elements)
    return wanted


def reshaped(source: TensorSpec, wanted: Sizes, copies: bool) -> TensorSpec:
    """Return the same elements in another shape: a view where strides allow, else a row-major copy if that may be."""
    wanted = _filled_in(wanted, source.elements)
    if source.strides is None:
        return TensorSpec(wanted, source.dtype, None)
    strides = viewed(source.shape, source.strides, wanted)
    if strides is not None:
        return TensorSpec(wanted, source.dtype, strides)
    refuse_if(not copies)
    return made(wanted, source.dtype)


@rule
def view(call: Arguments, argument: str = "size", copies: bool = False) -> Outputs:
    """View in another shape: view, _unsafe_view and, with `copies`, reshape. view(dtype) reads the same bytes."""
    source = call.tensor("self")
    if "dtype" in call:
        return (_reinterpreted(source, call.dtype()),)
    return (reshaped(source, call.sizes(argument), copies),)


def _reinterpreted(source: TensorSpec, dtype: str | None) -> TensorSpec:
    old, new = itemsize(known(source.dtype)), itemsize(known(dtype))
    if old == new:
        return TensorSpec(source.shape, dtype, source.strides)
    if not old or not new or not source.shape:
        raise Unknown(MISFIT)
    shape = (*source.shape[:-1], source.shape[-1] * old // new)
    strides = source.strides
    if strides is not None:
        strides = (*(stride * old // new for stride in strides[:-1]), 1)
    return TensorSpec(shape, dtype, strides)


@rule
def view_as(call: Arguments, copies: bool = False) -> Outputs:
    """Return the shape of another tensor."""
    return (reshaped(call.tensor("self"), call.tensor("other").shape, copies),)


@rule
def flatten(call: Arguments) -> Outputs:
    """Return a run of axes becomes one."""
    source = call.tensor("self")
    rank = len(source.shape)
    first, last = call.axis("start_dim", rank), call.axis("end_dim", rank)
    run = source.shape[first : last + 1]
    return (reshaped(source, (*source.shape[:first], prod(run), *source.shape[last + 1 :]), True),)


@rule
def unflatten(call: Arguments) -> Outputs:
    """Split one axis into several."""
    source = call.tensor("self")
    axis = call.axis("dim", len(source.shape))
    sizes = _filled_in(call.sizes("sizes"), source.shape[axis])
    return (reshaped(source, (*source.shape[:axis], *sizes, *source.shape[axis + 1 :]), False),)


@rule
def expand(call: Arguments) -> Outputs:
    """Repeat axes of size 1 with stride 0; −1 keeps a size; new axes come first."""
    source = call.tensor("self")
    wanted = call.tensor("other").shape if "other" in call else call.sizes("size")
    return (_expanded(source, wanted),)


def _expanded(source: TensorSpec, wanted: Sizes) -> TensorSpec:
    lead = len(wanted) - len(source.shape)
    refuse_if(lead < 0 or -1 in wanted[:lead])
    shape, strides = list(wanted[:lead]), [0] * lead
    for axis, size in enumerate(source.shape):
        target = size if wanted[lead + axis] == -1 else wanted[lead + axis]
        refuse_if(target != size and size != 1)
        shape.append(target)
        strides.append(source.strides[axis] if source.strides is not None and target == size else 0)
    return TensorSpec(tuple(shape), source.dtype, None if source.strides is None else tuple(strides))


@rule
def broadcast_lists(call: Arguments) -> Outputs:
    """broadcast_tensors: every member expanded to the common shape."""
    members = call.tensors("tensors")
    shape = broadcast([member.shape for member in members])
    return tuple(_expanded(member, shape) for member in members)


@rule
def unsqueeze(call: Arguments) -> Outputs:
    """Return a new axis of size 1."""
    source = call.tensor("self")
    axis = call.axis("dim", len(source.shape) + 1)
    shape = (*source.shape[:axis], 1, *source.shape[axis:])
    strides = source.strides
    if strides is not None:
        step = source.shape[axis] * strides[axis] if axis < len(strides) else 1
        strides = (*strides[:axis], step, *strides[axis:])
    return (TensorSpec(shape, source.dtype, strides),)


@rule
def squeeze(call: Arguments) -> Outputs:
    """Drop axes of size 1: all, or those named."""
    source = call.tensor("self")
    rank = len(source.shape)
    named = call.integers("dim") if "dim" in call else tuple(range(rank))
    axes = {wrapped(axis, rank) for axis in named or ()}
    return (_without(source, {axis for axis in axes if rank and source.shape[axis] == 1}),)


@rule
def select(call: Arguments) -> Outputs:
    """Return one index of an axis."""
    source = call.tensor("self")
    refuse_if(not source.shape)
    return (_without(source, {call.axis("dim", len(source.shape))}),)


@rule
def slice_(call: Arguments) -> Outputs:
    """Slice start:end:step of an axis, as Python does."""
    source = call.tensor("self")
    axis = call.axis("dim", len(source.shape), 0)
    size, step = source.shape[axis], call.integer("step", 1)
    refuse_if(step < 1)
    start, end, _ = slice(call.integer("start", 0), call.integer("end", size)).indices(size)
    return (_with(source, axis, max(0, -(-(end - start) // step)), step),)


@rule
def narrow(call: Arguments) -> Outputs:
    """Narrow an axis to `length`."""
    source = call.tensor("self")
    axis, length = call.axis("dim", len(source.shape)), call.integer("length")
    refuse_if(not 0 <= length <= source.shape[axis])
    return (_with(source, axis, length),)


@rule
def as_strided(call: Arguments) -> Outputs:
    """Return shape and strides as given."""
    shape, strides = call.sizes("size"), call.sizes("stride")
    refuse_if(len(shape) != len(strides) or any(size < 0 for size in shape))
    return (TensorSpec(shape, call.tensor("self").dtype, strides),)


_MOST_PARTS = 1 << 14


def _parts(source: TensorSpec, axis: int, sizes: Sequence[int]) -> Outputs:
    refuse_if(len(sizes) > _MOST_PARTS or any(size < 0 for size in sizes), "too many parts")
    return tuple(_with(source, axis, size) for size in sizes)


def _even(size: int, part: int) -> list[int]:
    """Return lengths of parts of `part`, the last with what is left."""
    if part < 1:
        if size == 0:
            return [0]
        raise Unknown(MISFIT)
    count = max(1, -(-size // part))
    refuse_if(count > _MOST_PARTS, "too many parts")
    return [part] * (count - 1) + [size - part * (count - 1)]


@rule
def split(call: Arguments, argument: str = "split_size") -> Outputs:
    """Return parts of one length, or of the lengths given."""
    source = call.tensor("self")
    axis = call.axis("dim", len(source.shape), 0)
    refuse_if(not source.shape)
    if call.recorded(argument) in ("ScalarList", "GenericList", "IntList"):
        return _parts(source, axis, call.sizes(argument))
    return _parts(source, axis, _even(source.shape[axis], call.integer(argument)))


@rule
def chunk(call: Arguments) -> Outputs:
    """Split into at most so many parts, all of one length but the last."""
    source = call.tensor("self")
    axis, count = call.axis("dim", len(source.shape), 0), call.integer("chunks")
    size = source.shape[axis]
    refuse_if(not 1 <= count <= _MOST_PARTS, "too many parts")
    if size == 0:
        return _parts(source, axis, [0] * count)
    return _parts(source, axis, _even(size, -(-size // count)))


@rule
def tensor_split(call: Arguments) -> Outputs:
    """Split into so many parts, the first ones longer by one; or at the indices given."""
    source = call.tensor("self")
    if "indices" in call:
        axis = call.axis("dim", len(source.shape), 0)
        size = source.shape[axis]
        cuts = [slice(place).indices(size)[1] for place in call.sizes("indices")]
        return _parts(source, axis, [max(0, b - a) for a, b in pairwise((0, *cuts, size))])
    axis, count = call.axis("dim", len(source.shape), 0), call.integer("sections")
    refuse_if(not 1 <= count <= _MOST_PARTS, "too many parts")
    least, more = divmod(source.shape[axis], count)
    return _parts(source, axis, [least + (place < more) for place in range(count)])


@rule
def unbind(call: Arguments) -> Outputs:
    """Return one tensor an index of an axis."""
    source = call.tensor("self")
    axis = call.axis("dim", len(source.shape), 0)
    refuse_if(not source.shape or source.shape[axis] > _MOST_PARTS, "too many parts")
    return (_without(source, {axis}),) * source.shape[axis]


@rule
def diagonal(call: Arguments) -> Outputs:
    """Take the diagonal of two axes, which comes last."""
    source = call.tensor("self")
    rank = len(source.shape)
    a, b = call.axis("dim1", rank, 0), call.axis("dim2", rank, 1)
    offset = call.integer("offset", 0)
    rows, columns = source.shape[a], source.shape[b]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    rest = _without(source, {a, b})
    strides = rest.strides
    if strides is not None and source.strides is not None:
        strides = (*strides, source.strides[a] + source.strides[b])
    return (TensorSpec((*rest.shape, length), source.dtype, strides),)


@rule
def unfold(call: Arguments) -> Outputs:
    """Return windows along an axis: their number stands in its place, their length comes last."""
    source = call.tensor("self")
    axis = call.axis("dimension", len(source.shape))
    size, step = call.integer("size"), call.integer("step")
    refuse_if(not source.shape or step < 1 or not 0 <= size <= source.shape[axis])
    windows = _with(source, axis, (source.shape[axis] - size) // step + 1, step)
    strides = windows.strides
    if strides is not None and source.strides is not None:
        strides = (*strides, source.strides[axis])
    return (TensorSpec((*windows.shape, size), source.dtype, strides),)


_PAIRS: dict[str, str] = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}


@rule
def view_as_real(call: Arguments) -> Outputs:
    """Return a complex number becomes two real ones, along a new last axis."""
    source = call.tensor("self")
    strides = None if source.strides is None else (*(2 * stride for stride in source.strides), 1)
    return (TensorSpec((*source.shape, 2), real(known(source.dtype)), strides),)


@rule
def view_as_complex(call: Arguments) -> Outputs:
    """Make one complex number of two real ones along the last axis."""
    source = call.tensor("self")
    refuse_if(not source.shape or source.shape[-1] != 2)
    strides = None if source.strides is None else tuple(stride // 2 for stride in source.strides[:-1])
    return (TensorSpec(source.shape[:-1], _PAIRS.get(known(source.dtype)), strides),)


@rule
def part(call: Arguments) -> Outputs:
    """Take every other number of a complex tensor (real, imag); a real tensor itself."""
    source = call.tensor("self")
    if category(known(source.dtype)) < 3:
        return (source,)
    strides = None if source.strides is None else tuple(2 * stride for stride in source.strides)
    return (TensorSpec(source.shape, real(known(source.dtype)), strides),)
