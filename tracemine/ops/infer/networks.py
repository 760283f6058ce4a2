"""Output rules of neural networks' own operators: convolution, pooling, resampling, normalisation, attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from tracemine.ops.infer.arguments import Arguments, Unknown, refuse_if
from tracemine.ops.infer.arithmetic import known, laid_like, made, plain
from tracemine.ops.infer.outputs import Outputs, rule
from tracemine.ops.infer.tensor import TensorSpec, channels_last, contiguous, is_dense, like, looks_channels_last

_WIDE = {"float16": "float32", "bfloat16": "float32"}  # what GPUs accumulate and keep statistics in


def _each(values: Sequence[int] | None, axes: int, default: int) -> Sequence[int]:
    """Return a value an axis, where one may hold for all."""
    if not values:
        return (default,) * axes
    if len(values) == 1:
        return (values[0],) * axes
    refuse_if(len(values) != axes)
    return values


def _layout(shape: Sequence[int], *sources: TensorSpec) -> tuple[int, ...] | None:
    """Return channels last where a source suggests it, else row-major; None where strides were not recorded."""
    if len(shape) not in (4, 5):
        return contiguous(shape)
    unknown = False
    for source in sources:
        if source.strides is None:
            unknown = True
        elif len(source.shape) == len(shape) and looks_channels_last(source.shape, source.strides):
            return channels_last(shape)
    return None if unknown else contiguous(shape)


def _placed(shape: Sequence[int], dtype: str | None, *sources: TensorSpec) -> TensorSpec:
    refuse_if(any(size < 0 for size in shape))
    return TensorSpec(tuple(shape), dtype, _layout(shape, *sources))


# --- convolution -----------------------------------------------------------------------------------------------------


@rule
def convolution(call: Arguments, transposed: bool = False) -> Outputs:
    """Return [batch,] channels, then each axis by its kernel, stride, padding and dilation."""
    source, weight = call.tensor("input", "self"), call.tensor("weight")
    axes = len(weight.shape) - 2
    refuse_if(axes < 1 or len(source.shape) not in (axes + 1, axes + 2))
    transposed = call.flag("transposed", transposed)
    stride = _each(call.sizes("stride"), axes, 1)
    padding = _each(call.sizes("padding"), axes, 0)
    dilation = _each(call.integers("dilation"), axes, 1)
    kernel = weight.shape[2:]
    sizes = []
    if transposed:
        extra = _each(call.integers("output_padding"), axes, 0)
        channels = weight.shape[1] * call.integer("groups", 1)
        for axis, size in enumerate(source.shape[-axes:]):
            reach = dilation[axis] * (kernel[axis] - 1) + 1
            sizes.append((size - 1) * stride[axis] - 2 * padding[axis] + reach + extra[axis])
    else:
        channels = weight.shape[0]
        for axis, size in enumerate(source.shape[-axes:]):
            reach = dilation[axis] * (kernel[axis] - 1) + 1
            sizes.append((size + 2 * padding[axis] - reach) // stride[axis] + 1)
    return (_placed((*source.shape[: -axes - 1], channels, *sizes), source.dtype, source, weight),)


@rule
def convolution_backward(call: Arguments) -> Outputs:
    """Return gradients of input, weight and bias, those asked for."""
    source, weight = call.tensor("input", "self"), call.tensor("weight")
    grad = call.tensor("grad_output")
    wanted = call.flags("output_mask")
    channels = (grad.shape[1 if len(grad.shape) == len(weight.shape) else 0],)
    made_ones = (
        _placed(source.shape, source.dtype, source, weight),
        _placed(weight.shape, weight.dtype, source, weight),
        made(channels, grad.dtype),
    )
    return tuple(tensor if asked else None for tensor, asked in zip(made_ones, wanted, strict=False))


# --- pooling and resampling ------------------------------------------------------------------------------------------


def _pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceiling: bool) -> int:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceiling else 0)) // stride + 1
    # With ceil_mode the last window must still begin inside the input or its left padding.
    return count - 1 if ceiling and (count - 1) * stride >= size + padding else count


@rule
def pool(call: Arguments, axes: int, indices: bool = False, layout: str = "") -> Outputs:
    """Return windows over the last axes; with `indices`, where each maximum stood."""
    source = call.tensor("self")
    refuse_if(len(source.shape) not in (axes + 1, axes + 2))
    kernel = _each(call.sizes("kernel_size"), axes, 1)
    stride = _each(call.integers("stride") or kernel, axes, 1)
    padding = _each(call.integers("padding"), axes, 0)
    dilation = _each(call.integers("dilation") if "dilation" in call else None, axes, 1)
    ceiling = call.flag("ceil_mode")
    sizes = [
        _pooled(size, kernel[axis], stride[axis], padding[axis], dilation[axis], ceiling)
        for axis, size in enumerate(source.shape[-axes:])
    ]
    return _values(source, sizes, axes, indices, layout)


def _values(source: TensorSpec, sizes: Sequence[int], axes: int, indices: bool, layout: str) -> Outputs:
    shape = (*source.shape[:-axes], *sizes)
    batched = len(shape) == axes + 2
    result = made(shape, source.dtype) if layout or not batched else _placed(shape, source.dtype, source)
    if layout == "unknown" and plain(source, source.dtype).strides is None:
        result = TensorSpec(result.shape, source.dtype, None)
    return (result, TensorSpec(result.shape, "int64", result.strides)) if indices else (result,)


@rule
def adaptive_pool(call: Arguments, axes: int, indices: bool = False, layout: str = "") -> Outputs:
    """Return the size of the output is given."""
    return _values(call.tensor("self"), _each(call.sizes("output_size"), axes, 1), axes, indices, layout)


@rule
def suggested_like(call: Arguments, argument: str = "self") -> Outputs:
    """Return the shape of one argument, row-major or channels last as it suggests."""
    source = call.tensor(argument, "input")
    return (_placed(source.shape, source.dtype, source),)


@rule
def upsample(call: Arguments) -> Outputs:
    """Return the size of the output is given, or a factor an axis."""
    source = call.tensor("self" if "self" in call else "input")
    sizes = call.integers("output_size")
    if sizes is None:
        parts = call.text("scale_factors").strip("[]").split(",")
        factors = [float(part) for part in parts if part.strip()]
        sizes = tuple(int(size * factor) for size, factor in zip(source.shape[2:], factors, strict=True))
    refuse_if(len(sizes) != len(source.shape) - 2)
    return (_placed((*source.shape[:2], *sizes), source.dtype, source),)


@rule
def upsample_backward(call: Arguments) -> Outputs:
    """Return the gradient of the input, whose size is given."""
    grad = call.tensor("grad_output")
    return (_placed(call.sizes("input_size"), grad.dtype, grad),)


@rule
def grid_sampler(call: Arguments) -> Outputs:
    """Return batch and channels of the input, positions of the grid."""
    source, grid = call.tensor("input"), call.tensor("grid")
    return (made((*source.shape[:2], *grid.shape[1:-1]), source.dtype),)


# --- normalisation ---------------------------------------------------------------------------------------------------


def _statistics(dtype: str | None) -> str:
    """Take the accumulation type, as GPUs keep statistics."""
    return _WIDE.get(known(dtype), known(dtype))


@rule
def layer_norm(call: Arguments, statistics: int = 0, layout: str = "") -> Outputs:
    """Return the tensor, row-major, and its statistics: one a row, with an axis of 1 for each that was normalised.

    layout: of inputs that are not row-major it is not known.
    """
    source, row = call.tensor("input"), call.sizes("normalized_shape")
    rest = len(source.shape) - len(row)
    refuse_if(source.shape[rest:] != row)
    kept = made(source.shape[:rest] + (1,) * len(row), _statistics(source.dtype))
    result = plain(source, source.dtype) if layout else made(source.shape, source.dtype)
    return (result, *(kept,) * statistics)


_LAYOUTS: dict[str, Callable[[TensorSpec], TensorSpec]] = {
    "row major": lambda source: made(source.shape, source.dtype),
    "suggested": lambda source: _placed(source.shape, source.dtype, source),
    "plain": lambda source: plain(source, source.dtype),
}


@rule
def norm_backward(call: Arguments, grads: int, layout: str = "row major") -> Outputs:
    """Return gradients of input, weight and bias, those asked for. layout: of the first."""
    source, weight = call.tensor("input"), call.optional("weight")
    first = _LAYOUTS[layout](source)
    small = None
    if weight is not None:
        small = made(weight.shape, weight.dtype)
    elif layout == "suggested":
        small = made(source.shape[1:2], _statistics(source.dtype))
    wanted = call.flags("output_mask") if "output_mask" in call else (True,) * grads
    return tuple(tensor if asked else None for tensor, asked in zip((first, small, small)[:grads], wanted, strict=True))


@rule
def group_norm(call: Arguments, statistics: int = 0) -> Outputs:
    """Return the tensor, and mean and rstd a group."""
    source = call.tensor("input")
    result = plain(source, source.dtype)
    if not statistics:
        return (result,)
    kept = made((source.shape[0], call.integer("group")), source.dtype)
    return (result, kept, kept)


@rule
def group_norm_backward(call: Arguments) -> Outputs:
    """Return gradients of input, weight and bias, those asked for."""
    source, wanted = call.tensor("input"), call.flags("output_mask")
    weight = call.optional("weight")
    per_channel = None if weight is None else made(weight.shape, weight.dtype)
    grads = (plain(source, source.dtype), per_channel, per_channel)
    return tuple(tensor if asked else None for tensor, asked in zip(grads, wanted, strict=True))


@rule
def batch_norm(call: Arguments, statistics: int = 0, reserve: bool = False, always: bool = False) -> Outputs:
    """Return the tensor, mean and rstd a channel (in training, or always), and cuDNN's reserve of unknown size."""
    source = call.tensor("input")
    library, own = _placed(source.shape, source.dtype, source), laid_like(source, source.dtype)
    if not statistics:  # cuDNN's or torch's own kernel: known where both make the same
        return (library if library == own else TensorSpec(source.shape, source.dtype, None),)
    kept: TensorSpec | None = None
    with suppress(Unknown):  # whether it trains may not be recorded
        channels = source.shape[1] if always or call.flag("training") else 0
        kept = made((channels,), _statistics(source.dtype))
    return (own if always else library, kept, kept, *(None,) * reserve)


@rule
def batch_norm_backward(call: Arguments) -> Outputs:
    """Return gradients of input, weight and bias, those asked for."""
    source, wanted = call.tensor("input"), call.flags("output_mask")
    weight = call.optional("weight")
    small = made(source.shape[1:2], weight.dtype if weight is not None else _statistics(source.dtype))
    dense = source.strides is not None and is_dense(source.shape, source.strides)
    grads = (TensorSpec(source.shape, source.dtype, source.strides if dense else None), small, small)
    return tuple(tensor if asked else None for tensor, asked in zip(grads, wanted, strict=True))


# --- attention -------------------------------------------------------------------------------------------------------


def _heads(call: Arguments) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    query, key, value = call.tensor("query"), call.tensor("key"), call.tensor("value")
    refuse_if(not len(query.shape) == len(key.shape) == len(value.shape) or len(query.shape) < 2)
    return query, key, value


@rule
def attention(call: Arguments) -> Outputs:
    """Return an output without strides: which kernel of scaled_dot_product_attention runs decides the layout."""
    query, _, value = _heads(call)
    return (TensorSpec((*query.shape[:-1], value.shape[-1]), query.dtype, None),)


@rule
def math_attention(call: Arguments) -> Outputs:
    """Return result and weights, from matrix products."""
    query, key, value = _heads(call)
    return made((*query.shape[:-1], value.shape[-1]), query.dtype), made(
        (*query.shape[:-1], key.shape[-2]), query.dtype
    )


@rule
def flash_attention(call: Arguments) -> Outputs:
    """Return batch, heads, queries, width; laid out with heads inside queries. Seeds and debug mask are left out."""
    query, _, _ = _heads(call)
    batch, heads, queries, width = query.shape
    strides = (queries * heads * width, width, heads * width, 1)
    kept = made((batch, heads, queries), "float32")
    return (TensorSpec(query.shape, query.dtype, strides), kept, *(None,) * 5)


@rule
def flash_forward(call: Arguments) -> Outputs:
    """Return batch, queries, heads, width; or all sequences one after another, heads, width."""
    query, _, _ = _heads(call)
    packed = call.optional("cum_seq_q")
    if packed is None:
        batch, queries, heads, _ = query.shape
        kept = made((batch, heads, queries), "float32")
    else:
        kept = made((query.shape[1], query.shape[0]), "float32")
    strides = None if query.strides is None else like(query.shape, query.strides)
    return (TensorSpec(query.shape, query.dtype, strides), kept, *(None,) * 3)


@rule
def efficient_attention(call: Arguments) -> Outputs:
    """Return as flash_attention; statistics are padded to 32 queries, and empty when not asked for."""
    query, _, value = _heads(call)
    batch, heads, queries, _ = query.shape
    width = value.shape[-1]
    kept = -(-queries // 32) * 32 if call.flag("compute_log_sumexp") else 0
    strides = (queries * heads * width, width, heads * width, 1)
    return (
        TensorSpec((batch, heads, queries, width), query.dtype, strides),
        made((batch, heads, kept), "float32"),
        None,
        None,
    )


@rule
def efficient_forward(call: Arguments) -> Outputs:
    """Return batch, queries, heads, width."""
    query, _, value = _heads(call)
    batch, queries, heads, _ = query.shape
    kept: TensorSpec | None = None
    if not call.given("cu_seqlens_q"):
        kept = made((batch, heads, -(-queries // 32) * 32 if call.flag("compute_log_sumexp") else 0), "float32")
    return made((batch, queries, heads, value.shape[-1]), query.dtype), kept, None, None


@rule
def cudnn_attention(call: Arguments) -> Outputs:
    """Lay out in the order of the query's axes."""
    query, _, value = _heads(call)
    refuse_if(len(query.shape) != 4, "packed sequences: the layout is not known")
    shape = (*query.shape[:-1], value.shape[-1])
    strides = None
    if query.strides is not None:
        steps, step = [0] * 4, 1
        for axis in sorted(range(4), key=lambda place: (query.strides or ())[place]):
            steps[axis], step = step, step * shape[axis]
        strides = like(shape, query.strides) if shape == query.shape else tuple(steps)
    kept = made((*shape[:3], 1), "float32") if call.flag("compute_log_sumexp") else None
    return (TensorSpec(shape, query.dtype, strides), kept, *(None,) * 5)


@rule
def attention_backward(call: Arguments, bias: bool = False, layout: str = "") -> Outputs:
    """Return gradients of query, key and value, laid out as they are unless that is not known."""
    grads = [
        TensorSpec(tensor.shape, tensor.dtype, None) if layout else laid_like(tensor, tensor.dtype)
        for tensor in _heads(call)
    ]
    return (*grads, None) if bias else grads
