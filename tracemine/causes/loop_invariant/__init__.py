"""Work that gives the same in each step.

columns.py   work that gives the same in every step
fix.py       the calls, once before the step
estimate.py  the work done once
"""

from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.causes.loop_invariant.columns import COLUMNS, KINDS
from tracemine.causes.loop_invariant.estimate import estimate

_FACTS = column_fact("invariant", "what work gives that is the same in every step", "invariant_kind", KINDS)
CAUSE = Cause(rule="loop_invariant", columns=COLUMNS, facts=_FACTS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
