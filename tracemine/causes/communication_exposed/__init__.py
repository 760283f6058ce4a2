"""Communication that nothing overlaps.

estimate.py  what of it can hide behind other work
"""

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed.estimate import FACTS, estimate

CAUSE = Cause(rule="communication_exposed", savings={"overlap": estimate}, facts=FACTS)
