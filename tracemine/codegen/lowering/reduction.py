"""Lower reductions and what is made of them: softmax, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tracemine.codegen import tensor_ir as tir
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT, LONG
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import Lowering, result_dtype, rule
from tracemine.codegen.operators import pointwise_rows
from tracemine.codegen.options import LONGEST_ROW
from tracemine.codegen.tensor_ir import Tensor


def _asked(given: CallArgs) -> tuple[Tensor, tuple[int, ...], bool]:
    """Return what a call reduces, over which dimensions (all where none are named), and whether these stay."""
    source = given.tensor("self")
    rank, named = len(source.dims), given.integers("dim") or ()
    over = sorted(d % rank for d in named) if rank else ()
    return source, tuple(over) or tuple(range(rank)), bool(given.literal("keepdim", False))


_MANY = 128  # rows, for fewer of which one kernel leaves most of a GPU idle
_IN_STAGES = frozenset({"sum", "max", "min"})  # what is reduced of them is reduced as they are


def reduce(low: Lowering, kind: str, source: Tensor, over: Sequence[int], keep: bool, type_: str = FLOAT) -> Tensor:
    """Return a reduction in `type_`; over dimensions of size 1 alone it is the element itself.

    What waits for a reduction over some of these dimensions is reduced over those first, in the same loop.
    """
    rank = len(source.dims)
    first = _first(low, source, over) if kind in _IN_STAGES else ()
    if first:
        source = reduce(low, kind, source, first, True, type_)
    dims = tuple(() if d in over else dim for d, dim in enumerate(source.dims) if keep or d not in over)
    kept = tuple(None if d in over else d for d in range(rank) if keep or d not in over)
    alone = _element(low, kind, source, over)
    if alone is not None:
        return low.with_dims(low.pointwise("identity", [alone], type_), dims)
    low.reduces = True
    low.axes.keep_apart(dims)
    return tir.Reduction(dims=dims, dtype=type_, origin=low.at, kind=kind, arg=source, over=tuple(over), kept=kept)


def _element(low: Lowering, kind: str, source: Tensor, over: Sequence[int]) -> Tensor | None:
    """Return what a reduction comes to without one: the only element, or the only one that is not 0; None for many."""
    if kind == "sum" and (alone := _alone_of_row(low, source, over)) is not None:
        return alone
    if any(source.dims[d] for d in over):
        return None
    if kind.startswith(("welford", "online")):
        raise Unsupported("it reduces an axis of one element")
    return source


def _alone_of_row(low: Lowering, source: Tensor, over: Sequence[int]) -> Tensor | None:
    """Return the sum of a row of which one element is not 0, as of a loss's gradient; None where it is no such row."""
    while isinstance(source, tir.Cast) and source.dtype == FLOAT:
        source = source.arg
    if not isinstance(source, tir.Pointwise) or source.operation != "neg_where_nonzero":
        return None
    value, hit = source.args
    if not isinstance(hit, tir.Pointwise) or hit.operation != "eq & ne":
        return None
    own, target, _, ignored = hit.args
    along = [own.along] if isinstance(own, tir.Iota) else []
    if along != [*over] or any(_spreads(each, along[0], len(source.dims)) for each in (target, value)):
        return None
    return low.pointwise("neg_where_nonzero", [value, low.pointwise("ne", [target, ignored], LONG, BOOL)], FLOAT)


def _spreads(value: Tensor | tir.ScalarArg, along: int, rank: int) -> bool:
    """Return whether a value changes along a dimension of a tensor that it is spread over, or may."""
    dims = value.dims if isinstance(value, Tensor) else ()
    return bool(dims) and (len(dims) != rank or bool(dims[along]))


def _first(low: Lowering, source: Tensor, over: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions, fewer than all, that a reduction loops over which a value waits for."""
    for front in tir.nearest_reductions(source):
        columns = {*tir.columns_of(low.axes, front)}
        inner = tuple(d for d in over if source.dims[d] and {*low.axes.leaves(source.dims[d])} <= columns)
        found = {leaf for d in inner for leaf in low.axes.leaves(source.dims[d])}
        rows = prod(low.axes.size(low.axes.leaves(source.dims[d])) for d in over if d not in inner)
        if found == columns and rows > 1 and (rows >= _MANY or low.axes.size(tuple(columns)) <= LONGEST_ROW):
            return inner
    return ()


def cast_outputs(low: Lowering, given: CallArgs, results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return each result rounded to the dtype that the call gives; those that were not recorded are left out."""
    kept = results[: len(given.call.outputs) or len(results)]
    return tuple(low.cast(r, result_dtype(given, at)) for at, r in enumerate(kept))


@rule("sum")
def _sum(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, over, keep = _asked(given)
    type_ = FLOAT if source.type == FLOAT else LONG
    return cast_outputs(low, given, [reduce(low, "sum", source, over, keep, type_)])


@rule("mean")
def _mean(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, over, keep = _asked(given)
    total = reduce(low, "sum", source, over, keep)
    return cast_outputs(low, given, [low.op("div", total, low.num_elements(source, over))])


@rule("amax", "amin", "max", "min")
def _extreme(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    kind = given.call.operator.removeprefix("aten::").removeprefix("a")
    source, over, keep = _asked(given)
    if given.call.overload == "dim":
        return cast_outputs(low, given, _extreme_and_place(low, kind, source, over, keep))
    if "other" in given:  # the larger of two tensors: another operator by the same name
        row = pointwise_rows()[f"{kind}imum"]
        return (low.apply_row(row, [source, given.tensor("other")], result_dtype(given)),)
    if source.type == BOOL:
        raise Unsupported("a maximum of booleans")
    return cast_outputs(low, given, [reduce(low, _of_type(kind, source), source, over, keep, source.type)])


def _of_type(kind: str, source: Tensor) -> str:
    """Return the row of a table of reductions for what is computed in a type."""
    return kind if source.type == FLOAT else f"{kind}_{source.type}"


@rule("_amp_foreach_non_finite_check_and_unscale")
def _unscaled(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return gradients taken back to their scale, and whether any of them is no finite number."""
    found: Tensor = given.tensor("found_inf")
    scale = given.tensor("inv_scale")
    results: list[Tensor] = []
    for member in given.members("self"):
        if member is not None:
            bad = low.cast(low.pointwise("one_if_not_finite", [member], FLOAT, INT), INT)
            count = reduce(low, "count", bad, range(len(bad.dims)), False, INT)
            found = low.pointwise("one_where_nonzero", [count, found], FLOAT, as_is=(0,))
            scaled = low.pointwise("mul", [member, low.with_dims(scale, ())], FLOAT)
            results.append(low.cast(scaled, member.dtype))
    return (*results, found)


@rule("argmax", "argmin")
def _place_of_extreme(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, over, keep = _asked(given)
    if len(over) != 1:
        raise Unsupported("the index of a maximum over several axes")
    kind = given.call.operator.removeprefix("aten::arg")
    return cast_outputs(low, given, _extreme_and_place(low, kind, source, over, keep)[1:])


def _extreme_and_place(low: Lowering, kind: str, source: Tensor, over: Sequence[int], keep: bool) -> list[Tensor]:
    """Return a row's maximum or minimum, and the first place where it is; of NaN the first."""
    if source.type == BOOL or len(over) != 1 or not source.dims or not source.dims[over[0]]:
        raise Unsupported("the index of a maximum of booleans, or of one element")
    named = _of_type(kind, source)
    source = low.cast(source, source.dtype, always=True)  # which of two is larger, rounding decides
    top = reduce(low, named, source, over, True, source.type)
    own = tir.Iota(dims=source.dims, dtype=LONG, origin=low.at, along=over[0])
    there = low.pointwise("eq | isnan", [source, top, source], source.type, BOOL)
    place = low.pointwise("where", [there, own, 2**31 - 1], INT, as_is=(0,))
    return [reduce(low, named, source, over, keep, source.type), reduce(low, "min_int32", place, over, keep, INT)]


# What is counted, and what is made of the count.
_HITS = {"aten::any": ("one_if_nonzero", "is_nonzero"), "aten::all": ("one_if_zero", "logical_not")}


@rule("any", "all")
def _any(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, over, keep = _asked(given)
    hit, found = _HITS[given.call.operator]
    hits = low.pointwise(hit, [source], source.type if source.type != BOOL else INT)
    count = reduce(low, "count", low.cast(hits, INT), over, keep, INT)
    return (low.pointwise(found, [count], INT, BOOL),)


@rule("var", "std", "var_mean", "std_mean")
def _variance(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    name, (source, over, keep) = given.call.operator.removeprefix("aten::"), _asked(given)
    if "unbiased" in given.values:
        correction: Operand = tir.ScalarArg(int(bool(given.literal("unbiased", True))))
    else:
        correction = given.operand("correction", 1)
    squares = reduce(low, "welford_squares", source, over, keep)
    found = low.op("div", squares, low.op("sub", low.num_elements(source, over), correction))
    results: list[Tensor] = [low.op("sqrt", found) if name.startswith("std") else found]
    if name.endswith("mean"):
        results.append(reduce(low, "welford_mean", source, over, keep))
    return cast_outputs(low, given, results)


@rule("linalg_vector_norm", "norm")
def _norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return cast_outputs(low, given, [_vector_norm(low, given, *_asked(given))])


def _vector_norm(low: Lowering, given: CallArgs, source: Tensor, over: Sequence[int], keep: bool) -> Tensor:
    order = given.operand("ord" if "ord" in given.values else "p", 2)
    if not isinstance(order, tir.ScalarArg) or order.value not in (1, 2):
        raise Unsupported("a norm that is neither of order 1 nor 2")
    alone = not any(source.dims[d] for d in over)  # of one element eager takes the size: no square is beyond float32
    if order.value == 1 or alone:
        return reduce(low, "sum", low.op("abs", source), over, keep)
    return low.op("sqrt", reduce(low, "sum", low.op("mul", source, source), over, keep))


@rule("_foreach_norm")
def _foreach_norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    members = [m for m in given.members("self") if m is not None]
    return cast_outputs(low, given, [_vector_norm(low, given, m, range(len(m.dims)), False) for m in members])


def is_computed(tensor: Tensor) -> bool:
    """Return whether its elements are not just loaded."""
    while not isinstance(tensor, tir.Input):
        if isinstance(tensor, tir.Cast | tir.Reshape | tir.Permute | tir.SliceOf):
            tensor = tensor.arg
        elif isinstance(tensor, tir.Gather):
            tensor = tensor.table
        else:
            return True
    return False


@rule("_softmax", "_log_softmax", "softmax", "log_softmax", "_safe_softmax")
def _softmax(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    over = (given.integer("dim", -1) % len(source.dims),)
    highest = reduce(low, "online_max", source, over, True)
    total = reduce(low, "online_sum", source, over, True)
    # A GPU makes a product and a difference one operation, rounded once: of a product that is the row's largest then
    # something is left, which another loop over the row, whose sum was of rounded ones, does not know.
    centred = low.pointwise("sub_max_of_computed" if is_computed(source) else "sub", [source, highest], FLOAT)
    if "log" in given.call.operator:
        return cast_outputs(low, given, [low.op("sub", centred, low.op("log", total))])
    # The row's sum is inverted once: a division is eight instructions an element.
    raised = low.pointwise("fast_exp", [centred], FLOAT)
    return cast_outputs(low, given, [low.op("mul", raised, low.op("reciprocal", total))])


@rule("logsumexp")
def _logsumexp(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source, over, keep = _asked(given)
    highest, total = (reduce(low, kind, source, over, keep) for kind in ("online_max", "online_sum"))
    # An infinite maximum less itself is no number; it is the result, of a row of −inf alone too.
    found = low.pointwise("logsumexp", [highest, total], FLOAT)
    return cast_outputs(low, given, [found])


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    grad, output = given.tensor("grad_output"), given.tensor("output")
    over = (given.integer("dim", -1) % len(output.dims),)
    if "log" in given.call.operator:
        total = reduce(low, "sum", grad, over, True)
        return cast_outputs(low, given, [low.op("sub", grad, low.op("mul", low.op("exp", output), total))])
    product = low.op("mul", grad, output)
    total = reduce(low, "sum", product, over, True)
    return cast_outputs(low, given, [low.op("sub", product, low.op("mul", output, total))])


@rule("cumsum")
def _cumsum(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("self")
    type_ = FLOAT if source.type == FLOAT else LONG
    along = given.integer("dim", 0) % max(len(source.dims), 1)
    if not source.dims or not source.dims[along]:
        return (low.cast(low.pointwise("identity", [source], type_), result_dtype(given)),)
    low.reduces = True
    scanned = tir.CumulativeSum(dims=source.dims, dtype=type_, origin=low.at, arg=source, along=along)
    return cast_outputs(low, given, [scanned])
