"""What a change would save, always as a range, or the reason why that cannot be said.

one_kernel(…)    one kernel in place of a fusion group
fused_run(…)     one kernel in place of a run of neighbours of which nobody knows what they read
closed_gaps(…)   idle time of the device that can be won back
pinned(…)        a copy from pinned memory
"""

from tracemine.cost.copies import pinned
from tracemine.cost.gaps import REPLAY_FLOOR_NS, SLOWDOWNS, Slowdown, closed_gaps, fitted_slowdown, with_launches
from tracemine.cost.group import one_kernel
from tracemine.cost.ranges import NOTHING, Abstained, Estimate, Range, Traffic
from tracemine.cost.run import Neighbour, fused_run
from tracemine.fusion.kernel import Unfused

__all__ = [
    "NOTHING",
    "REPLAY_FLOOR_NS",
    "SLOWDOWNS",
    "Abstained",
    "Estimate",
    "Neighbour",
    "Range",
    "Slowdown",
    "Traffic",
    "Unfused",
    "closed_gaps",
    "fitted_slowdown",
    "fused_run",
    "one_kernel",
    "pinned",
    "with_launches",
]
