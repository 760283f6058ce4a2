"""Causes of slowness, in reading order: a room each, named like the rule. A cause without Python is a rule alone.

attention_unfused  products and a softmax in place of fused attention
optimizer_unfused  an optimizer that updates tensor by tensor
"""

from __future__ import annotations

from tracemine.causes.attention_unfused import ATTENTION_UNFUSED
from tracemine.causes.cause import Cause

__all__ = ["CAUSES", "Cause"]

CAUSES: tuple[Cause, ...] = (ATTENTION_UNFUSED, Cause(rule="optimizer_unfused", part="optimizer"))
