"""Find what numbers a graph's inputs hold, as far as their use tells.

Roots and logarithms are taken of numbers that are not negative: drawn with either sign, half of a root's results are no
numbers and tell nothing, and those around 0 are chance. What an exponential is taken of is not large: of it infinities
are made, which meet zeros. A norm's gradient takes the mean and the inverse deviation of what was normalised; of others
a thousand times as large its terms cancel, and what is left is what rounding left. An attention's scores are rounded
to eager's 16 bits: in the thousands, by several units, and which of a row is the largest is chance.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracemine.codegen.graph import Graph, GraphCall, Ref, Refs, Scalar, Value, mutated, reads, tensors
from tracemine.ops.facts import base_name, keeping_values

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
# As `gpu/correctness.py` draws them.
POSITIVE, MODERATE, DEVIATION, SHARE = "positive", "moderate", "deviation", "share"
_EXPONENTIALS = ("exp", "exp_", "exp2", "expm1", "_foreach_exp")
_BATCH_NORMS = ("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward")
_GROUP_NORMS = ("native_layer_norm_backward", "native_group_norm_backward")
_DOMAINS = {
    **dict.fromkeys(NOT_NEGATIVE, POSITIVE),
    **{(name, "self"): MODERATE for name in _EXPONENTIALS},
    ("binary_cross_entropy", "self"): SHARE,  # eager refuses others
    **{(name, "mean"): MODERATE for name in _GROUP_NORMS},
    **{(name, "save_mean"): MODERATE for name in _BATCH_NORMS},
    **{(name, "rstd"): DEVIATION for name in (*_GROUP_NORMS, "_fused_rms_norm_backward")},
    **{(name, root): DEVIATION for name in _BATCH_NORMS for root in ("save_invstd", "save_var")},
}
# Numbers between which two cases meet: with a negative one both hold at once, and which of them counts is no promise
# (eager on a CPU takes the other one than eager on a GPU).
_BOUNDS = frozenset(
    (f"{loss}{direction}", argument)
    for loss, argument in (("smooth_l1_loss", "beta"), ("huber_loss", "delta"))
    for direction in ("", "_backward")
)
_PRODUCTS = frozenset({"aten::bmm", "aten::baddbmm", "aten::matmul", "aten::mm", "aten::addmm"})
# Results are not negative where the first argument is not, the other being a number that is not, or none.
_KEEPS = keeping_values("in_order", "copied", "converted", "rearranged") | {"add", "mul", "div"}


def domains(graph: Graph) -> dict[int, str]:
    """Return what inputs hold, where their use says it: POSITIVE, MODERATE, DEVIATION, or SHARE.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("scaled")
    >>> x, variance = b.input("x", (4, 8), "float32"), b.input("variance", (4, 1), "float32")
    >>> root = b.call("aten::rsqrt", b.call("aten::add.Tensor", variance, 1e-5))
    >>> domains(b.done(b.call("aten::mul.Tensor", b.call("aten::exp", x), root)))
    {0: 'moderate', 1: 'positive'}
    """
    found: dict[int, str] = {}
    made: dict[int, GraphCall] = {}
    for number, call in enumerate(graph.calls):
        first = graph.first_output(number)
        made |= {first + k: call for k in range(len(call.outputs))}
        for value, domain in _asked(call, made):
            source = value
            while source in made and (before := _kept(made[source])) is not None:
                source = before
            if source < len(graph.inputs) and graph.inputs[source].below is None:
                found[source] = POSITIVE if POSITIVE in (domain, found.get(source)) else domain
    if _is_attention(graph):
        found = {value: MODERATE for value, e in enumerate(graph.inputs) if e.below is None} | found
    return dict(sorted(found.items()))


def _is_attention(graph: Graph) -> bool:
    """Return whether it has products and a softmax."""
    called = {call.operator for call in graph.calls}
    return "aten::_softmax" in called and not called.isdisjoint(_PRODUCTS)


def bounds(graph: Graph) -> frozenset[str]:
    """Return scalars of a graph that are not negative.

    >>> from tracemine.codegen import GraphBuilder
    >>> b = GraphBuilder("loss")
    >>> x, y, grad = b.input("x", (4, 8), "float32"), b.input("y", (4, 8), "float32"), b.input("grad", (), "float32")
    >>> bounds(b.done(b.call("aten::huber_loss_backward", grad, x, y, 1, 0.5)))
    frozenset({'delta_1'})
    """
    return frozenset(
        value.name
        for call in graph.calls
        for argument, value in call.given().items()
        if isinstance(value, Scalar) and (call.operator.removeprefix("aten::"), argument) in _BOUNDS
    )


def scales_of_codes(graph: Graph) -> frozenset[str]:
    """Return the inputs that integers are multiplied by: the scales of quantised numbers, none of which is infinite."""
    behind = {value: {value} for value in range(len(graph.inputs))}  # inputs that each value is made of
    found: set[str] = set()
    whole = {v for v, e in enumerate(graph.inputs) if e.spec.dtype in ("int8", "uint8")}
    for number, call in enumerate(graph.calls):
        taken = [behind.get(v, set()) for v in reads(call)]
        taken = taken[-1:] if base_name(call.operator) == "copy" else taken  # what is written over is gone
        if base_name(call.operator) == "mul" and any(made and made <= whole for made in taken):
            found |= {graph.inputs[v].name for made in taken if not made & whole for v in made}
        first = graph.first_output(number)
        made_here = [*range(first, first + len(call.outputs)), *mutated(call)]
        behind |= {value: set().union(*taken) for value in made_here}
    return frozenset(found)


def _asked(call: GraphCall, made: Mapping[int, GraphCall]) -> list[tuple[int, str]]:
    """Return values that a call takes where numbers of a kind should be, and of which."""
    name, given = call.operator.removeprefix("aten::"), call.given()
    if name.endswith("addcmul_") and not _alike(given.get("tensor1"), given.get("tensor2"), made):
        return []
    found: list[tuple[int, str]] = []
    for argument, value in given.items():
        domain = _DOMAINS.get((name, argument))
        if domain is not None:
            found += [(v, domain) for v in tensors(value)]
    return found


def _alike(one: Value | None, other: Value | None, made: Mapping[int, GraphCall]) -> bool:
    """Return whether two arguments are the same numbers: one tensor, be it cast for each."""
    return one == other or (isinstance(one, Ref) and isinstance(other, Ref) and _cast(one, made) == _cast(other, made))


def _cast(ref: Ref, made: Mapping[int, GraphCall]) -> int:
    """Return the value that casts are of, as far back as they reach."""
    value = ref.value
    while value in made and made[value].operator == "aten::_to_copy":
        source = made[value].arguments[0]
        if not isinstance(source, Ref):
            break
        value = source.value
    return value


def _kept(call: GraphCall) -> int | None:
    """Return the value that a call's result has its sign from; None where others have a say."""
    if base_name(call.operator) not in _KEEPS:
        return None
    source, *others = (v for v in call.arguments if isinstance(v, Ref | Refs | Scalar))
    plain = all(isinstance(v, Scalar) and v.value >= 0 for v in others)
    return source.value if isinstance(source, Ref) and plain else None
