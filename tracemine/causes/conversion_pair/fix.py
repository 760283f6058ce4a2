"""Calls without the conversions around them."""

from __future__ import annotations

from tracemine.codegen.graph import Graph, Ref, mutated
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import line, names_of, signature


def without_copies(graph: Graph, around: Around) -> Fixed:
    """Return the graph without its conversions: other calls take tensors as they lie. Raises NoFixedForm."""
    names = names_of(graph)
    lines = list[str]()
    dropped = 0
    for number, call in enumerate(graph.calls):
        first = graph.first_output(number)
        source = call.arguments[0]
        if call.operator in _CONVERSIONS and isinstance(source, Ref) and _only_converts(graph, number, source.value):
            names[first] = names[source.value]
            dropped += 1
            continue
        lines.append(line(graph, number, names))
    if not dropped:
        raise NoFixedForm("none of its calls only converts")
    live = ", ".join(names[v] for v in graph.live)
    lines.append(f"    return ({live}{',' if len(graph.live) == 1 else ''})")
    return Fixed(
        own={"without conversions": '"what computes takes tensors as they lie", call=fixed'},
        source="\n".join([signature(graph), "    aten = torch.ops.aten", *lines]),
        assumptions=("what reads the result takes it in any layout, and of the wider type",),
    )


_CONVERSIONS = frozenset({"aten::clone", "aten::contiguous", "aten::_to_copy"})


def _only_converts(graph: Graph, number: int, source: int) -> bool:
    """Return whether a call changes only layout or floating-point type, of what no later call writes in place."""
    before, after, memory = graph.specs[source].dtype, graph.calls[number].outputs[0].dtype, graph.memory
    floats = "float" in str(before) and "float" in str(after)
    written = {memory[v] for later in graph.calls[number + 1 :] for v in mutated(later)}
    return (before == after or floats) and not written & {memory[source], memory[graph.first_output(number)]}


FIX = Maker(without_copies, whole=True)
