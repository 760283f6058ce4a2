"""Fixed forms of a finding's calls, by its rule: the rebuilt graph in, Python source out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from tracemine.codegen.graph import Graph
from tracemine.verify.fixes.attention import attended
from tracemine.verify.fixes.copies import contiguous, without_copies
from tracemine.verify.fixes.folding import BEFORE_NORM, folded
from tracemine.verify.fixes.lists import listed
from tracemine.verify.fixes.record import NOTHING_KNOWN, Around, Fixed
from tracemine.verify.fixes.removed import let_go, once, unscaled
from tracemine.verify.fixes.sorting import BEFORE_SORT, ordered
from tracemine.verify.fixes.tables import in_place_cache, one_table
from tracemine.verify.fixes.turns import batched


@dataclass(frozen=True, slots=True)
class Maker:
    """How a rule's fixed form is made of a graph. whole: of all of a fusion group; else of the finding's own calls
    alone, with those before them that `before` names (`Rebuilder.alone`).
    """

    made: Callable[[Graph, Around], Fixed]
    whole: bool = False
    before: Mapping[str, Collection[str]] = field(default_factory=dict)


MAKERS: Mapping[str, Maker] = {
    "attention_unfused": Maker(attended, whole=True),
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


def fixed_graph(rule: str, graph: Graph, around: Around = NOTHING_KNOWN) -> Fixed:
    """Return the fixed form of a rule's finding. Raises NoFixedForm with the reason."""
    return MAKERS[rule].made(graph, around)
