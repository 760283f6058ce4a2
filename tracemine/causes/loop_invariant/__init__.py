"""Work that gives the same in each step.

fix.py  the calls, once before the step
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="loop_invariant", fix_at=f"{__name__}.fix:FIX")
