"""Work that gives the same in each step.

columns.py   work that gives the same in every step
facts.py     which kind of work it is
fix.py       the calls, once before the step
estimate.py  the work done once
"""

from tracemine.causes.cause import Cause
from tracemine.causes.loop_invariant.columns import COLUMNS
from tracemine.causes.loop_invariant.estimate import estimate
from tracemine.causes.loop_invariant.facts import FACTS

CAUSE = Cause(rule="loop_invariant", columns=COLUMNS, facts=FACTS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
