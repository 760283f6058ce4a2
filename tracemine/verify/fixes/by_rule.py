"""Fixed forms of a finding's calls, by its cause: the rebuilt graph in, Python source out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tracemine.codegen.graph import Graph
from tracemine.verify.fixes.calls import Ways
from tracemine.verify.fixes.record import Around, Fixed


@dataclass(frozen=True, slots=True)
class Maker:
    """How a cause's fixed form is made of a graph. whole: of all of a fusion group; else of the finding's own calls
    alone, with those before them that `before` names (`Rebuilder.alone`).
    """

    made: Callable[[Graph, Around], Fixed]
    whole: bool = False
    before: Mapping[str, Collection[str]] = field(default_factory=dict)


class Cause(Protocol):
    """What verify asks of a cause."""

    @property
    def rule(self) -> str: ...

    @property
    def fix(self) -> Maker | Ways | None: ...

    @property
    def closed_by_graph(self) -> bool: ...


def fix_of(rule: str, causes: Sequence[Cause]) -> Maker | Ways | None:
    """Return how the fixed form of a rule's findings is made; None where it has none."""
    return next((cause.fix for cause in causes if cause.rule == rule), None)
