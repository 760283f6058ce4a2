"""Work that gives the same in each step.

facts.py  which kind of work it is
fix.py    the calls, once before the step
"""

from tracemine.causes.cause import Cause
from tracemine.causes.loop_invariant.facts import facts

CAUSE = Cause(rule="loop_invariant", facts=facts, fix_at=f"{__name__}.fix:FIX")
