"""Causes of slowness, in reading order: a room each, named like the rule. A cause without Python is a rule alone.

attention_unfused  products and a softmax in place of fused attention
optimizer_unfused  an optimizer that updates tensor by tensor
"""

from __future__ import annotations

from tracemine.causes.attention_unfused import ATTENTION_UNFUSED
from tracemine.causes.cause import Cause

__all__ = ["CAUSES", "Cause", "cause_of"]

CAUSES: tuple[Cause, ...] = (ATTENTION_UNFUSED, Cause(rule="optimizer_unfused", part="optimizer"))


def cause_of(rule: str) -> Cause:
    """Return the cause of a rule's id; one of which Python knows nothing where no room is for it.

    >>> cause_of("attention_unfused").part, cause_of("no_such_rule").part
    ('attention', None)
    """
    return next((cause for cause in CAUSES if cause.rule == rule), Cause(rule=rule))
