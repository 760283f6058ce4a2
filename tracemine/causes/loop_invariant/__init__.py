"""Work that gives the same in each step.

fix.py  the calls, once before the step
"""

from tracemine.causes.cause import Cause

LOOP_INVARIANT = Cause(rule="loop_invariant", fix_at="tracemine.causes.loop_invariant.fix:FIX")
