"""A convolution with the weight and bias that the norm behind it makes of them, once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tracemine.codegen.graph import Graph, LiteralArg, Ref, Scalar, mutated, reads
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import flag, line, names_of, outputs_of, plain, producers, signature
from tracemine.verify.repro.eager import number_text

_CONVOLUTIONS = frozenset({"aten::convolution", "aten::cudnn_convolution", "aten::miopen_convolution"})
_NORMS = ("aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")
_BIAS = frozenset({"aten::add_"})  # of a convolution, which PyTorch adds by a call of its own
BEFORE_NORM: Mapping[str, Collection[str]] = {
    **dict.fromkeys(_NORMS, _CONVOLUTIONS | _BIAS),
    **dict.fromkeys(_BIAS, _CONVOLUTIONS),
}
_WIDE = frozenset({"float32", "float64"})


@dataclass(frozen=True, slots=True)
class _Pair:
    """A norm and the convolution before it, by number; what stands in between is the convolution's bias."""

    norm: int
    convolution: int
    between: int | None

    @property
    def calls(self) -> set[int]:
        return {self.norm, self.convolution, *([] if self.between is None else [self.between])}


def folded(graph: Graph, around: Around) -> Fixed:
    """Return the convolution with another weight and bias, and what stands behind the norm. Raises NoFixedForm."""
    pair = _pair(graph)
    within = {v for n in pair.calls for v in outputs_of(graph, n)} - {graph.first_output(pair.norm)}
    others = {v for n, call in enumerate(graph.calls) if n not in pair.calls for v in reads(call)}
    if within & (others | {v for v in graph.live if v not in around.unread}):
        raise NoFixedForm("what stands before the norm is read elsewhere")
    names = names_of(graph)
    lines = [f"    made = {_convolution(graph, pair)}"]
    names[graph.first_output(pair.norm)] = "made"
    lines += [line(graph, n, names) for n in range(len(graph.calls)) if n not in pair.calls]
    live = ", ".join("None" if v in within else names[v] for v in graph.live)
    head = [signature(graph, "folded_weight", "folded_bias"), "    aten = torch.ops.aten"]
    calls = "\n".join([*head, *lines, f"    return ({live},)"])
    variance = _place(graph, pair.norm, "running_var")
    return Fixed(
        own={
            "folded": '"a convolution with the norm folded into its weight and bias, before the step", fold, call=fixed'
        },
        source=f"{_fold(graph, pair)}\n\n\n{calls}\n\n\n{_IN_ORDER}",
        rounds="folded",
        holds={} if variance is None else {variance: "deviation"},
        assumptions=("weights and statistics do not change between steps: the norm is folded once, in float32",),
    )


_IN_ORDER = """def folded(*inputs):  # the fold rounds a weight, where eager rounds the convolution's result
    return fixed(*fold(inputs))"""


def _pair(graph: Graph) -> _Pair:
    """Raise NoFixedForm where there is none, or several."""
    norm, memory = _norm(graph), graph.memory
    source = memory[reads(graph.calls[norm])[0]]
    found = producers(graph).get(source)
    if found is None or graph.calls[found].operator not in _CONVOLUTIONS:
        raise NoFixedForm("what the norm reads is not seen to come from a convolution")
    writes = [n for n, call in enumerate(graph.calls) if source in {memory[v] for v in mutated(call)}]
    if len(writes) > 1 or any(graph.calls[n].operator not in _BIAS or n > norm for n in writes):
        raise NoFixedForm("more than a bias is written into what the norm reads")
    if flag(graph.calls[found].given(), "transposed"):
        raise NoFixedForm("the convolution is transposed")
    return _Pair(norm, found, writes[0] if writes else None)


def _norm(graph: Graph) -> int:
    """Return the one norm, which takes its running statistics. Raises NoFixedForm where it is not so."""
    norms = [n for n, call in enumerate(graph.calls) if call.operator in _NORMS]
    if len(norms) != 1 or plain(graph.calls[norms[0]].given()["training"]) is not False:
        raise NoFixedForm("it is not one norm that takes its running statistics")
    return norms[0]


def _place(graph: Graph, number: int, argument: str) -> int | None:
    """Return the input that is given for an argument; None where none is. Raises NoFixedForm where it is computed."""
    value = graph.calls[number].given().get(argument)
    if isinstance(value, Ref) and value.value >= len(graph.inputs):
        raise NoFixedForm("weights or statistics are computed within it")
    return value.value if isinstance(value, Ref) else None


def _fold(graph: Graph, pair: _Pair) -> str:
    """Return the function that makes weight and bias. Raises NoFixedForm."""
    weight, variance = _place(graph, pair.convolution, "weight"), _place(graph, pair.norm, "running_var")
    mean = _place(graph, pair.norm, "running_mean")
    if weight is None or variance is None or mean is None:
        raise NoFixedForm("the norm has no statistics, or the convolution no weight")
    bias = _place(graph, pair.convolution, "bias") if pair.between is None else _bias_between(graph, pair.between)
    scale, shift = _place(graph, pair.norm, "weight"), _place(graph, pair.norm, "bias")
    given = graph.calls[pair.norm].given()
    epsilon = given.get("eps", given.get("epsilon"))
    value = epsilon.value if isinstance(epsilon, Scalar) else 0.0
    spec = graph.specs[weight]
    cast = "" if spec.dtype in _WIDE else f".to(torch.{spec.dtype})"
    of_channel = (-1, *(1 for _ in spec.shape[1:]))

    def wide(place: int) -> str:
        return f"inputs[{place}]{'' if graph.specs[place].dtype in _WIDE else '.float()'}"

    center = f"-{wide(mean)}" if bias is None else f"({wide(bias)}.reshape(-1) - {wide(mean)})"
    lines = [
        "def fold(inputs):",
        f"    scale = torch.rsqrt({wide(variance)} + {number_text(value)})"
        + (f" * {wide(scale)}" if scale is not None else ""),
        f"    weight = ({wide(weight)} * scale.reshape({of_channel!r})){cast}",
        f"    bias = ({center} * scale" + (f" + {wide(shift)}" if shift is not None else "") + f"){cast}",
        "    return [*inputs, weight, bias]",
    ]
    return "\n".join(lines)


def _bias_between(graph: Graph, number: int) -> int:
    """Return the bias that a call adds to a convolution's result. Raises NoFixedForm where it is something else."""
    given, place = graph.calls[number].given(), _place(graph, number, "other")
    channels = graph.specs[reads(graph.calls[number])[0]].shape[1]
    if place is None or (given["alpha"] is not None and plain(given["alpha"]) != 1):
        raise NoFixedForm("what is added before the norm is no bias")
    shape, axis = graph.specs[place].shape, 1 - len(graph.specs[graph.first_output(number)].shape)
    if len(shape) < -axis or shape[axis] != channels or math.prod(shape) != channels:
        raise NoFixedForm("what is added before the norm is no bias")
    return place


def _convolution(graph: Graph, pair: _Pair) -> str:
    """Return the call. Raises NoFixedForm where its arguments are not recorded."""
    given = graph.calls[pair.convolution].given()
    x = given.get("input", given.get("self"))
    known = [given.get(name) for name in ("stride", "padding", "dilation", "groups")]
    if not isinstance(x, Ref) or x.value >= len(graph.inputs) or not all(isinstance(v, LiteralArg) for v in known):
        raise NoFixedForm("how the convolution was called is not recorded")
    values = [v.value for v in known if isinstance(v, LiteralArg)]
    stride, padding, dilation = (list(v) if isinstance(v, tuple) else [v] for v in values[:3])
    none = [0 for _ in stride]
    rest = f"{stride}, {padding}, {dilation}, False, {none}, {values[3]}"
    return f"aten.convolution.default({graph.inputs[x.value].name}, folded_weight, folded_bias, {rest})"


FIX = Maker(folded, before=BEFORE_NORM)
