"""Loops over tensors as operators over lists of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from tracemine.codegen.graph import Graph, GraphCall, LiteralArg, Ref, Scalar, Value, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.lanes import steps_of
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.fixes.written import names_of, plain, signature
from tracemine.verify.repro.eager import number_text

TO_ONE = "what is kept of a mean and the weight of what is added, which are not recorded, are 1 together"
ONE_NUMBER = "numbers that are not recorded are the same for all tensors of the loop"

_TABLE = table_beside(__file__, "fix.toml")
# By what a loop calls for each tensor, the same for the list. {names} are the schema's: of a tensor the list of them.
_LISTS: Mapping[str, str] = _TABLE["lists"]
_USUAL = {"alpha": "1", "value": "1", "ord": "2"}
_ZEROS = frozenset({"aten::fill_.Scalar"})


def listed(graph: Graph, around: Around) -> Fixed:
    """Return a loop over tensors as operators over lists. Raises NoFixedForm."""
    steps = steps_of(graph)
    lines, results = list[str](), dict[int, str]()
    for number, calls in enumerate(steps):
        lines += [f"    {line}" for line in _list_call(graph, number, calls, results).split("; ")]
    if any(v not in results for v in graph.live):
        raise NoFixedForm("what a call of the loop gives is read elsewhere")
    live = ", ".join(results[v] for v in graph.live)
    lines.append(f"    return ({live}{',' if len(graph.live) == 1 else ''})")
    assumed = any(not s.recorded for s in graph.scalars)
    own, source = {"one list": '"operators over lists of tensors", call=fixed'}, "\n".join([signature(graph), *lines])
    averaged = None if live else _averaged(graph, steps)
    if averaged is not None:
        own["one pass"] = '"a weighted mean over lists of tensors", call=averaged'
        head = signature(graph).replace("def fixed(", "def averaged(", 1)
        source = f"{source}\n\n\n{head}\n    {averaged[0]}\n    return ()"
    return Fixed(
        own=own,
        source=source,
        numbers={} if averaged is None else averaged[1],
        assumptions=(ONE_NUMBER, *([TO_ONE] if averaged else [])) if assumed else (),
    )


def _averaged(graph: Graph, steps: Sequence[Sequence[tuple[int, GraphCall]]]) -> tuple[str, dict[str, float]] | None:
    """Return one pass in place of two, where each tensor is scaled and what is added makes it a weighted mean; and by
    name the numbers in it that are not recorded."""
    if [calls[0][1].label for calls in steps] != ["aten::mul_.Tensor", "aten::add_.Tensor"]:
        return None
    kept, weight = [call.given()["other"] for _, call in steps[0]], steps[1][0][1].given()["alpha"]
    share, unknown = _number(weight), [each for each in kept if _is_unknown(each)]
    if share is None or (not unknown and not math.isclose(_number(kept[0]) or 0.0, 1.0 - share, rel_tol=1e-6)):
        return None
    names = names_of(graph)
    both = [reads(call)[:2] for _, call in steps[1]]
    lists = (f"[{', '.join(names[v] for v in values)}]" for values in zip(*both, strict=True))
    given = weight.name if isinstance(weight, Scalar) else number_text(share)
    return f"torch._foreach_lerp_({', '.join(lists)}, {given})", {each.name: 1.0 - share for each in unknown}


def _is_unknown(value: Value) -> TypeGuard[Scalar]:
    return isinstance(value, Scalar) and not value.recorded


def _number(value: Value) -> float | None:
    known = value.value if isinstance(value, Scalar | LiteralArg) else None
    return float(known) if isinstance(known, int | float) else None


def _list_call(graph: Graph, number: int, calls: Sequence[tuple[int, GraphCall]], results: dict[int, str]) -> str:
    """Return one operator over lists, in place of equal calls."""
    _, first = calls[0]
    text = _LISTS.get(first.label)
    if text is None or (first.label in _ZEROS and plain(first.given()["value"]) != 0):
        raise NoFixedForm(f"no operator over lists is known for {first.label}")
    names = names_of(graph)
    words = dict[str, str](_USUAL)
    for place, argument in enumerate(first.schema.arguments):
        values = [call.arguments[place] for _, call in calls]
        word = _word(values, names)
        if word is not None:
            words[argument.name] = word
        elif values[0] is None and f"{{{argument.name}}}" in text and argument.name not in _USUAL:
            raise NoFixedForm(f"{first.label} is called without {argument.name}")
    if first.schema.mutates:
        return text.format_map(words)
    results |= {graph.first_output(at): f"made_{number}[{k}]" for k, (at, _) in enumerate(calls)}
    return f"made_{number} = {text.format_map(words)}"


def _word(values: Sequence[Value], names: Mapping[int, str]) -> str | None:
    """Return how an operator over lists takes what calls give for one argument; None where it is left as usual."""
    match values[0]:
        case Ref():
            return f"[{', '.join(names[v.value] for v in values if isinstance(v, Ref))}]"
        case Scalar(name=name):
            return name
        case LiteralArg(value=int() | float() as number):
            return number_text(number)
    return None


FIX = Maker(listed)
