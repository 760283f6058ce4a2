"""Lower losses and their gradients."""

from __future__ import annotations

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import BOOL, FLOAT, LONG
from tracemine.codegen.lowering.args import CallArgs
from tracemine.codegen.lowering.context import Lowering, rule
from tracemine.codegen.lowering.reduction import cast_outputs, reduce
from tracemine.codegen.tensor_ir import Gather, Iota, Tensor

_NONE, _MEAN = 0, 1  # torch.nn._reduction


def _beside_classes(low: Lowering, scores: Tensor, target: Tensor) -> Tensor:
    """Return the target with an axis of one element where the scores have their classes."""
    return low.with_dims(target, (target.dims[0], (), *target.dims[1:]))


def _scores(given: CallArgs) -> Tensor:
    scores = given.tensor("self")
    if len(scores.dims) < 2:
        raise Unsupported("a loss of a single row")
    return scores


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    scores, target = _scores(given), given.tensor("target")
    ignored = given.integer("ignore_index", -100)
    valid = low.pointwise("ne", [target, ignored], LONG, BOOL)
    place = low.pointwise("zero_where_equal", [target, ignored], LONG)
    for own, other in zip((scores.dims[0], *scores.dims[2:]), target.dims, strict=True):
        low.axes.join(own, other)
    asked = tuple(range(len(target.dims)))
    indices: tuple[int | Tensor, ...] = (0, place, *asked[1:])
    score = Gather(dims=target.dims, dtype=scores.dtype, origin=low.at, table=scores, indices=indices, asked=asked)
    share: Tensor = low.pointwise("identity", [valid], FLOAT)
    loss: Tensor = low.pointwise("neg_where_nonzero", [score, valid], FLOAT)
    if "weight" in given:
        weight = given.tensor("weight")
        of = Gather(dims=target.dims, dtype=weight.dtype, origin=low.at, table=weight, indices=(place,), asked=asked)
        share = low.pointwise("where_nonzero", [of, valid, 0.0], FLOAT)
        loss = low.op("mul", loss, share)
    reduction = given.integer("reduction", _MEAN)
    if reduction == _NONE:
        return cast_outputs(low, given, [loss, low.full(0.0, FLOAT)])
    count = reduce(low, "sum", share, asked, False)
    total = reduce(low, "sum", loss, asked, False)
    return cast_outputs(low, given, [low.op("div", total, count) if reduction == _MEAN else total, count])


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return each row's gradient is at its target's class, and 0 elsewhere."""
    scores = _scores(given)
    target = _beside_classes(low, scores, given.tensor("target"))
    grad = given.tensor("grad_output")
    reduction = given.integer("reduction", _MEAN)
    if reduction == _NONE:
        grad = _beside_classes(low, scores, grad)
    elif reduction == _MEAN:
        grad = low.op("div", grad, given.tensor("total_weight"))
    grad = low.weighted(given, grad, len(scores.dims))
    own = Iota(dims=scores.dims, dtype=LONG, origin=low.at, along=1)
    ignored = given.integer("ignore_index", -100)
    hit = low.pointwise("eq & ne", [own, target, target, ignored], LONG, BOOL)
    return cast_outputs(low, given, [low.pointwise("neg_where_nonzero", [grad, hit], FLOAT)])


@rule("mse_loss")
def _mse_loss(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    difference = low.op("sub", given.tensor("self"), given.tensor("target"))
    square = low.op("mul", difference, difference)
    return _gathered(low, given, square)


def _gathered(low: Lowering, given: CallArgs, each: Tensor) -> tuple[Tensor, ...]:
    """Return a loss's elements as its `reduction` says: as they are, their mean or their sum."""
    if given.integer("reduction", _MEAN) == _NONE:
        return cast_outputs(low, given, [each])
    return cast_outputs(low, given, [_shared(low, given, reduce(low, "sum", each, range(len(each.dims)), False), each)])


def _shared(low: Lowering, given: CallArgs, found: Tensor, each: Tensor) -> Tensor:
    """Return what a loss or a gradient is, divided by how many elements there are where the loss is their mean."""
    mean = given.integer("reduction", _MEAN) == _MEAN
    return low.op("div", found, low.num_elements(each, range(len(each.dims)))) if mean else found


def _bent(low: Lowering, given: CallArgs, what: str) -> Tensor:
    name, row = ("beta", "smooth_l1") if "beta" in given.values else ("delta", "huber")
    return low.op(f"{row}_{what}", given.tensor("self"), given.tensor("target"), given.operand(name, 1.0))


@rule("smooth_l1_loss", "huber_loss")
def _bent_loss(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return _gathered(low, given, _bent(low, given, "each"))


@rule("smooth_l1_loss_backward", "huber_loss_backward")
def _bent_loss_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    found = _bent(low, given, "slope")
    return cast_outputs(low, given, [low.op("mul", _shared(low, given, found, found), given.tensor("grad_output"))])


@rule("binary_cross_entropy")
def _binary_cross_entropy(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    return _gathered(low, given, low.weighted(given, low.op("surprise", given.tensor("self"), given.tensor("target"))))


@rule("binary_cross_entropy_backward")
def _binary_cross_entropy_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    slope = low.op("surprise_slope", *(given.tensor(name) for name in ("grad_output", "self", "target")))
    found = low.weighted(given, slope)
    return cast_outputs(low, given, [_shared(low, given, found, found)])


@rule("mse_loss_backward")
def _mse_loss_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    difference = low.op("sub", given.tensor("self"), given.tensor("target"))
    factor: Tensor | float = 2.0
    if given.integer("reduction", _MEAN) == _MEAN:
        factor = low.pointwise("twice_reciprocal", [low.num_elements(difference, range(len(difference.dims)))], FLOAT)
    scaled = low.op("mul", difference, factor)
    return cast_outputs(low, given, [low.op("mul", scaled, given.tensor("grad_output"))])
