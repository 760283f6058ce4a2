"""Fixed forms of a finding's calls, by its cause: the rebuilt graph in, Python source out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tracemine.codegen.graph import Graph
from tracemine.verify.fixes.copies import contiguous, without_copies
from tracemine.verify.fixes.folding import BEFORE_NORM, folded
from tracemine.verify.fixes.lists import listed
from tracemine.verify.fixes.record import Around, Fixed
from tracemine.verify.fixes.removed import let_go, once, unscaled
from tracemine.verify.fixes.sorting import BEFORE_SORT, ordered
from tracemine.verify.fixes.tables import in_place_cache, one_table
from tracemine.verify.fixes.turns import batched


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
    def fix(self) -> Maker | None: ...


MAKERS: Mapping[str, Maker] = {
    "batch_norm_evaluated": Maker(folded, before=BEFORE_NORM),
    "cache_grown": Maker(in_place_cache),
    "conversion_pair": Maker(without_copies, whole=True),
    "embedding_bags_apart": Maker(one_table),
    "expert_sort": Maker(ordered, before=BEFORE_SORT),
    "gradient_zeroing": Maker(let_go),
    "layout_leak": Maker(contiguous, whole=True),
    "loop_invariant": Maker(lambda graph, around: once(graph, replace(around, remains=False))),
    "parameter_loop": Maker(listed),
    "scaler_needless": Maker(unscaled),
    "small_products_apart": Maker(batched),
    "weight_cast": Maker(once),
}


def maker_of(rule: str, causes: Sequence[Cause]) -> Maker | None:
    """Return how the fixed form of a rule's findings is made; None where it has none."""
    own = next((cause.fix for cause in causes if cause.rule == rule), None)
    return own or MAKERS.get(rule)
