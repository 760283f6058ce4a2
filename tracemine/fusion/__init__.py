"""Fusion groups: what one kernel could do in place of several, from dataflow.

groups(flow)  → Groups: their nodes, the kernel each would be, bytes before and after, and what was refused
FusedKernel   what one kernel reads, computes and writes
"""

from tracemine.fusion.build import groups
from tracemine.fusion.kernel import FusedKernel, Unfused
from tracemine.fusion.op_cost import online_softmax, steps_of
from tracemine.fusion.record import REFUSALS, Groups, Refusal

__all__ = ["REFUSALS", "FusedKernel", "Groups", "Refusal", "Unfused", "groups", "online_softmax", "steps_of"]
