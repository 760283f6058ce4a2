"""A norm in evaluation behind a convolution that could do its work.

columns.py   running statistics
estimate.py  folding by hand, or one kernel for what follows as well: what each saves
fix.py       the convolution, with the weight and bias that the norm makes of them
"""

from tracemine.causes.batch_norm_evaluated.columns import COLUMNS
from tracemine.causes.batch_norm_evaluated.estimate import FACTS, estimate
from tracemine.causes.cause import Cause

CAUSE = Cause(
    rule="batch_norm_evaluated", columns=COLUMNS, estimate=estimate, facts=FACTS, fix_at=f"{__name__}.fix:FIX"
)
