"""Rows that are added up where indices say, in other ways: sorted first, by one product, or by another library call.

A kernel that adds up in a fixed order would have every element look at all rows, so none is generated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref
from tracemine.tables import table_beside
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import flag, line, names_of, plain, signature

_EMBEDDING: Final = "aten::embedding_dense_backward"
_ADDS: Final = frozenset({"aten::index_add", "aten::scatter_add"})
_FEW, _MOST_ONES = 4096, 1 << 28  # sums of one product, and elements of its ones and zeros
_SAYS: Final[Mapping[str, str]] = {
    "sorted": "rows sorted by index, and neighbours added up: the same bits each time",
    "product": "one product with ones and zeros",
    "atomics": "index_add_ into float32",
    "scattered": "scatter_add_ into float32",
}


def added_up(graph: Graph, around: Around) -> Fixed:
    """Return the calls with other ways to add up where indices say. Raises NoFixedForm."""
    sums = {number: call for number, call in enumerate(graph.calls) if _adds(call)}
    if not sums:
        raise NoFixedForm("nothing is added up where indices say")
    most = max(_count(graph, call) for call in sums.values())
    rows = max(graph.specs[_index(call)].elements for call in sums.values())
    ways = [way for way in _SAYS if way != "product" or (most <= _FEW and most * rows <= _MOST_ONES)]
    parts = [_HELPERS, *(_function(graph, sums, way) for way in ways)]
    return Fixed(own={way: f'"{_SAYS[way]}", call=by_{way}' for way in ways}, source="\n\n\n".join(parts))


def _adds(call: GraphCall) -> bool:
    return call.operator == _EMBEDDING or call.operator.removesuffix("_") in _ADDS


def _index(call: GraphCall) -> int:
    given = call.given()
    index = given.get("indices", given.get("index"))
    if not isinstance(index, Ref):
        raise NoFixedForm("what indices it adds up by is not known")
    return index.value


def _count(graph: Graph, call: GraphCall) -> int:
    """Return how many sums there are. Raises NoFixedForm where they are no rows along the first axis."""
    given, index = call.given(), graph.specs[_index(call)]
    if call.operator == _EMBEDDING:
        if flag(given, "scale_grad_by_freq"):
            raise NoFixedForm("it divides by how often an index comes")
        return call.outputs[0].shape[0]
    into, alpha, strides = given["self"], given.get("alpha"), index.strides or ()
    factor = alpha is not None and plain(alpha) != 1
    if not isinstance(into, Ref) or factor or plain(given["dim"]) != 0:
        raise NoFixedForm("it adds up along another axis than the first, or with a factor")
    if any(size > 1 and stride for size, stride in zip(index.shape[1:], strides[1:], strict=True)):
        raise NoFixedForm("each element has an index of its own")
    if len(index.shape) > 1 and index.shape[1:] != graph.specs[into.value].shape[1:]:
        raise NoFixedForm("it adds up parts of rows")
    return graph.specs[into.value].shape[0]


_TEXTS = table_beside(__file__, "texts.toml")
_HELPERS: str = _TEXTS["helpers"]


def _function(graph: Graph, sums: Mapping[int, GraphCall], way: str) -> str:
    """Return the calls, in which another way adds up."""
    names, lines = names_of(graph), list[str]()
    for number in range(len(graph.calls)):
        lines += _summed(graph, number, way, names) if number in sums else [line(graph, number, names)]
    live = ", ".join(names[v] for v in graph.live)
    head = signature(graph).replace("def fixed(", f"def by_{way}(", 1)
    return "\n".join([head, "    aten = torch.ops.aten", *lines, f"    return ({live}{',' * bool(graph.live)})"])


def _summed(graph: Graph, number: int, way: str, names: dict[int, str]) -> list[str]:
    """Return a call's lines; adds the name of what it gives."""
    call, first = graph.calls[number], graph.first_output(number)
    given, count = call.given(), _count(graph, call)
    rows = given.get("grad_output", given.get("source", given.get("src")))
    if not isinstance(rows, Ref):
        raise NoFixedForm("it adds up a number")
    sums, spec = f"sums_{number}", graph.specs[rows.value]
    lines = [f"    {sums} = {way}_sums(*rows_of({names[_index(call)]}, {names[rows.value]}), {count})"]
    if call.operator == _EMBEDDING:
        names[first] = f"t{first}"
        lines.append(f"    t{first} = {sums}.to(torch.{spec.dtype})")
        padding = given.get("padding_idx")
        if isinstance(padding, LiteralArg) and isinstance(padding.value, int) and padding.value >= 0:
            lines.append(f"    t{first}.select(0, {padding.value}).zero_()")
        return lines
    into = given["self"]
    assert isinstance(into, Ref)  # noqa: S101 - `_count` has asked
    target, own = names[into.value], graph.specs[into.value]
    added = f"{sums}.reshape({own.shape!r}).to(torch.{own.dtype})"
    if call.operator.endswith("_"):
        return [*lines, f"    {target}.add_({added})"]
    names[first] = f"t{first}"
    return [*lines, f"    t{first} = {target} + {added}"]


FIX: Final = Maker(added_up, whole=True)
