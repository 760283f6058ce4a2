"""Tokens sorted by their expert: keys of as many bits as there are experts, or counting in place of sorting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tracemine.codegen.graph import Graph, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import flag, line, names_of, outputs_of, plain, producers, signature

_CHOSEN = frozenset({"aten::max", "aten::min", "aten::argmax", "aten::argmin", "aten::topk"})
_PASSED = frozenset({"aten::_to_copy"})
BEFORE_SORT: Mapping[str, Collection[str]] = {"aten::sort": _CHOSEN | _PASSED, **dict.fromkeys(_PASSED, _CHOSEN)}
_VIEWS = frozenset({"aten::view", "aten::reshape", "aten::_unsafe_view", "aten::squeeze", "aten::unsqueeze"})
_MOST_OF_8_BITS, _MOST_OF_16_BITS = 1 << 8, 1 << 15
_LARGEST_COUNT = 1 << 28  # numbers that counting lays out


def ordered(graph: Graph, around: Around) -> Fixed:
    """Return the same order by narrow keys, and by counting. Raises NoFixedForm."""
    sorts = [n for n, call in enumerate(graph.calls) if call.operator == "aten::sort"]
    again = {n for n in sorts if any(reads(graph.calls[n])[0] == graph.first_output(m) + 1 for m in sorts if m < n)}
    _check_rising(graph, sorts)
    experts = max((_experts(graph, number) for number in sorts if number not in again), default=0)
    if not sorts or not experts or experts > _MOST_OF_16_BITS:
        raise NoFixedForm("how many experts are sorted by is not seen")
    kind = "uint8" if experts <= _MOST_OF_8_BITS else "int16"
    ways = {"narrow": f"keys of {'8' if kind == 'uint8' else '16'} bits"}
    parts = [_HELPERS, _function(graph, around.unread, again, "narrow", f"torch.{kind}")]
    if experts * graph.specs[reads(graph.calls[sorts[0]])[0]].shape[0] <= _LARGEST_COUNT:
        ways["counted"] = "experts counted in place of sorting"
        parts.append(_function(graph, around.unread, again, "counted", str(experts)))
    return Fixed(
        own={name: f'"{says}", call=by_{name}' for name, says in ways.items()},
        source="\n\n\n".join(parts),
        assumptions=("ids are those of experts that were chosen from: equal ones keep their order",),
    )


def _check_rising(graph: Graph, sorts: Sequence[int]) -> None:
    """Raise NoFixedForm where a call sorts other than one row, or falling."""
    for call in (graph.calls[number] for number in sorts):
        if len(graph.specs[reads(call)[0]].shape) != 1 or flag(call.given(), "descending"):
            raise NoFixedForm("it sorts other than one row of ids, rising")


_TEXTS = table_beside(__file__, "fix.toml")
_HELPERS: str = _TEXTS["helpers"]


def _experts(graph: Graph, number: int) -> int:
    """Return how many there are to choose from, where what a sort takes was chosen within the graph; else 0."""
    value = reads(graph.calls[number])[0]
    by = producers(graph)
    while (at := by.get(value)) is not None and graph.calls[at].operator in _PASSED | _VIEWS:
        value = reads(graph.calls[at])[0]
    if at is None or graph.calls[at].operator not in _CHOSEN:
        return 0
    call, shape = graph.calls[at], graph.specs[reads(graph.calls[at])[0]].shape
    axis = plain(call.given().get("dim"))
    ids = value == outputs_of(graph, at)[-1] and str(graph.specs[value].dtype).startswith("int")
    return shape[axis] if isinstance(axis, int) and ids and -len(shape) <= axis < len(shape) else 0


def _function(graph: Graph, unread: Collection[int], again: Collection[int], way: str, given: str) -> str:
    """Return the calls, in which another way gives the order. given: that it takes besides the keys."""
    names, lines = names_of(graph), list[str]()
    read = {v for n, call in enumerate(graph.calls) if n not in again for v in reads(call)}
    wanted = read | ({*graph.live} - set(unread))
    for number, call in enumerate(graph.calls):
        if call.operator != "aten::sort":
            lines.append(line(graph, number, names))
            continue
        values, order = outputs_of(graph, number)
        keys = names[reads(call)[0]]
        names[values], names[order] = f"t{values}" if values in wanted else "None", f"t{order}"
        if number in again:
            lines.append(f"    t{order} = places_of_{keys}()")
        else:
            lines.append(f"    order_of_t{order}, places_of_t{order} = {way}({keys}, {given})")
        if number not in again and {values, order} & wanted:
            lines.append(f"    t{order} = order_of_t{order}()")
        if values in wanted:
            rising = f"torch.arange({graph.specs[values].shape[0]}, device={graph.inputs[0].name}.device)"
            lines.append(f"    t{values} = {rising if number in again else f'{keys}.gather(0, t{order})'}")
    live = ", ".join(names[v] if v in wanted else "None" for v in graph.live)
    head = signature(graph).replace("def fixed(", f"def by_{way}(", 1)
    return "\n".join([head, "    aten = torch.ops.aten", *lines, f"    return ({live},)"])


FIX = Maker(ordered, before=BEFORE_SORT)
