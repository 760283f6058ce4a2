"""The largest score of each word over a document's tokens, in strips of documents."""

from __future__ import annotations

from typing import Final

from tracemine.codegen.graph import Graph, GraphCall, Ref, reads
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.heads import Core, HeadGraph, in_strips
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import flag, plain

_FORWARD: Final = ("relu", "clamp_min", "log1p", "mul", "max", "amax")
_SPREAD: Final = ("scatter", "scatter_", "value_selecting_reduction_backward")
_BACKWARD: Final = ("threshold_backward", "add", "div", "sum", *_SPREAD)
ZERO_OR_ONE: Final = "the mask holds nothing but zeros and ones"
GRADIENT_OF_EQUALS: Final = "of tokens with the same score one has the gradient"


def largest_in_strips(graph: Graph, around: Around) -> Fixed:
    """Return the largest over tokens in strips. Raises NoFixedForm."""
    return in_strips(graph, around, _largest)


def _largest(found: HeadGraph) -> Core:
    found.expect((*_FORWARD, *_BACKWARD))
    value, scores = _maximum(found)
    positive, mask = _scores(found, scores)
    head, (documents, tokens, _) = found.head_of(reads(positive)[0]), found.graph.specs[scores].shape
    every = f"torch.ones({documents}, {tokens}, device=hidden.device)"
    seen = every if mask is None else f"{{v{mask}}}.expand({documents}, {tokens}, 1).squeeze(-1)"
    backward = [each for name in _SPREAD for each in found.of(name)]
    return Core(
        head=head,
        function="vocabulary_max",
        text=f"hidden.view({documents}, {tokens}, -1), weight, {'None' if head.bias is None else 'bias'}, {seen}",
        results={value: "made"},
        upstream=_gradient(backward[0][1]) if backward else None,
        shaped=".reshape(made.shape)",
        needs=[] if mask is None else [mask],
        holds={} if mask is None else found.bound(mask, 2),
        assumptions=(*([] if mask is None else [ZERO_OR_ONE]), *([GRADIENT_OF_EQUALS] if backward else [])),
    )


def _scores(found: HeadGraph, scores: int) -> tuple[GraphCall, int | None]:
    """Return the ReLU whose log1p scores are, and their mask. Raises NoFixedForm."""
    masked = _maker(found, scores, "mul")
    curved, mask = (scores, None) if masked is None else _sides(found, masked)
    log = _maker(found, curved, "log1p")
    positive = None if log is None else found.call(found.root(reads(log)[0]))
    if positive is None or not _is_relu(positive):
        raise NoFixedForm("what the maximum is taken of is not log1p(relu(·)) of the logits")
    return positive, mask


def _maximum(found: HeadGraph) -> tuple[int, int]:
    """Return the largest over tokens, and what it is taken of. Raises NoFixedForm."""
    maxima = [*found.of("max"), *found.of("amax")]
    if len(maxima) != 1:
        raise NoFixedForm(f"it has {len(maxima)} maxima")
    number, call = maxima[0]
    scores, dim = reads(call)[0], plain(call.given()["dim"])
    if len(found.graph.specs[scores].shape) != 3 or dim not in (1, (1,), -2, (-2,)) or flag(call.given(), "keepdim"):
        raise NoFixedForm("its maximum is not over the tokens of documents")
    return found.graph.first_output(number), scores


def _maker(found: HeadGraph, value: int, name: str) -> GraphCall | None:
    """Return the call that makes a value, where it is of that operator."""
    call = found.call(found.root(value))
    return call if call is not None and call.operator == f"aten::{name}" else None


def _is_relu(call: GraphCall) -> bool:
    bound = call.operator == "aten::clamp_min" and plain(call.given().get("min")) == 0
    return bound or call.operator == "aten::relu"


def _sides(found: HeadGraph, product: GraphCall) -> tuple[int, int]:
    """Return what is masked, and the mask: a number a token. Raises NoFixedForm."""
    sides = reads(product)
    narrow = [value for value in sides if found.graph.specs[value].shape[-1:] == (1,) and found.outside(value)]
    if len(sides) != 2 or len(narrow) != 1:
        raise NoFixedForm("what its scores are multiplied by is no mask of tokens")
    return next(value for value in sides if value != narrow[0]), narrow[0]


def _gradient(call: GraphCall) -> int:
    """Return the gradient of a maximum, as what spreads it to tokens takes it."""
    given = call.given()
    value = given.get("src", given.get("grad"))
    if not isinstance(value, Ref):
        raise NoFixedForm("where its gradient comes from is not known")
    return value.value


FIX = Maker(largest_in_strips)
