"""A product with the activation behind it as the library's one call."""

from __future__ import annotations

from typing import Final

from tracemine.codegen.graph import Graph
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm
from tracemine.verify.library import find

_ACTIVATIONS: Final = ("aten::relu", "aten::relu_", "aten::gelu", "aten::clamp_min", "aten::clamp_min_")
_CALL: Final = "torch._addmm_activation"


def in_epilogue(graph: Graph, around: Around) -> Fixed:
    """Return the library's call. Raises NoFixedForm, such as for GELU by the error function."""
    found = find(graph, around.unread)
    replacement = found.replacement
    if replacement is None or _CALL not in replacement.text:
        raise NoFixedForm("; ".join(found.refused) or "the library's epilogue is another function")
    return Fixed(
        own={"epilogue": f'"{_CALL}", call=fixed'},
        source=replacement.text.replace("def library(", "def fixed(", 1),
        numbers=replacement.at,
        assumptions=replacement.assumptions,
    )


FIX = Maker(in_epilogue, before=dict.fromkeys(_ACTIVATIONS, ("aten::addmm",)))
