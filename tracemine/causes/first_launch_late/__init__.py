"""A host that works at a step's start, before it launches anything.

estimate.py  what it is at there, and the same work done ahead, by others
"""

from tracemine.causes.cause import Cause
from tracemine.causes.first_launch_late.estimate import FACTS, estimate

CAUSE = Cause(rule="first_launch_late", estimate=estimate, facts=FACTS)
