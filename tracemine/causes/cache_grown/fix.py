"""A cache into which new rows are written, in place of joining."""

from __future__ import annotations

from tracemine.codegen.graph import Graph, LiteralArg, Refs
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm


def in_place_cache(graph: Graph, around: Around) -> Fixed:
    """Return caches at their largest length, into which the new rows are written. Raises NoFixedForm."""
    pairs, results = list[str](), dict[int, str]()
    for number, call in enumerate(graph.calls):
        tensors, axis = call.arguments[0], call.arguments[1]
        if call.operator != "aten::cat" or not isinstance(tensors, Refs) or not isinstance(axis, LiteralArg):
            raise NoFixedForm("it does more than join")
        places = [v for v in tensors.values if v is not None]
        if len(places) != 2 or max(places) >= len(graph.inputs):
            raise NoFixedForm("it joins other than a cache and new rows")
        pairs.append(f"({places[0]}, {places[1]}, {axis.value})")
        results[graph.first_output(number)] = f"caches[{number}]"
    if set(graph.live) != set(results):
        raise NoFixedForm("what it joins is not what is read")
    source = f"""
JOINED = [{", ".join(pairs)}]  # the cache, its new rows, the axis


def longest(inputs):
    caches = []
    for kept, new, axis in JOINED:
        shape = [*inputs[kept].shape]
        shape[axis] += inputs[new].shape[axis]
        cache = inputs[kept].new_empty(shape)
        cache.narrow(axis, 0, inputs[kept].shape[axis]).copy_(inputs[kept])
        caches.append(cache)
    places = [torch.arange(inputs[k].shape[a], inputs[k].shape[a] + inputs[n].shape[a], device=inputs[n].device)
              for k, n, a in JOINED]
    return [*caches, *places, *(inputs[new] for _, new, _ in JOINED)]


def fixed(*given):
    count = len(JOINED)
    caches, places, rows = given[:count], given[count : 2 * count], given[2 * count :]
    for cache, place, new, (_, _, axis) in zip(caches, places, rows, JOINED):
        cache.index_copy_(axis, place, new)
    return ({", ".join(results[v] for v in graph.live)},)
"""
    return Fixed(
        own={"index_copy_": '"new rows written into a cache of the largest length", longest, call=fixed'},
        source=source.strip(),
        assumptions=("the largest length is known, and attention masks what is behind the last token",),
    )


FIX = Maker(in_place_cache)
