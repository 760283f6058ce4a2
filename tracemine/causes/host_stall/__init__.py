"""A host that is late with its launches for long.

facts.py  where it was meanwhile
"""

from tracemine.causes.cause import Cause
from tracemine.causes.host_stall.facts import FACTS

CAUSE = Cause(rule="host_stall", facts=FACTS)
