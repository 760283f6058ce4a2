"""Lower random numbers: each element has random bits of its own, by its index.

What is drawn is noted, so that validation can have eager make its numbers of the same draws.
"""

from __future__ import annotations

from tracemine.codegen.axes import Dims
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import Lowering, result_dtype, rule
from tracemine.codegen.tensor_ir import TYPE_OF, RandomBits, ScalarArg, Tensor


def _drawn(low: Lowering, dims: Dims) -> Tensor:
    return RandomBits(dims=dims, dtype=INT, origin=low.at, seed="seed", stream=len(low.drawn))


@rule("bernoulli")
def _bernoulli(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Draw ones where the number drawn for an element is below p, for instance of residual branches that are kept."""
    tensor, p = given.tensor("self"), given.operand("p")
    if not isinstance(p, ScalarArg):
        raise Unsupported("a probability for each element")
    kept = low.pointwise("is_drawn_below", [_drawn(low, tensor.dims), p], FLOAT, BOOL, as_is=(0,))
    low.drawn.append((given.number, kept))
    dtype = result_dtype(given)
    return (low.cast(low.pointwise("identity", [kept], TYPE_OF[dtype]), dtype),)


@rule("native_dropout")
def _dropout(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Keep elements where the number drawn for them is not below p. `train=False` draws none."""
    tensor, p = given.tensor("input"), given.operand("p")
    if given.literal("train", True) is False:
        raise Unsupported("dropout that drops nothing")
    kept = low.pointwise("is_not_drawn_below", [_drawn(low, tensor.dims), p], FLOAT, BOOL, as_is=(0,))
    low.drawn.append((given.number, kept))
    scaled = low.pointwise("dropout", [tensor, kept, p], FLOAT, as_is=(1,))
    return low.cast(scaled, result_dtype(given)), kept


def _numbers(low: Lowering, given: CallArgs, row: str, *numbers: Operand) -> tuple[Tensor, ...]:
    """Return numbers of a distribution, in memory that is given or in new."""
    dtype = result_dtype(given)
    if TYPE_OF[dtype] != FLOAT or any(isinstance(number, Tensor) for number in numbers):
        raise Unsupported("random integers, or of a distribution for each element")
    dims = given.tensor("self").dims if "self" in given else low.new_dims(given.output.shape)
    drawn = _drawn(low, dims)
    low.drawn.append((given.number, drawn))
    return (low.cast(low.op(row, drawn, *numbers), dtype),)


@rule("uniform", "rand", "rand_like")
def _uniform(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return _numbers(low, given, "uniform_of_draw", given.operand("from", 0.0), given.operand("to", 1.0))


@rule("normal", "randn", "randn_like")
def _normal(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return _numbers(low, given, "normal_of_draw", given.operand("mean", 0.0), given.operand("std", 1.0))


@rule("exponential")
def _exponential(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return _numbers(low, given, "exponential_of_draw", given.operand("lambd", 1.0))
