"""Lower random numbers: each element has random bits of its own, by its index.

What is drawn is noted, so that validation can have eager make its numbers of the same draws.
"""

from __future__ import annotations

from tracemine.codegen.axes import Dims
from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, INT
from tracemine.codegen.lowering.args import CallArgs
from tracemine.codegen.lowering.context import Lowering, result_dtype, rule
from tracemine.codegen.tensor_ir import TYPE_OF, RandomBits, ScalarArg, Tensor
from tracemine.ops.facts import base_name


def _drawn(low: Lowering, dims: Dims) -> Tensor:
    return RandomBits(dims=dims, dtype=INT, origin=low.at, seed="seed", stream=len(low.drawn))


def _kept(low: Lowering, given: CallArgs, row: str, dims: Dims) -> Tensor:
    """Return which elements are kept, by the numbers drawn for them."""
    kept = low.pointwise(row, [_drawn(low, dims), given.operand("p")], FLOAT, BOOL, as_is=(0,))
    low.drawn.append((given.number, kept))
    return kept


@rule("bernoulli")
def _bernoulli(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Draw ones where the number drawn for an element is below p, for instance of residual branches that are kept."""
    if not isinstance(given.operand("p"), ScalarArg):
        raise Unsupported("a probability for each element")
    kept = _kept(low, given, "is_drawn_below", given.tensor("self").dims)
    dtype = result_dtype(given)
    return (low.cast(low.pointwise("identity", [kept], TYPE_OF[dtype]), dtype),)


@rule("native_dropout")
def _dropout(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Keep elements where the number drawn for them is not below p. `train=False` draws none."""
    tensor = given.tensor("input")
    if given.literal("train", True) is False:
        raise Unsupported("dropout that drops nothing")
    kept = _kept(low, given, "is_not_drawn_below", tensor.dims)
    scaled = low.pointwise("dropout", [tensor, kept, given.operand("p")], FLOAT, as_is=(1,))
    return low.cast(scaled, result_dtype(given)), kept


# What operators draw: a row of the table, and the numbers that it takes besides what was drawn.
_DISTRIBUTIONS = {
    **dict.fromkeys(("uniform", "rand", "rand_like"), ("uniform_of_draw", {"from": 0.0, "to": 1.0})),
    **dict.fromkeys(("normal", "randn", "randn_like"), ("normal_of_draw", {"mean": 0.0, "std": 1.0})),
    "exponential": ("exponential_of_draw", {"lambd": 1.0}),
}


@rule(*_DISTRIBUTIONS)
def _numbers(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return numbers of a distribution, in memory that is given or in new."""
    row, defaults = _DISTRIBUTIONS[base_name(given.call.operator)]
    numbers, dtype = [given.operand(*each) for each in defaults.items()], result_dtype(given)
    if TYPE_OF[dtype] != FLOAT or any(isinstance(number, Tensor) for number in numbers):
        raise Unsupported("random integers, or of a distribution for each element")
    dims = given.tensor("self").dims if "self" in given else low.new_dims(given.output.shape)
    drawn = _drawn(low, dims)
    low.drawn.append((given.number, drawn))
    return (low.cast(low.op(row, drawn, *numbers), dtype),)
