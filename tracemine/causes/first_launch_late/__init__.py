"""A host that works at a step's start, before it launches anything.

facts.py     what it is at there
estimate.py  the same work done ahead, by others
"""

from tracemine.causes.cause import Cause
from tracemine.causes.first_launch_late.estimate import estimate
from tracemine.causes.first_launch_late.facts import FACTS

CAUSE = Cause(rule="first_launch_late", estimate=estimate, facts=FACTS)
