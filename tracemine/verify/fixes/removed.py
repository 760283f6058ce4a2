"""Work that is taken out of the step, or never needed: casts of weights, gradients of zeros, a scale on gradients."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.graph import Call, Graph, Literal, Ref, reads
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import plain


def once(graph: Graph, around: Around) -> Fixed:
    """Compute what depends on weights alone before the step; where it remains, copy trained weights as one list."""
    if graph.written:
        raise NoFixedForm("it writes in place")
    if not around.remains:
        return Fixed(
            own={"once, before the step": '"nothing is left in the step", lambda inputs: eager(*inputs), call=given'},
            source="def given(*made):\n    return made",
            assumptions=("what it reads does not change between steps",),
        )
    if any(len(call.outputs) != 1 or call.operator != "aten::_to_copy" for call in graph.calls):
        raise NoFixedForm("it does more than cast")
    by = {graph.first_output(n): (reads(call)[0], call.outputs[0].dtype) for n, call in enumerate(graph.calls)}
    if any(place >= len(graph.inputs) for place, _ in by.values()) or set(graph.live) != set(by):
        raise NoFixedForm("what it casts is computed within it, or has no consumer")
    casts = list(dict.fromkeys(by[v] for v in graph.live))  # one that several passes of a step repeat is made once
    firsts = [[by[v] for v in graph.live].index(cast) for cast in casts]
    taken = [casts.index(by[v]) for v in graph.live]
    return Fixed(
        own={"copied as one list": '"weights of half width, copied from the optimizer\'s at once", halves, call=fixed'},
        source=_HALVES.format(sources=[place for place, _ in casts], firsts=firsts, taken=taken).strip(),
        assumptions=("the optimizer keeps weights of full width in addition to those that the model computes with",),
    )


_HALVES = """
SOURCES, FIRSTS = {sources}, {firsts}  # weights, and which result is the first cast of each
TAKEN = {taken}  # of which cast each result is


def halves(inputs):
    made = eager(*inputs)
    return [*(made[k] for k in FIRSTS), *(inputs[k] for k in SOURCES)]


def fixed(*given):
    count = len(given) // 2
    torch._foreach_copy_(given[:count], given[count:])
    return [given[k] for k in TAKEN]
"""


def let_go(graph: Graph, around: Around) -> Fixed:
    """Return gradients that are None in place of zeros: the next ones are taken as they are, where they were added.

    Both sides are asked for what is there after the next gradient: eager's calls, with an addition behind them where
    they have none themselves. Raises NoFixedForm.
    """
    zeroed, added = dict[int, None](), dict[int, int]()
    for call in graph.calls:
        if call.operator.removeprefix("aten::") in _ZEROING:
            if plain(call.given().get("value", Literal(0))) != 0:
                raise NoFixedForm("it fills with other numbers than zero")
            zeroed |= dict.fromkeys(reads(call))
        elif call.label != "aten::add_.Tensor" or reads(call)[0] not in zeroed:
            raise NoFixedForm("it does more than fill tensors with zeros, and add gradients to them")
        else:
            _take(graph, call, added)
    pairs = ", ".join(f"({place}, {added.get(place)})" for place in zeroed)
    return Fixed(
        own={"None in place of zeros": '"nothing is left in the step", call=fixed, behind=(after, taken)'},
        source=f"ZEROED = [{pairs}]  # a tensor, and the gradient that is added to it; None: in no call\n{_LET_GO}",
        assumptions=("the next gradient is the first that a backward pass gives: zero and it are the same",),
    )


_ZEROING = ("zero_", "_foreach_zero_", "fill_")


def _take(graph: Graph, call: Call, added: dict[int, int]) -> None:
    """Note an addition to a zeroed tensor whose gradient can be taken as it is. Raises NoFixedForm."""
    given = call.given()
    place, gradient = reads(call)[0], given["other"]
    if not isinstance(gradient, Ref) or gradient.value >= len(graph.inputs) or place in added:
        raise NoFixedForm("more than one gradient is added to a tensor, or one that is computed within it")
    if (given["alpha"] is not None and plain(given["alpha"]) != 1) or gradient.value in (*added, *added.values()):
        raise NoFixedForm("what is added is no gradient of its own")
    if graph.specs[place] != graph.specs[gradient.value]:
        raise NoFixedForm("a gradient that lies otherwise than what it is added to is copied")
    added[place] = gradient.value


_LET_GO = """

def after(*inputs):  # the next gradient is added to what is there
    mine = [t.clone() for t in inputs]
    eager(*mine)
    return [mine[at] + 0.5 * inputs[at] if new is None else mine[at] for at, new in ZEROED]


def taken(*inputs):  # it is taken as it is
    return [0.5 * inputs[at] if new is None else inputs[new].clone() for at, new in ZEROED]


def fixed(*inputs):
    return ()
"""


def unscaled(graph: Graph, around: Around) -> Fixed:
    """Return gradients that are never scaled. Raises NoFixedForm.

    Both sides are asked for the gradients, and for whether one was infinite, at a scale of 1.
    """
    passes = [call for call in graph.calls if call.operator == _UNSCALE]
    if not passes or any(call.operator not in (_UNSCALE, *_OF_SCALES) for call in graph.calls):
        raise NoFixedForm(
            "it does more than take a scale off gradients: the scale's next value is not one that is read"
        )
    gradients = [v for call in passes for v in reads(call)[:-2]]
    scale = _scale(graph, gradients)
    flags = {graph.memory[reads(call)[-2]] for call in passes}
    if any(v not in around.unread and graph.memory[v] not in flags for v in graph.live):
        raise NoFixedForm("more is read than whether a gradient was infinite")
    return Fixed(
        own={"no scaler": '"nothing is left in the step", call=fixed, behind=(by_one, as_they_are)'},
        source=f"SCALE, GRADIENTS = {scale}, {gradients}  # inputs\n{_NOT_SCALED.format(count=len(graph.live))}",
        assumptions=("no gradient is infinite: a step that a scaler would leave out is made",),
    )


def _scale(graph: Graph, gradients: Sequence[int]) -> int:
    """Return the one input that is no gradient: a scalar in float32. Raises NoFixedForm."""
    scales = [k for k in range(len(graph.inputs)) if k not in gradients]
    specs = {(graph.specs[k].shape, graph.specs[k].dtype) for k in scales}
    if len(scales) != 1 or specs != {((), "float32")} or max(gradients, default=0) >= len(graph.inputs):
        raise NoFixedForm("it is not one scale that is taken off gradients")
    return scales[0]


_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"
_OF_SCALES = frozenset(
    {"aten::_to_copy", "aten::reciprocal", "aten::full", "aten::clone", "aten::fill_", "aten::zero_"}
)
_NOT_SCALED = """

def by_one(*inputs):  # eager, at a scale of 1
    mine = [t.clone() for t in inputs]
    mine[SCALE].fill_(1.0)
    infinite = eager(*mine)
    return [*(mine[k] for k in GRADIENTS), *(found.clone() for found in infinite)]


def as_they_are(*inputs):
    infinite = torch.zeros({count}, dtype=inputs[SCALE].dtype, device=inputs[SCALE].device)
    return [*(inputs[k].clone() for k in GRADIENTS), *infinite]


def fixed(*inputs):
    return ()
"""
