"""A copy between host and device from or to pageable memory.

estimate.py  the same copy with pinned memory, at best ahead of the step that needs it
"""

from tracemine.causes.cause import Cause
from tracemine.causes.pageable_copy.estimate import FACTS, estimate

CAUSE = Cause(rule="pageable_copy", savings={"pin_memory": estimate}, facts=FACTS)
