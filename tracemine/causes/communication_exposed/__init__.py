"""Communication that nothing overlaps.

estimate.py  what of it can hide behind other work
"""

from tracemine.causes.cause import Cause
from tracemine.causes.communication_exposed.estimate import estimate, facts

CAUSE = Cause(rule="communication_exposed", estimates=("overlap", estimate), facts=facts)
