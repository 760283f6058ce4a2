"""Gradients that are None in place of zeros."""

from __future__ import annotations

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import plain


def let_go(graph: Graph, around: Around) -> Fixed:
    """Return gradients that are None in place of zeros: the next ones are taken as they are, where they were added.

    Both sides are asked for what is there after the next gradient: eager's calls, with an addition behind them where
    they have none themselves. Raises NoFixedForm.
    """
    zeroed, added = dict[int, None](), dict[int, int]()
    for call in graph.calls:
        if call.operator.removeprefix("aten::") in _ZEROING:
            if plain(call.given().get("value", LiteralArg(0))) != 0:
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


def _take(graph: Graph, call: GraphCall, added: dict[int, int]) -> None:
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


_TEXTS = table_beside(__file__, "fix.toml")
_LET_GO: str = _TEXTS["let_go"]


FIX = Maker(let_go)
