"""Lower matrix products to sums of products: whatever is known of reductions then holds for them."""

from __future__ import annotations

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import FLOAT
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import Lowering, rule
from tracemine.codegen.lowering.reduction import cast_outputs, reduce
from tracemine.codegen.tensor_ir import Permute, ScalarArg, Tensor

PRODUCTS = frozenset(f"aten::{name}" for name in ("mm", "bmm", "addmm", "baddbmm", "linear"))


def _turned(low: Lowering, tensor: Tensor) -> Tensor:
    """Return a tensor with its last two dimensions exchanged."""
    *outer, rows, columns = range(len(tensor.dims))
    source = (*outer, columns, rows)
    dims = tuple(tensor.dims[d] for d in source)
    return Permute(dims=dims, dtype=tensor.dtype, origin=low.at, arg=tensor, source=source)


def _multiplied(low: Lowering, left: Tensor, right: Tensor) -> Tensor:
    """Return the product of rows of `left` and rows of `right`."""
    if left.dtype != right.dtype or left.type != FLOAT:
        raise Unsupported(f"a product of {left.dtype} and {right.dtype}")
    batches = right.dims[:-2]
    beside = low.reshape(right, (*batches, (), *right.dims[-2:])) if batches else right
    upright = low.reshape(left, (*left.dims[:-1], (), left.dims[-1]))  # with a dimension of one before its last
    each = low.pointwise("mul", [upright, beside], FLOAT)
    return reduce(low, "sum", each, (len(each.dims) - 1,), False)


@rule("mm", "bmm")
def _mm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    left, right = given.tensor("self"), given.tensor("mat2")
    return cast_outputs(low, given, [_multiplied(low, left, _turned(low, right))])


@rule("linear")
def _linear(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    found = _multiplied(low, given.tensor("input"), given.tensor("weight"))
    if "bias" in given:
        found = low.pointwise("add", [found, given.tensor("bias")], FLOAT)
    return cast_outputs(low, given, [found])


@rule("addmm", "baddbmm")
def _addmm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    names = ("mat1", "mat2") if "mat1" in given.values else ("batch1", "batch2")
    left, right = (given.tensor(name) for name in names)
    found = _scaled(low, _multiplied(low, left, _turned(low, right)), given.operand("alpha", 1))
    added = _scaled(low, given.tensor("self"), given.operand("beta", 1))
    return cast_outputs(low, given, [low.pointwise("add", [found, added], FLOAT)])


def _scaled(low: Lowering, tensor: Tensor, by: Operand) -> Tensor:
    one = isinstance(by, ScalarArg) and by.name is None and by.value == 1
    return tensor if one else low.pointwise("mul", [tensor, by], FLOAT)
