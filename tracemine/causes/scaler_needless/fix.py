"""Gradients that are never scaled."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.codegen.graph import Graph, reads
from tracemine.tables import table_beside
from tracemine.verify.fixes.by_rule import Maker
from tracemine.verify.fixes.record import Around, Fixed, NoFixedForm


def unscaled(graph: Graph, around: Around) -> Fixed:
    """Return gradients that are never scaled. Raises NoFixedForm.

    Both sides are asked for the gradients, and for whether one was infinite, at a scale of 1.
    """
    passes = [call for call in graph.calls if call.operator == _UNSCALE]
    if not passes or any(call.operator not in (_UNSCALE, *_OF_SCALES) for call in graph.calls):
        raise NoFixedForm(
            "it does more than take a scale off gradients: the scale's next value is not one that is read"
        )
    gradients = [v for call in passes for v in reads(call)[:-2]]
    scale = _scale(graph, gradients)
    flags = {graph.memory[reads(call)[-2]] for call in passes}
    if any(v not in around.unread and graph.memory[v] not in flags for v in graph.live):
        raise NoFixedForm("more is read than whether a gradient was infinite")
    return Fixed(
        own={"no scaler": '"nothing is left in the step", call=fixed, behind=(by_one, as_they_are)'},
        source=f"SCALE, GRADIENTS = {scale}, {gradients}  # inputs\n{_NOT_SCALED.format(count=len(graph.live))}",
        assumptions=("no gradient is infinite: a step that a scaler would leave out is made",),
    )


def _scale(graph: Graph, gradients: Sequence[int]) -> int:
    """Return the one input that is no gradient: a scalar in float32. Raises NoFixedForm."""
    scales = [k for k in range(len(graph.inputs)) if k not in gradients]
    specs = {(graph.specs[k].shape, graph.specs[k].dtype) for k in scales}
    if len(scales) != 1 or specs != {((), "float32")} or max(gradients, default=0) >= len(graph.inputs):
        raise NoFixedForm("it is not one scale that is taken off gradients")
    return scales[0]


_UNSCALE = "aten::_amp_foreach_non_finite_check_and_unscale_"


_OF_SCALES = frozenset(
    {"aten::_to_copy", "aten::reciprocal", "aten::full", "aten::clone", "aten::fill_", "aten::zero_"}
)


_TEXTS = table_beside(__file__, "fix.toml")
_NOT_SCALED: str = _TEXTS["not_scaled"]


FIX = Maker(unscaled)
