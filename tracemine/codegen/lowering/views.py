"""Lower what moves no value: views, slices, concats, lookups. Each is a map from an index to an index."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.axes import Dim, Dims
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, LONG
from tracemine.codegen.lowering.args import CallArgs
from tracemine.codegen.lowering.context import ADDS_UP, WRITES_ANYWHERE, Lowering, rule
from tracemine.codegen.lowering.gather import computed_view, gather, nests
from tracemine.codegen.tensor_ir import Concat, Input, Iota, Permute, Reshape, SliceOf, Tensor


@rule("view", "reshape", "_unsafe_view", "_reshape_alias", "flatten", "unsqueeze", "squeeze", "unflatten")
def _view(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    shape = given.output.shape
    if given.call.operator == "aten::squeeze":  # of one element, an axis that stays would go
        low.axes.pin([a for d in given.integers("dim") or range(len(source.dims)) for a in source.dims[d]])
    kept = [(size, dim) for size, dim in zip(low.shape(source), source.dims, strict=True) if size != 1]
    if [size for size, _ in kept] == [size for size in shape if size != 1]:  # dimensions of 1 come or go
        rest = iter(kept)
        dims = tuple(() if size == 1 else next(rest)[1] for size in shape)
        return (low.with_dims(source, dims),)
    if not nests([low.axes.size((leaf,)) for leaf in low.axes.flat(source.dims)], shape):
        return (computed_view(low, source, shape),)
    return (low.reshape(source, low.new_dims(shape)),)


def _permuted(low: Lowering, source: Tensor, order: Sequence[int | None], dims: Dims) -> Tensor:
    return Permute(dims=dims, dtype=source.dtype, origin=low.at, arg=source, source=tuple(order))


@rule("permute", "transpose", "t", "swapaxes", "movedim", "numpy_T")
def _permute(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    rank = len(source.dims)
    order = list(range(rank))
    name = given.call.operator.removeprefix("aten::")
    if name == "permute":
        order = [d % rank for d in given.integers("dims") or ()]
    elif rank > 1:
        first, second = (0, 1) if name == "t" else (given.integer("dim0", 0) % rank, given.integer("dim1", 1) % rank)
        order[first], order[second] = order[second], order[first]
    return (_permuted(low, source, order, tuple(source.dims[d] for d in order)),)


@rule("expand", "expand_as", "broadcast_to")
def _expand(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, shape = given.tensor("self"), given.output.shape
    lead = len(shape) - len(source.dims)
    sizes = (None,) * lead + low.shape(source)
    fresh = low.axes.dims(shape)
    repeats = [place < lead or sizes[place] != size for place, size in enumerate(shape)]
    dims = tuple(fresh[at] if repeats[at] else source.dims[at - lead] for at in range(len(shape)))
    low.axes.keep_apart(dims)
    order = [None if repeats[at] else at - lead for at in range(len(shape))]
    return (_permuted(low, source, order, dims),)


def _along(given: CallArgs) -> tuple[Tensor, int]:
    """Return a call's tensor, and the dimension that it names."""
    source = given.tensor("self")
    return source, given.integer("dim", 0) % len(source.dims)


def slice_dim(low: Lowering, source: Tensor, dim: int, start: int, size: int, step: int = 1) -> Tensor:
    """Return `size` elements of a dimension; the sizes on both sides are pinned."""
    here = low.shape(source)[dim]
    if (start, size, step) == (0, here, 1):
        return source
    low.axes.pin(source.dims[dim])
    dims = _resized(low, source, dim, size)
    return SliceOf(dims=dims, dtype=source.dtype, origin=low.at, arg=source, dim=dim, start=start, step=step)


def _resized(low: Lowering, source: Tensor, dim: int, size: int) -> Dims:
    """Return dimensions of which one has another size, which is pinned."""
    dims = (*source.dims[:dim], *low.new_dims((size,), pinned=True), *source.dims[dim + 1 :])
    low.axes.keep_apart(dims)
    return dims


def squeeze_dim(low: Lowering, source: Tensor, dim: int) -> Tensor:
    """Return a dimension of size 1 goes."""
    return low.with_dims(source, source.dims[:dim] + source.dims[dim + 1 :])


@rule("slice", "narrow")
def _slice(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, dim = _along(given)
    here = low.shape(source)[dim]
    start = given.integer("start", 0)
    start = min(max(start + here if start < 0 else start, 0), here)
    return (slice_dim(low, source, dim, start, given.output.shape[dim], given.integer("step", 1)),)


@rule("select")
def _select(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, dim = _along(given)
    here = low.shape(source)[dim]
    return (squeeze_dim(low, slice_dim(low, source, dim, given.integer("index", 0) % here, 1), dim),)


@rule("split", "split_with_sizes", "chunk", "unsafe_split", "unbind")
def _split(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, dim = _along(given)
    parts: list[Tensor] = []
    start = 0
    unbinds = given.call.operator == "aten::unbind"
    for spec in given.call.outputs:
        size = 1 if unbinds else spec.shape[dim]
        part = slice_dim(low, source, dim, start, size)
        parts.append(squeeze_dim(low, part, dim) if unbinds else part)
        start += size
    return tuple(parts)


@rule("flip")
def _flip(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    for dim in given.integers("dims") or ():
        here = low.shape(source)[dim % len(source.dims)]
        source = slice_dim(low, source, dim % len(source.dims), here - 1, here, -1) if here > 1 else source
    return (source,)


@rule("roll")
def _roll(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, shifts, along = given.tensor("self"), given.integers("shifts") or (), given.integers("dims") or ()
    if not along:  # all dimensions as one
        if len(source.dims) != 1:
            raise Unsupported("a roll over all elements")
        along = (0,)
    for shift, dim in zip(shifts, along, strict=True):
        at = dim % len(source.dims)
        here = low.shape(source)[at]
        if shift:  # wrapping around at this size is a rotation at another
            low.axes.pin(source.dims[at])
        if here and shift % here:
            dims, start = _resized(low, source, at, here), here - shift % here
            source = SliceOf(
                dims=dims, dtype=source.dtype, origin=low.at, arg=source, dim=at, start=start, step=1, turns=True
            )
    return (source,)


def _padded(given: CallArgs, name: str) -> list[tuple[int, int, int]]:
    """Return the dimensions that a call pads, the last first, and by how many elements before and behind."""
    rank, pad = len(given.tensor("self").dims), given.integers(name) or ()
    return [(rank - 1 - at // 2, pad[at], pad[at + 1]) for at in range(0, len(pad), 2)]


@rule("constant_pad_nd")
def _pad(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return a join with a constant before and behind, a dimension at a time, the last first."""
    source, value = given.tensor("self"), given.operand("value", 0)
    for dim, before, behind in _padded(given, "pad"):
        if min(before, behind) < 0:
            raise Unsupported("padding that cuts")
        first, last = (
            [low.full(value, source.type, _resized(low, source, dim, size))] if size else []
            for size in (before, behind)
        )
        source = _joined(low, first, source, last, dim)
    return (source,)


def _joined(low: Lowering, first: Sequence[Tensor], source: Tensor, last: Sequence[Tensor], dim: int) -> Tensor:
    """Return a tensor with others before and behind it along a dimension."""
    members = [m for m in (*first, source, *last) if low.shape(m)[dim]]
    shape = list(low.shape(source))
    shape[dim] = sum(low.shape(m)[dim] for m in members)
    return concat(low, members, dim, shape, source.dtype) if len(members) > 1 else source


def concat(low: Lowering, members: Sequence[Tensor], dim: int, shape: Sequence[int], dtype: str) -> Tensor:
    """Return tensors one behind the other along a dimension; the shape is that of the result."""
    sizes = tuple(low.shape(m)[dim] for m in members)
    for member in members:
        low.axes.pin(member.dims[dim])
    dims: list[Dim] = []
    for at in range(len(shape)):
        if at == dim:
            dims.extend(low.new_dims((shape[at],), pinned=True))
            continue
        here = [m.dims[at] for m in members]
        for other in here[1:]:
            if shape[at] != 1:
                low.axes.join(here[0], other)
        dims.append(here[0])
    low.axes.keep_apart(tuple(dims))
    cast = tuple(low.cast(m, dtype) for m in members)
    return Concat(dims=tuple(dims), dtype=dtype, origin=low.at, args=cast, dim=dim, sizes=sizes)


@rule("reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d")
def _pad_with_itself(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return a concat of the tensor with its own edge, mirrored or repeated, a dimension at a time, the last first."""
    source, mirrors = given.tensor("self"), "reflection" in given.call.operator
    for dim, before, behind in _padded(given, "padding"):
        here = low.shape(source)[dim]
        if min(before, behind) < 0 or here < 2 or max(before, behind) > (here - 1 if mirrors else _MOST_REPEATED):
            raise Unsupported("padding of another kind")
        if mirrors:
            first = [slice_dim(low, source, dim, before, before, -1)] if before else []
            last = [slice_dim(low, source, dim, here - 2, behind, -1)] if behind else []
        else:
            first = [slice_dim(low, source, dim, 0, 1) for _ in range(before)]
            last = [slice_dim(low, source, dim, here - 1, 1) for _ in range(behind)]
        source = _joined(low, first, source, last, dim)
    return (source,)


_MOST_REPEATED = 8  # times that an edge is repeated: each is a member of a join


@rule("scatter", "scatter_add")
def _scatter(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Scatter along a row: each element compares its index with the one named; a number may have several."""
    source, index = given.tensor("self"), given.tensor("index")
    rank, adds = len(source.dims), given.call.operator.startswith("aten::scatter_add")
    if "reduce" in given or not rank or len(index.dims) != rank:
        raise Unsupported(WRITES_ANYWHERE)
    dim = given.integer("dim", 0) % rank
    sizes, asked = low.shape(source), low.shape(index)
    if any(a != b for d, (a, b) in enumerate(zip(sizes, asked, strict=True)) if d != dim):
        raise Unsupported("indices for a part of the rows")
    most = 1 if "src" in given else _MOST_REPEATED
    if asked[dim] > most:
        raise Unsupported(ADDS_UP if adds else WRITES_ANYWHERE)
    own = Iota(dims=source.dims, dtype=LONG, origin=low.at, along=dim)
    result = source
    for k in range(asked[dim]):
        hit = low.pointwise("eq", [own, slice_dim(low, index, dim, k, 1)], LONG, BOOL)
        value = slice_dim(low, given.tensor("src"), dim, k, 1) if "src" in given else given.operand("value")
        if adds and isinstance(value, Tensor):
            value = low.pointwise("add", [result, value], source.type)
        result = low.pointwise("where", [hit, value, result], source.type, as_is=(0,))
    return (low.cast(result, source.dtype),)


@rule("cat", "concat")
def _cat(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    spec = given.output
    members = [m for m in given.members("tensors") if m is not None and low.shape(m) != (0,)]
    dim = given.integer("dim", 0) % len(spec.shape)
    if len(members) == 1 and members[0].dtype == str(spec.dtype):
        return (members[0],)  # looped over along its own axes, with what reads it besides
    return (concat(low, members, dim, spec.shape, str(spec.dtype)),)


@rule("stack")
def _stack(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    spec = given.output
    dim = given.integer("dim", 0) % len(spec.shape)
    members = [low.with_dims(m, (*m.dims[:dim], (), *m.dims[dim:])) for m in given.members("tensors") if m is not None]
    return (concat(low, members, dim, spec.shape, str(spec.dtype)),)


@rule("embedding")
def _embedding(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    weight, indices = given.tensor("weight"), given.tensor("indices")
    dims = (*indices.dims, weight.dims[1])
    return (gather(low, weight, (indices, len(indices.dims)), tuple(range(len(indices.dims))), dims),)


@rule("index_select")
def _index_select(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    (source, dim), index = _along(given), given.tensor("index")
    places = tuple(index if d == dim else d for d in range(len(source.dims)))
    dims = (*source.dims[:dim], *index.dims, *source.dims[dim + 1 :])
    return (gather(low, source, places, (dim,), dims),)


@rule("gather")
def _gather(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    (source, dim), index = _along(given), given.tensor("index")
    for d, (own, asked) in enumerate(zip(source.dims, index.dims, strict=True)):
        same = low.shape(source)[d] == low.shape(index)[d]
        if d != dim and same and own:
            low.axes.join(own, asked)
        elif d != dim and not same:
            low.axes.pin(asked)
    places = tuple(index if d == dim else d for d in range(len(source.dims)))
    return (gather(low, source, places, tuple(range(len(index.dims))), index.dims),)


@rule("index", "_unsafe_index")
def _index(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    found = list(given.members("indices"))
    found += [None] * (len(source.dims) - len(found))
    used = [at for at, index in enumerate(found) if index is not None]
    tensors = [t for t in found if t is not None]
    if not used or used != list(range(used[0], used[-1] + 1)):
        raise Unsupported("indices that are not next to each other")
    if any(t.dtype == BOOL for t in tensors):
        raise Unsupported("a mask as an index: the size of its result depends on values")
    together = low.pointwise("identity", tensors, LONG) if len(tensors) > 1 else tensors[0]
    rank = len(together.dims)
    dims = (*source.dims[: used[0]], *together.dims, *source.dims[used[-1] + 1 :])
    places: list[int | Tensor] = []
    for at, index in enumerate(found):
        later = at + rank - len(used) if at > used[-1] else at
        places.append(later if index is None else index)
    return (gather(low, source, tuple(places), tuple(range(used[0], used[0] + rank)), dims, wraps=True),)


@rule("tril", "triu")
def _triangle(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    rank = len(source.dims)
    row, column = (Iota(dims=source.dims, dtype=LONG, origin=low.at, along=rank - 2 + at) for at in (0, 1))
    side = "is_below_diagonal" if given.call.operator.startswith("aten::tril") else "is_above_diagonal"
    inside = low.pointwise(side, [row, column, given.integer("diagonal", 0)], LONG, BOOL)
    kept = low.pointwise("where_nonzero", [source, inside, 0], source.type, as_is=(2,))
    return (low.cast(kept, source.dtype),)


def behind(low: Lowering, view: Tensor, root: Tensor, result: Tensor) -> Tensor:
    """Return a tensor after a view of it was written. Raises Unsupported where that is a part of an input."""
    while view is not root:
        if isinstance(view, Reshape):
            result = low.reshape(result, view.arg.dims)
        elif isinstance(view, Permute) and None not in view.source:
            order = tuple(view.source.index(d) for d in range(len(view.arg.dims)))
            result = _permuted(low, result, order, tuple(result.dims[d] for d in order))
        elif isinstance(view, SliceOf) and view.step == 1 and not view.turns and not isinstance(root, Input):
            result = _between(low, view, result)
        else:
            raise Unsupported("it writes in place into a part of an input")
        view = view.arg
    return result


def _between(low: Lowering, view: SliceOf, result: Tensor) -> Tensor:
    """Return what was there before, then what is written, then what was there behind it."""
    shape, dim = low.shape(view.arg), view.dim
    end = view.start + low.shape(view)[dim]
    parts = [(0, view.start), (end, shape[dim] - end)]
    first, last = ([slice_dim(low, view.arg, dim, start, size)] if size else [] for start, size in parts)
    return concat(low, [*first, result, *last], dim, shape, view.dtype)
