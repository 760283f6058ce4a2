"""What derivatives.toml says: how autograd's nodes compute, and which of their operators takes what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct

from tracemine.tables import table_beside

GRADIENT, RESULT = "grad", "result"


class GradientFormula(Struct, frozen=True):
    """One way to compute one gradient: operators one after the other, with what each takes."""

    argument: str  # whose gradient it is
    calls: tuple[tuple[str, tuple[str, ...]], ...]  # none: the node's own gradient is handed on


class Derivatives(Struct, frozen=True):
    """See derivatives.toml for what each means."""

    formulas: dict[str, tuple[tuple[GradientFormula, ...], ...]]  # by node: by argument the ways
    results: dict[str, int]


@cache
def derivatives() -> Derivatives:
    """Return the formulas, read once.

    >>> [part.calls for part in derivatives().formulas["Bmm"][1]]
    [(('transpose', ('mat2',)), ('bmm', ('grad', '#1')))]
    """
    data = table_beside(__file__, "derivatives.toml")
    return Derivatives(
        formulas={
            kind: tuple(tuple(_part(argument, text) for text in ways) for argument, ways in parts.items())
            for kind, parts in data["formulas"].items()
        },
        results=data["results"],
    )


def _part(argument: str, text: str) -> GradientFormula:
    calls = [call.split() for call in text.split(",") if call.strip()]
    return GradientFormula(argument, tuple((name, tuple(sources)) for name, *sources in calls))


def programs(
    kind: str, names: Sequence[str], arguments: Mapping[str, object]
) -> Iterator[list[tuple[GradientFormula, int]]]:
    """Yield every way in which a node of this kind can run operators of these names: its parts, and where each begins.

    arguments: those of the forward operator that are tensors.

    >>> [[part.argument for part, _ in found] for found in programs("Mul", ["mul"], {"self": 0, "other": 0})]
    [['other'], ['self'], ['self']]
    """
    choices = [[way for way in ways if way.argument in arguments] for ways in derivatives().formulas.get(kind, ())]

    def parts(number: int, at: int) -> Iterator[list[tuple[GradientFormula, int]]]:
        if number == len(choices):
            if at == len(names):
                yield []
            return
        for way in choices[number]:
            wanted = [name for name, _ in way.calls]
            if list(names[at : at + len(wanted)]) == wanted:
                for rest in parts(number + 1, at + len(wanted)):
                    yield [(way, at), *rest]
        if all(way.calls for way in choices[number]):  # it is not needed
            yield from parts(number + 1, at)

    if any(choices):
        yield from parts(0, 0)
