"""An RMSNorm as separate operators.

facts.py       what advice asks of it
norm_order.py  how norms and the residual sum follow each other
"""

from tracemine.causes.cause import Cause
from tracemine.causes.rmsnorm_unfused.facts import FACTS

CAUSE = Cause(rule="rmsnorm_unfused", facts=FACTS)
