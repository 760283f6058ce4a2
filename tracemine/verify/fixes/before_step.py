"""Work that is taken out of the step: computed once before it, or copied as one list."""

from __future__ import annotations

from tracemine.codegen.graph import Graph, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm


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
    live = _live_casts(graph)
    casts = list(dict.fromkeys(live))  # one that several passes of a step repeat is made once
    firsts, taken = [live.index(cast) for cast in casts], [casts.index(cast) for cast in live]
    return Fixed(
        own={"copied as one list": '"weights of half width, copied from the optimizer\'s at once", halves, call=fixed'},
        source=_HALVES.format(sources=[place for place, _ in casts], firsts=firsts, taken=taken).strip(),
        assumptions=("the optimizer keeps weights of full width in addition to those that the model computes with",),
    )


def _live_casts(graph: Graph) -> list[tuple[int, str | None]]:
    """Return which input each live value is a cast of, and to what. Raises NoFixedForm where one is anything else."""
    if any(len(call.outputs) != 1 or call.operator != "aten::_to_copy" for call in graph.calls):
        raise NoFixedForm("it does more than cast")
    by = {graph.first_output(n): (reads(call)[0], call.outputs[0].dtype) for n, call in enumerate(graph.calls)}
    if any(place >= len(graph.inputs) for place, _ in by.values()) or set(graph.live) != set(by):
        raise NoFixedForm("what it casts is computed within it, or has no consumer")
    return [by[v] for v in graph.live]


_TEXTS = table_beside(__file__, "texts.toml")
_HALVES: str = _TEXTS["halves"]
