"""What one aten operator computes an element, in the steps that the predictor knows."""

from __future__ import annotations

from tracemine.ops.facts import STEPS, base_name


def steps_of(op: str) -> tuple[str, ...]:
    """Return the steps of an operator, by its name with or without `aten::` and a trailing underscore.

    >>> steps_of("aten::gelu"), steps_of("aten::div_"), steps_of("add")
    (('simple', 'simple', 'erf'), ('divide',), ('simple',))
    """
    return STEPS.get(base_name(op), ("simple",))


def online_softmax(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a compiler makes of a group's softmax: one loop for maximum and sum, or two for scaled inputs.

    A maximum, an exponential and a sum of it are computed in one walk over the row, with a second exponential. Of a
    scaled input the compiler takes the maximum before it scales, and that is no longer the pattern which it merges.

    >>> online_softmax(("sum", "simple", "exp", "sum", "log"))
    ('softmax', 'log')
    >>> online_softmax(("scale", "softmax"))
    ('scale', 'sum', 'simple', 'exp', 'sum', 'divide')
    """
    for at in range(len(steps)):
        if steps[at : at + 4] == ("sum", "simple", "exp", "sum"):
            return (*steps[:at], "softmax", *steps[at + 4 :])
        if at and steps[at] == "softmax" and steps[at - 1] in ("scale", "divide"):
            return (*steps[:at], "sum", "simple", "exp", "sum", "divide", *steps[at + 1 :])
    return steps
