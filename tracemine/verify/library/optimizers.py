"""An unfused step of an optimizer, over lists or a parameter at a time, as one fused call over the same state.

The fused call takes other numbers than the graph: a learning rate and betas, where the graph has what follows from
them. The table says what each number of the graph is in their terms, so graph and call are tried at the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tracemine.codegen.graph import Scalar
from tracemine.validate.record import Mutant
from tracemine.verify.library.pattern import Binding, names, parse
from tracemine.verify.library.record import Found, Replacement
from tracemine.verify.library.source import head, substituted
from tracemine.verify.library.table import Row, number, table
from tracemine.verify.library.terms import INPUT, Terms
from tracemine.verify.repro.eager import number_text

_DENSE = "the call takes tensors that lie densely, all of a parameter in the same way"
LET_GO = "what it computes on the way is let go of: it has no known consumer"
_NEAR = 1e-5  # numbers are recorded in full, but what they follow from went through a subtraction


_Step = Binding  # the step of one parameter; `tensors`: which input each name is


def find(terms: Terms, unread: Collection[int] = ()) -> Found:
    """Return the fused call that does what a graph writes in place, or why there is none."""
    refused: list[str] = []
    for row in table().values():
        if row.roots:
            found = _found(row, terms, unread)
            if isinstance(found, Replacement):
                return Found(replacement=found)
            refused += [f"{row.title}: {found}"] if found else []
    return Found(refused=tuple(refused) or ("what it writes in place is no step of an optimizer",))


def _scalars(steps: Sequence[_Step]) -> list[tuple[str, Scalar]]:
    """Return the graph's numbers by the table's names, step after step."""
    return [named for step in steps for named in step.scalars.items()]


def _positive(row: Row, steps: Sequence[_Step]) -> frozenset[int]:
    """Return the inputs that hold no negative number."""
    return frozenset(step.tensors[name] for step in steps for name in row.positive)


def _found(row: Row, terms: Terms, unread: Collection[int]) -> Replacement | str:
    """Return a row's replacement; why it is none, or "" where the pattern does not even begin to fit."""
    steps = [step for value in terms.written if (step := _step(row, terms, value)) is not None]
    if not steps:
        return ""
    refused = _refused(row, terms, steps, unread)
    if refused is not None:
        return refused
    numbers = _numbers(row, steps)
    if isinstance(numbers, str):
        return numbers
    known, told = numbers
    scalars = _scalars(steps)
    if {s.name for s in terms.graph.scalars} - {s.name for _, s in scalars}:
        return "it takes numbers that the call does not"
    unknown = any(not s.recorded for _, s in scalars)
    return Replacement(
        call=row.forms[0].call.partition("(")[0],
        says=_says(row, known, told),
        text=_text(row, row.forms[0].call, terms, steps, known),
        eager_calls=0,
        numbers=known,
        comes_to={s.name: row.instead[name] for name, s in scalars},
        positive=_positive(row, steps),
        at={s.name: number(row.instead[name], known) for name, s in scalars},
        assumptions=tuple(_assumptions(row, unknown, not set(unread).isdisjoint(terms.graph.live))),
        differs={**row.differs, **({"gaps": _DENSE} if row.dense else {})},
        mutants=tuple(_mutants(row, terms, steps, known)),
    )


def _refused(row: Row, terms: Terms, steps: Sequence[_Step], unread: Collection[int]) -> str | None:
    """Return why the fused call cannot take these steps; None where it can."""
    covered = {value for step in steps for name, value in step.tensors.items() if name in row.roots}
    if covered != set(terms.written) or len(covered) != len(row.roots) * len(steps):
        return "it writes more than the step's parameters and state"
    if set(terms.graph.live) - set(unread) - set(terms.graph.written):
        return "what it computes on the way is wanted elsewhere"
    if len({terms.graph.inputs[v].spec.dtype for step in steps for v in step.tensors.values()}) > 1:
        return "parameters, gradients and state have several dtypes"
    return _DENSE if row.dense and not all(_alike(terms, step) for step in steps) else None


def _step(row: Row, terms: Terms, value: int) -> _Step | None:
    """Return the step whose parameter is an input; None where it is none's."""
    pattern = {name: row.pattern(text) for name, text in row.roots.items()}
    for bound in pattern["p"].at(terms, terms.written[value]):
        if bound.tensors.get("p") != _input(terms, value) or not _of_inputs(terms, bound):
            continue
        places = {name: terms.terms[k].output for name, k in bound.tensors.items()}
        rest = [name for name in row.roots if name != "p"]
        same = (next(pattern[n].at(terms, terms.written.get(places[n], -1), bound), None) for n in rest)
        if all(places[n] in terms.written for n in rest) and all(b is not None for b in same):
            return replace(bound, tensors=places)
    return None


def _alike(terms: Terms, step: _Step) -> bool:
    """Return whether all tensors of a parameter lie densely, in one order. The fused kernels walk memory, not axes."""
    specs = [terms.graph.inputs[v].spec for v in step.tensors.values()]
    shape, strides = specs[0].shape, specs[0].strides or ()
    placed = sorted((s, n) for s, n in zip(strides, shape, strict=True) if n > 1)
    dense = all(stride == prod(n for _, n in placed[:k]) for k, (stride, _) in enumerate(placed))
    return dense and len({(spec.shape, spec.strides) for spec in specs}) == 1


def _input(terms: Terms, value: int) -> int:
    return next(k for k, t in enumerate(terms.terms) if t.operator == INPUT and t.output == value)


def _of_inputs(terms: Terms, bound: Binding) -> bool:
    """Return whether every tensor is an input as it stands, no two the same, none in another type on the way."""
    found = list(bound.tensors.values())
    plain = all(terms.terms[k].operator == INPUT for k in found) and len(set(found)) == len(found)
    return plain and all(set(seen) == {bound.tensors[name]} for name, seen in bound.seen.items())


def _numbers(row: Row, steps: Sequence[_Step]) -> tuple[dict[str, float], set[str]] | str:
    """Return the numbers that the call takes, and which of them the trace tells; a text where it contradicts them."""
    recorded: dict[str, float] = {}
    for step in steps:
        for name, scalar in step.scalars.items():
            if scalar.recorded and recorded.setdefault(name, scalar.value) != scalar.value:
                return "parameters take steps with several numbers"
    known, told = _solved(row, recorded)
    try:
        comes_to = {name: number(way, known) for name, way in row.instead.items()}
    except (ArithmeticError, ValueError):
        return "its numbers are not those of such a step"
    for name, value in recorded.items():
        if abs(comes_to[name] - value) > _NEAR * max(abs(value), 1e-12):
            return "its numbers are not those of such a step"
    return known, told


def _solved(row: Row, recorded: Mapping[str, float]) -> tuple[dict[str, float], set[str]]:
    """Return the numbers that the call takes: solved from those recorded, the others as the row usually has them."""
    found: dict[str, float] = {}
    told: set[str] = set()
    for name, otherwise in row.otherwise.items():
        found[name] = otherwise
        for way in row.solve[name]:
            try:
                value = number(way, {**recorded, **found})
            except (KeyError, ArithmeticError, ValueError):
                continue
            found[name] = round(value) if name == "step" else round(value, 12)
            told |= {name} if names(parse(way)) <= recorded.keys() | told else set()
            break
    return found, told


def _text(row: Row, call: str, terms: Terms, steps: Sequence[_Step], known: Mapping[str, float]) -> str:
    graph = terms.graph
    listed = {
        name: f"[{', '.join(graph.inputs[step.tensors[name]].name for step in steps)}]" for name in steps[0].tensors
    }
    lines = []
    if "{steps}" in call:
        first = graph.inputs[steps[0].tensors["p"]].name
        lines += [
            f"steps = _steps({first}.device, step, {len(steps)})",
            "torch._foreach_mul_(steps, 1.0)  # in place of counting the step: as much work, and always the same step",
        ]
    lines.append(call.format(**listed, steps="steps"))
    lines.append(_given(terms))
    text = "\n".join([head(graph, known), *(f"    {line}" for line in lines)])
    return f"{_STEPS}\n\n\n{text}" if "{steps}" in call else text


_STEPS = """_STEPS = {}


def _steps(device, step, count):  # where the fused call keeps them: on the device, a number a parameter
    if (device, step, count) not in _STEPS:
        _STEPS[device, step, count] = [torch.full((), float(step), device=device) for _ in range(count)]
    return _STEPS[device, step, count]"""


def _given(terms: Terms) -> str:
    """Return what it returns: the live values, which are inputs, and None for what is let go of."""
    inputs = {_input(terms, v): e.name for v, e in enumerate(terms.graph.inputs)}
    final = {k: terms.graph.inputs[v].name for v, k in terms.written.items()}
    given = ["None" if k is None else final.get(k, inputs.get(k, "None")) for k in terms.live]
    return f"return ({', '.join(given)}{',' if len(given) == 1 else ''})"


def _says(row: Row, known: Mapping[str, float], told: Collection[str]) -> str:
    """Return how a user comes to make the call: numbers that the trace tells as they are, the others by name."""
    form = row.forms[0]
    return substituted(form.shown or form.call, {name: number_text(known[name]) for name in told})


def _assumptions(row: Row, unknown: bool, lets_go: bool) -> Iterator[str]:
    yield from (text for what, text in row.assumes.items() if what in row.forms[0].call)
    if unknown:
        yield f"numbers that are not recorded are those of {row.title}"
    if lets_go:
        yield LET_GO
    if "{steps}" in row.forms[0].call:
        yield "the optimizer keeps its count of steps on the device, as fused=True does"


def _mutants(
    row: Row, terms: Terms, steps: Sequence[_Step], known: Mapping[str, float]
) -> Iterator[tuple[Mutant, str]]:
    for way in row.wrong:
        call = row.forms[0].call.replace(way.text, way.becomes, 1)
        if call != row.forms[0].call:
            name = f"{way.text.strip(', ')} becomes {way.becomes.strip(', ')}"
            yield Mutant(name, call), _text(row, call, terms, steps, known)
