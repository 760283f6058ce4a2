"""A device that waits while memory is allocated or freed.

facts.py  whether the allocator keeps what is freed
"""

from tracemine.causes.allocation_stall.facts import FACTS
from tracemine.causes.cause import Cause

CAUSE = Cause(rule="allocation_stall", facts=FACTS)
