"""Lower norms and their gradients: of layers, groups, batches, and by root mean square."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.loop_ir import FLOAT
from tracemine.codegen.lowering.args import CallArgs, Operand
from tracemine.codegen.lowering.context import Lowering, rule
from tracemine.codegen.lowering.reduction import cast_outputs, is_computed, reduce
from tracemine.codegen.tensor_ir import Tensor
from tracemine.ops.infer import TensorSpec

_MACHINE_EPSILON = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def _moments(low: Lowering, source: Tensor, over: Sequence[int], eps: Operand) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, sum of squares about it, and the inverse root of the variance."""
    mean = reduce(low, "welford_mean", source, over, True)
    squares = reduce(low, "welford_squares", source, over, True)
    return mean, squares, _inverse_root(low, low.op("div", squares, low.num_elements(source, over)), eps)


def _inverse_root(low: Lowering, variance: Tensor, eps: Operand) -> Tensor:
    return low.op("rsqrt", low.op("add", variance, eps))


def _normed(low: Lowering, source: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    # A GPU makes a product and a difference one operation, rounded once: of a row whose elements are all its mean the
    # product's rounding would be left, and an epsilon of 1e-12 makes a million times as much of it.
    apart = is_computed(source)
    about = low.pointwise("sub_rn", [source, mean], FLOAT) if apart else low.op("sub", source, mean)
    return low.op("mul", about, scale)


def _affine(low: Lowering, given: CallArgs, tensor: Tensor, channels: bool = False) -> Tensor:
    """Multiply by the weight and add the bias, where they are given; with `channels` one of each for a channel."""
    rank = len(tensor.dims) if channels else 0
    scaled = low.weighted(given, tensor, rank)
    return low.op("add", scaled, low.per_channel(given.tensor("bias"), rank)) if "bias" in given else scaled


def _input_gradient(
    low: Lowering, grad: Tensor, normed: Tensor, scale: Tensor, over: Sequence[int], centred: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradient of the input, and the sums of grad × normed and of grad, which it is made of.

    grad: of the norm's result before the weight. centred: whether a mean was taken off.
    """
    count = low.num_elements(normed, over)
    along, total = (reduce(low, "sum", t, over, True) for t in (low.op("mul", grad, normed), grad))
    inner = low.op("sub", grad, low.op("div", total, count)) if centred else grad
    inner = low.op("sub", inner, low.op("mul", normed, low.op("div", along, count)))
    return low.op("mul", inner, scale), along, total


def _wanted(low: Lowering, given: CallArgs, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return those of the gradients that are asked for."""
    mask = given.literal("output_mask")
    wanted = mask if isinstance(mask, tuple) else (True,) * len(grads)
    return cast_outputs(low, given, [grad for grad, asked in zip(grads, wanted, strict=True) if asked])


def _inner(given: CallArgs, source: Tensor) -> tuple[int, ...]:
    """Return the dimensions that a layer's norm loops over."""
    return tuple(range(len(source.dims) - len(given.integers("normalized_shape") or ()), len(source.dims)))


@rule("native_layer_norm")
def _layer_norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("input")
    mean, _, scale = _moments(low, source, _inner(given, source), given.operand("eps", 1e-5))
    return cast_outputs(low, given, [_affine(low, given, _normed(low, source, mean, scale)), mean, scale])


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def _layer_norm_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    grad, source, scale = given.tensor("grad_out"), given.tensor("input"), given.tensor("rstd")
    over, centred = _inner(given, source), "mean" in given
    normed = _normed(low, source, given.tensor("mean"), scale) if centred else low.op("mul", source, scale)
    weighted = low.weighted(given, grad)
    rows = tuple(d for d in range(len(source.dims)) if d not in over)
    if "bias" in given:  # it is not read: its shape alone is asked for
        low.reshape(given.tensor("bias"), source.dims[over[0] :])
    into, _, _ = _input_gradient(low, weighted, normed, scale, over, centred)
    sums = [reduce(low, "sum", each, rows, False) for each in (low.op("mul", grad, normed), grad)[: 1 + centred]]
    return _wanted(low, given, (into, *sums))


@rule("rms_norm", "_fused_rms_norm")
def _rms_norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("input")
    over = _inner(given, source)
    squares = reduce(low, "sum", low.op("mul", source, source), over, True)
    # As torch: of the input's dtype where the call is composite, of float32 where it is a kernel of its own.
    fused = given.call.operator == "aten::_fused_rms_norm"
    default = _MACHINE_EPSILON["float32" if fused else source.dtype]
    scale = _inverse_root(low, low.op("div", squares, low.num_elements(source, over)), given.operand("eps", default))
    normed = _affine(low, given, low.op("mul", source, scale))
    return cast_outputs(low, given, [normed, scale][: len(given.call.outputs)])


def _grouped(low: Lowering, given: CallArgs, source: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return a tensor as batch × groups × channels of a group × the rest, and the dimensions that a group's norm loops
    over.

    How many groups there are is a number of the call's, whatever the channels.
    """
    shape, groups = low.shape(source), given.integer("group", 1)
    parts = (shape[0], groups, shape[1] // groups, *shape[2:])
    found = low.reshape(source, low.new_dims(parts))
    low.axes.pin(found.dims[1])
    return found, tuple(range(2, len(parts)))


@rule("native_group_norm")
def _group_norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    source = given.tensor("input")
    grouped, over = _grouped(low, given, source)
    mean, _, scale = _moments(low, grouped, over, given.operand("eps", 1e-5))
    normed = low.reshape(_normed(low, grouped, mean, scale), source.dims)
    flat = [low.with_dims(m, m.dims[:2]) for m in (mean, scale)]
    return cast_outputs(low, given, [_affine(low, given, normed, channels=True), *flat])


@rule("native_group_norm_backward")
def _group_norm_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    grad, source = given.tensor("grad_out"), given.tensor("input")
    rank = len(source.dims)
    grouped, over = _grouped(low, given, source)
    mean, scale = (low.with_dims(t, (*t.dims, *((),) * (rank - 1))) for t in map(given.tensor, ("mean", "rstd")))
    normed = _normed(low, grouped, mean, scale)
    weighted = low.weighted(given, grad, rank)
    into, _, _ = _input_gradient(low, low.reshape(weighted, grouped.dims), normed, scale, over)
    rest = tuple(d for d in range(rank) if d != 1)
    product = low.op("mul", grad, low.reshape(normed, source.dims))
    sums = [reduce(low, "sum", each, rest, False) for each in (product, grad)]
    return _wanted(low, given, (low.reshape(into, source.dims), *sums))


_BATCH_NORMS = ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm", "miopen_batch_norm")


@rule(*_BATCH_NORMS)
def _batch_norm(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    """Return what it keeps of a run is given after its results, to be written in place."""
    source = given.tensor("input")
    rank = len(source.dims)
    over = _all_but_channels(rank)
    eps = given.operand("eps" if "eps" in given else "epsilon", 1e-5)
    trains = bool(given.literal("training", True))
    if trains:
        mean, squares, scale = _moments(low, source, over, eps)
    else:
        mean = low.per_channel(given.tensor("running_mean"), rank)
        scale = _inverse_root(low, low.per_channel(given.tensor("running_var"), rank), eps)
    normed = _affine(low, given, _normed(low, source, mean, scale), channels=True)
    kept: list[Tensor] = [low.with_dims(m, (m.dims[1 if trains else 0],)) for m in (mean, scale)]
    if not trains and not any(spec.elements for spec in given.call.outputs[1:3]):
        kept = _empty(low, given.call.outputs[1:3])  # cuDNN's keeps nothing where it learns nothing
    results = cast_outputs(low, given, [normed, *kept, *_reserve(low, given)])
    if not trains:
        return results
    unbiased = low.op("div", squares, low.op("sub", low.num_elements(source, over), 1))
    share = given.operand("momentum" if "momentum" in given else "exponential_average_factor", 0.1)
    updates: list[Tensor] = []
    for name, value in (("running_mean", mean), ("running_var", unbiased)):
        if name in given:
            old = given.tensor(name)
            fresh = low.op("running_average", old, low.with_dims(value, (value.dims[1],)), share)
            updates.append(low.cast(fresh, old.dtype))
    return (*results, *updates)


def _all_but_channels(rank: int) -> tuple[int, ...]:
    if rank < 2:
        raise Unsupported("a batch norm of a tensor without channels")
    return tuple(d for d in range(rank) if d != 1)


def _reserve(low: Lowering, given: CallArgs) -> list[Tensor]:
    """Return what cuDNN's keeps besides the statistics, of no elements."""
    specs = given.call.outputs[3:]
    if any(spec.elements for spec in specs):
        raise Unsupported("what cuDNN reserves for its own gradient")
    return _empty(low, specs)


def _empty(low: Lowering, specs: Sequence[TensorSpec]) -> list[Tensor]:
    """Return tensors of no elements."""
    return [low.full(0.0, FLOAT, low.new_dims(spec.shape)) for spec in specs]


@rule("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward")
def _batch_norm_backward(low: Lowering, given: CallArgs) -> tuple[Tensor, ...]:
    grad = given.tensor("grad_out" if "grad_out" in given else "grad_output")
    source = given.tensor("input")
    rank = len(source.dims)
    over = _all_but_channels(rank)
    trains = bool(given.literal("train", True))
    if trains:
        saved = "save_invstd" if "save_invstd" in given else "save_var"  # of cuDNN too it is the inverse root
        mean, scale = (low.per_channel(given.tensor(n), rank) for n in ("save_mean", saved))
    else:
        mean, variance = (low.per_channel(given.tensor(n), rank) for n in ("running_mean", "running_var"))
        scale = _inverse_root(low, variance, given.operand("eps", 1e-5))
    normed = _normed(low, source, mean, scale)
    into, *sums = _input_gradient(low, grad, normed, scale, over)
    if not trains:
        into = low.op("mul", grad, scale)
    into = low.weighted(given, into, rank)
    return _wanted(low, given, [into, *(low.with_dims(t, (t.dims[1],)) for t in sums)])
