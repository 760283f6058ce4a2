"""What one aten operator computes an element, in the steps that the predictor knows."""

from __future__ import annotations

# Not here: `simple`, an instruction or two. Functions stand in for those of the same cost.
_STEPS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("exp", "exp2", "expm1", "elu"), ("exp",)),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), ("log",)),
    **dict.fromkeys(("tanh", "sin", "cos", "tan"), ("tanh",)),
    **dict.fromkeys(("erf", "erfc"), ("erf",)),
    **dict.fromkeys(("div", "reciprocal", "sqrt", "rsqrt", "remainder", "fmod", "addcdiv"), ("divide",)),
    **dict.fromkeys(("sigmoid", "silu", "silu_backward", "glu"), ("sigmoid",)),
    **dict.fromkeys(("gelu", "gelu_backward"), ("simple", "simple", "erf")),
    **dict.fromkeys(("softplus", "mish", "logit", "log_sigmoid_forward"), ("exp", "log")),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "prod", "any", "all", "argmax", "argmin"), ("sum",)),
    **dict.fromkeys(("norm", "linalg_vector_norm", "aminmax", "rms_norm", "_fused_rms_norm"), ("sum",)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), ("welford",)),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "layer_norm", "group_norm"), ("welford",)),
    **dict.fromkeys(("_softmax", "_log_softmax", "softmax", "log_softmax", "logsumexp"), ("softmax",)),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), ("scan",)),
}


def steps_of(op: str) -> tuple[str, ...]:
    """The steps of an operator, by its name with or without `aten::` and a trailing underscore.

    >>> steps_of("aten::gelu"), steps_of("aten::div_"), steps_of("add")
    (('simple', 'simple', 'erf'), ('divide',), ('simple',))
    """
    name = op.removeprefix("aten::").split(".")[0]
    return _STEPS.get(name) or _STEPS.get(name.removesuffix("_")) or ("simple",)


def online_softmax(steps: tuple[str, ...]) -> tuple[str, ...]:
    """A maximum, an exponential and a sum of it are computed in one walk over the row, as a softmax is.

    >>> online_softmax(("sum", "simple", "exp", "sum", "log"))
    ('softmax', 'log')
    """
    for at in range(len(steps) - 3):
        if steps[at : at + 4] == ("sum", "simple", "exp", "sum"):
            return (*steps[:at], "softmax", *steps[at + 4 :])
    return steps
