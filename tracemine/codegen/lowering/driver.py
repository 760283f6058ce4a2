"""From the calls of a graph to expressions for its tensors, by the operator table and by rules for what is no
expression.

Nothing but the table and the rules here decides what is computed: of a trace only numbers and table names are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracemine.codegen.graph import Graph, Refs, Scalars, Unsupported, reads
from tracemine.codegen.loop_ir import FLOAT
from tracemine.codegen.lowering import complex, context, loss, norm, pointwise, pooling, product, random, reduction  # noqa: F401
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import COMPLEX, RULES, Lowered, Lowering, result_dtype
from tracemine.codegen.lowering.views import behind
from tracemine.codegen.operators import PointwiseRow, pointwise_rows, table
from tracemine.codegen.tensor_ir import Complex, ScalarArg, Tensor


def lower(graph: Graph) -> Lowered:
    """Return the tensor IR of a graph. Raises Unsupported, with the reason, where no kernel can be generated."""
    return Lowering(graph, lower_call, behind).run()


def lower_call(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return the results of one call, by the operator's rule or its row in the table."""
    name = given.call.operator.removeprefix("aten::")
    if any(isinstance(given.tensors[v], Complex) for v in reads(given.call)):
        if name not in COMPLEX:
            raise Unsupported(f"tensors of {context.COMPLEX_DTYPE} are not supported")
        return COMPLEX[name](low, given)
    bare = name if name in RULES or name in pointwise_rows() else name.removesuffix("_")
    if bare in RULES:
        return RULES[bare](low, given)
    if bare.startswith("_foreach_") and bare.removeprefix("_foreach_") in table().foreach:
        return _foreach(low, given, bare.removeprefix("_foreach_"))
    row = pointwise_rows().get(bare)
    if row is None or given.call.operator == name:
        raise Unsupported(REFUSED.get(bare, "the operator is not in the table of those that can be generated"))
    return (_pointwise(low, given, row),)


REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("embedding_dense_backward", "index_add", "scatter_reduce"), context.ADDS_UP),
    **dict.fromkeys(("index_put", "_index_put_impl", "index_copy", "put"), context.WRITES_ANYWHERE),
    **dict.fromkeys(("sort", "argsort", "msort", "topk"), "sorting"),
    "max_pool2d_with_indices_backward": context.ADDS_UP,
}


def _pointwise(low: Lowering, given: CallArgs, row: PointwiseRow) -> Tensor:
    row = _meant(given, row)
    if row.ops[0] in _TO_WHOLE and (source := given.tensor("self")).type != FLOAT:
        return low.pointwise("identity", [source], source.type)
    args = [given.operand(n, row.defaults.get(n)) for n in row.args]
    return low.apply_row(row, *_without_default(row, row.args, args, result_dtype(given)))


def _meant(given: CallArgs, row: PointwiseRow) -> PointwiseRow:
    """Return the row of what a call asks for: division that rounds, or a clamp without one of its bounds."""
    if "rounding_mode" in given:
        if given.literal("rounding_mode") != "floor":
            raise Unsupported("division that rounds towards zero")
        return pointwise_rows()["floor_divide"]
    bounds = [n for n in ("min", "max") if n in row.args]
    if len(bounds) == 2 and (missing := [n for n in bounds if n not in given]):
        return pointwise_rows()["clamp_max" if missing[0] == "min" else "clamp_min"]
    return row


def _without_default(
    row: PointwiseRow, names: Sequence[str], args: Sequence[Operand], dtype: str
) -> tuple[list[Operand], str, bool]:
    """Return a row's arguments, the dtype, and whether one is left out for having its default."""
    args = list(args[: len(row.args)])
    if row.unless is None or row.unless not in names:
        return args, dtype, False
    # With a name it may be another number at another call.
    default = args[names.index(row.unless)] == ScalarArg(row.defaults[row.unless])
    return [a for a, n in zip(args, row.args, strict=True) if n != row.unless or not default], dtype, default


_TO_WHOLE = frozenset({"floor", "ceil", "trunc", "round"})  # of integers they change nothing


def _foreach(low: Lowering, given: CallArgs, name: str) -> tuple[Tensor, ...]:
    """Lower a foreach call member by member; a scalar or a lone tensor is the same for all."""
    base, *names = table().foreach[name]
    first = given.members("self")
    columns: list[Sequence[Operand]] = []
    for argument in names:
        places = (argument, *_FOREACH_NAMES.get(argument, ()))
        found = next((n for n in places if n in given), None)
        value = given.values.get(found) if found is not None else None
        if isinstance(value, Refs):
            columns.append([t for t in given.members(str(found)) if t is not None])
        elif isinstance(value, Scalars):
            columns.append([ScalarArg(s.value, s.name) for s in value.values])
        elif found is not None:
            columns.append([given.operand(found)] * len(first))
        else:
            columns.append([ScalarArg(1)] * len(first))
    results: list[Tensor] = []
    for place, args in enumerate(zip(*columns, strict=True)):
        out = str(given.call.outputs[place].dtype) if given.call.outputs else args[0].dtype
        if base == "copy":
            assert isinstance(args[1], Tensor)  # noqa: S101  (its schema has a list there)
            results.append(low.cast(low.pointwise("identity", [args[1]], args[1].type), out))
            continue
        row = pointwise_rows()[base]
        results.append(low.apply_row(row, *_without_default(row, names, args, out)))
    return tuple(results)


# Other names of the same argument, by overload: Scalar, ScalarList, List, Tensor.
_FOREACH_NAMES: Mapping[str, tuple[str, ...]] = {
    "other": ("scalar", "scalars"),
    "value": ("scalars", "value"),
    "end": ("tensors1",),
    "weight": ("weights", "weight", "scalars"),
    "src": ("src",),
}
