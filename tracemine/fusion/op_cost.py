"""What one aten operator computes an element, in the steps that the predictor knows."""

from __future__ import annotations

from tracemine.fusion.kernel import FINISH

# What is not here is taken for `simple`, an instruction or two; every operator that kernels are generated for is here.
# Functions stand in for those of the same cost.
STEPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("exp", "exp2", "expm1", "elu"), ("exp",)),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), ("log",)),
    **dict.fromkeys(("tanh", "sin", "cos", "tan"), ("tanh",)),
    **dict.fromkeys(("erf", "erfc"), ("erf",)),
    **dict.fromkeys(("div", "reciprocal", "sqrt", "rsqrt", "remainder", "fmod", "addcdiv"), ("divide",)),
    **dict.fromkeys(("mul",), ("scale",)),
    **dict.fromkeys(
        ("dropout", "native_dropout", "bernoulli", "rand_like", "randn_like", "uniform", "normal"), ("random",)
    ),
    **dict.fromkeys(("sigmoid", "silu", "silu_backward", "glu"), ("sigmoid",)),
    **dict.fromkeys(("gelu", "gelu_backward"), ("simple", "simple", "erf")),
    **dict.fromkeys(("softplus", "mish", "logit", "log_sigmoid_forward"), ("exp", "log")),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "prod", "any", "all", "argmax", "argmin"), ("sum",)),
    **dict.fromkeys(
        ("max", "min"), ("sum", "simple")
    ),  # and where it is, which keeps an online softmax from being made
    **dict.fromkeys(("norm", "linalg_vector_norm", "aminmax", "rms_norm", "_fused_rms_norm"), ("sum",)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), ("welford",)),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "layer_norm", "group_norm"), ("welford",)),
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "batch_norm", "miopen_batch_norm", "_native_batch_norm_legit"),
        ("welford", "channel"),
    ),
    **dict.fromkeys(
        (
            *("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward"),
            *("_native_batch_norm_legit_no_training", "_batch_norm_no_update", "batch_norm_elemt"),
            *("batch_norm_backward", "batch_norm_backward_elemt"),
        ),
        ("channel",),
    ),
    "_batch_norm_with_update": ("welford", "channel"),
    **dict.fromkeys(
        ("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "upsample_linear1d"), ("blend",)
    ),
    **dict.fromkeys(("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler_2d"), ("blend",)),
    **dict.fromkeys(("_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp"), ("softmax",)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), (FINISH,)),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), ("scan",)),
    **dict.fromkeys(
        (
            *("add", "sub", "subtract", "rsub", "multiply", "neg", "negative", "abs", "absolute", "square", "addcmul"),
            *("lerp", "maximum", "minimum", "fmax", "fmin", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh"),
            *("floor", "ceil", "trunc", "round", "frac", "sign", "sgn", "where", "masked_fill", "_masked_scale"),
            *("isnan", "isinf", "isposinf", "isneginf", "isfinite", "bitwise_xor"),
            *("bitwise_left_shift", "bitwise_right_shift", "__and__", "__or__", "__xor__", "__lshift__", "__rshift__"),
            *("relu", "leaky_relu", "_prelu_kernel", "threshold", "hardshrink", "softshrink", "hardsigmoid"),
            *("hardswish", "threshold_backward", "leaky_relu_backward", "hardtanh_backward", "hardsigmoid_backward"),
            *("hardshrink_backward", "softshrink_backward", "sigmoid_backward", "tanh_backward"),
            "native_dropout_backward",
        ),
        ("simple",),
    ),
    **dict.fromkeys(
        (
            *("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor"),
            *("bitwise_and", "bitwise_or", "bitwise_not"),
        ),
        ("compare",),
    ),
    # Many instructions, of which none was measured: taken for simple until one is.
    **dict.fromkeys(
        (
            *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "erfinv", "hypot", "lgamma"),
            *("divide", "true_divide", "floor_divide", "logaddexp", "xlogy", "log_sigmoid_backward", "mish_backward"),
            *("hardswish_backward", "softplus_backward"),
        ),
        ("simple",),
    ),
}


def steps_of(op: str) -> tuple[str, ...]:
    """Return the steps of an operator, by its name with or without `aten::` and a trailing underscore.

    >>> steps_of("aten::gelu"), steps_of("aten::div_"), steps_of("add")
    (('simple', 'simple', 'erf'), ('divide',), ('simple',))
    """
    name = op.removeprefix("aten::").split(".")[0]
    return STEPS.get(name) or STEPS.get(name.removesuffix("_")) or ("simple",)


def online_softmax(steps: tuple[str, ...]) -> tuple[str, ...]:
    """What a compiler makes of a group's softmax: one walk for maximum and sum, or two where what is scaled goes in.

    A maximum, an exponential and a sum of it are computed in one walk over the row, with a second exponential. Of a
    scaled input the compiler takes the maximum before it scales, and that is no longer the pattern which it merges.

    >>> online_softmax(("sum", "simple", "exp", "sum", "log"))
    ('softmax', 'log')
    >>> online_softmax(("scale", "softmax"))
    ('scale', 'sum', 'simple', 'exp', 'sum', 'divide')
    """
    for at in range(len(steps)):
        if steps[at : at + 4] == ("sum", "simple", "exp", "sum"):
            return (*steps[:at], "softmax", *steps[at + 4 :])
        if at and steps[at] == "softmax" and steps[at - 1] in ("scale", "divide"):
            return (*steps[:at], "sum", "simple", "exp", "sum", "divide", *steps[at + 1 :])
    return steps
