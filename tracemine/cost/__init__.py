"""What a change would save, always as a range, or the reason why that cannot be said.

one_kernel(…)    one kernel in place of a fusion group
fused(…)         one kernel in place of a chain of which only names and shapes are known
closed_gaps(…)   idle time of the device that can be won back
pinned(…)        a copy from pinned memory
"""

from tracemine.cost.copies import pinned
from tracemine.cost.fuse import Call, Tensor, fused
from tracemine.cost.gaps import REPLAY_FLOOR_NS, SLOWDOWNS, Slowdown, closed_gaps, measured_slowdown
from tracemine.cost.group import one_kernel
from tracemine.cost.ranges import NOTHING, Abstained, Estimate, Range, Traffic
from tracemine.fusion.kernel import Unfused

__all__ = [
    "NOTHING",
    "REPLAY_FLOOR_NS",
    "SLOWDOWNS",
    "Abstained",
    "Call",
    "Estimate",
    "Range",
    "Slowdown",
    "Tensor",
    "Traffic",
    "Unfused",
    "closed_gaps",
    "fused",
    "measured_slowdown",
    "one_kernel",
    "pinned",
]
