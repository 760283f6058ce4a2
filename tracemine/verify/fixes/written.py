"""Calls of a graph as lines of a fixed form, and what their arguments say."""

from __future__ import annotations

from collections.abc import Mapping

from tracemine.codegen.graph import Graph, LiteralArg, Scalar, Value, mutated
from tracemine.verify.repro.eager import arguments_text, number_text


def signature(graph: Graph, *others: str) -> str:
    """Return the first line of `fixed`: inputs and numbers as `eager` takes them, and others behind the inputs."""
    names = [*(i.name for i in graph.inputs), *others]
    return f"def fixed({', '.join([*names, *(['*'] if graph.scalars else []), *numbers(graph)])}):"


def numbers(graph: Graph) -> list[str]:
    """Return a graph's numbers, as a function takes them."""
    return [f"{s.name}={number_text(s.value)}" for s in graph.scalars]


def names_of(graph: Graph) -> dict[int, str]:
    """Return names of a graph's inputs; of what a call that writes in place returns: of what it wrote."""
    found = {k: i.name for k, i in enumerate(graph.inputs)}
    for number, call in enumerate(graph.calls):
        first = graph.first_output(number)
        written = mutated(call)
        if written:
            found |= {first + k: found.get(written[0], "") for k in range(len(call.outputs))}
    return found


def line(graph: Graph, number: int, names: dict[int, str]) -> str:
    """Return a call as a line of a function, of whatever layout what it reads has; adds the names of what it gives."""
    call, first = graph.calls[number], graph.first_output(number)
    targets = [f"t{first + k}" for k in range(len(call.outputs))]
    names.update(zip(range(first, first + len(targets)), targets, strict=True))
    name = call.operator.removeprefix("aten::")
    name, overload = ("reshape", "default") if name == "view" else (name, call.overload or "default")
    wanted = ", ".join(targets) + ("," if len(targets) == 1 and call.schema.outputs[0].endswith("[]") else "")
    text = f"aten.{name}.{overload}({arguments_text(call, [names.get(k, '') for k in range(len(graph.specs))])})"
    several = len(call.schema.outputs) > len(targets)
    if not targets:  # it writes in place, and gives nothing
        return f"    {text}"
    return f"    {wanted} = {text}" + (f"[:{len(targets)}]" if several and len(targets) > 1 else "[0]" * several)


def outputs_of(graph: Graph, number: int) -> range:
    """Return what a call gives."""
    first = graph.first_output(number)
    return range(first, first + len(graph.calls[number].outputs))


def producers(graph: Graph) -> dict[int, int]:
    """Return by value the number of the call that gives it; inputs are not there."""
    return {value: number for number in range(len(graph.calls)) for value in outputs_of(graph, number)}


def plain(value: Value) -> object:
    """Return a number or literal; of a number that is not recorded, and of tensors, words."""
    if isinstance(value, Scalar):
        return value.value if value.recorded else "not recorded"
    return value.value if isinstance(value, LiteralArg) else type(value).__name__


def flag(given: Mapping[str, Value], name: str) -> bool:
    """Return whether an argument is given and true."""
    value = given.get(name)
    return isinstance(value, LiteralArg) and bool(value.value)
