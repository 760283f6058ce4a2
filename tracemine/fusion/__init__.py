"""Fusion groups: what one kernel could do in place of several, from who reads what."""

from tracemine.fusion.kernel import REDUCTIONS, FusedKernel
from tracemine.fusion.steps import online_softmax, steps_of

__all__ = ["REDUCTIONS", "FusedKernel", "online_softmax", "steps_of"]
