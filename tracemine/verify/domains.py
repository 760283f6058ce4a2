"""Which tensors hold no negative numbers, as far as their use tells: roots and logarithms are taken of them.

Drawn with either sign, half of a root's results are no numbers and prove nothing, and those around 0 are chance.
"""

from __future__ import annotations

from tracemine.verify.chain import Call, Chain, Ref, Refs, Scalar

# Operator and the argument that is an average of squares, or else not negative.
NOT_NEGATIVE = frozenset(
    (
        *((name, "running_var") for name in ("batch_norm", "_batch_norm_impl_index", "native_batch_norm")),
        *((name, "running_var") for name in ("cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit")),
        *((name, "self") for name in ("sqrt", "sqrt_", "rsqrt", "rsqrt_", "log", "log_", "_foreach_sqrt")),
        *((name, "self") for name in ("addcmul_", "_foreach_addcmul_")),  # second moments
        *((name, "exp_avg_sqs") for name in ("_fused_adam_", "_fused_adamw_")),
        *((name, "state_steps") for name in ("_fused_adam_", "_fused_adamw_")),
    )
)
# Results are not negative where the first argument is not, the other being a number that is not, or none.
_KEEPS = frozenset(
    ("add", "mul", "div", "clone", "_to_copy", "view", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t")
)


def not_negative(chain: Chain) -> frozenset[int]:
    """Inputs of a chain that hold no negative numbers.

    >>> from tracemine.verify import Builder
    >>> b = Builder("scaled")
    >>> x, variance = b.input("x", (4, 8), "float32"), b.input("variance", (4, 1), "float32")
    >>> root = b.call("aten::rsqrt", b.call("aten::add.Tensor", variance, 1e-5))
    >>> not_negative(b.done(b.call("aten::mul.Tensor", x, root)))
    frozenset({1})
    """
    found: set[int] = set()
    made: dict[int, Call] = {}
    for number, call in enumerate(chain.calls):
        first = chain.first_output(number)
        made |= {first + k: call for k in range(len(call.outputs))}
        for value in _asked(call):
            source = value
            while source in made and (before := _kept(made[source])) is not None:
                source = before
            if source < len(chain.inputs) and chain.inputs[source].below is None:
                found.add(source)
    return frozenset(found)


def _asked(call: Call) -> list[int]:
    """Values that a call takes where no negative numbers should be."""
    name, given = call.operator.removeprefix("aten::"), call.given()
    if name.endswith("addcmul_") and given.get("tensor1") != given.get("tensor2"):
        return []
    found: list[int] = []
    for argument, value in given.items():
        if (name, argument) in NOT_NEGATIVE:
            members = value.values if isinstance(value, Refs) else (value.value,) if isinstance(value, Ref) else ()
            found += [v for v in members if v is not None]
    return found


def _kept(call: Call) -> int | None:
    """The value that a call's result has its sign from; None where others have a say."""
    if call.operator.removeprefix("aten::").removesuffix("_") not in _KEEPS:
        return None
    source, *others = (v for v in call.arguments if isinstance(v, Ref | Refs | Scalar))
    plain = all(isinstance(v, Scalar) and v.value >= 0 for v in others)
    return source.value if isinstance(source, Ref) and plain else None
