"""Logits over a vocabulary that are written to memory for a loss alone, or for rows that nothing reads.

columns.py   heads, and all that their logits go through
estimate.py  head and loss in strips, or of fewer rows
fix.py       the same, as verify tries it
"""

from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.causes.logits_written.columns import COLUMNS, USES
from tracemine.causes.logits_written.estimate import estimate

_FACTS = column_fact("logits_for", "what logits are for", "logits_use", USES)
CAUSE = Cause(rule="logits_written", columns=COLUMNS, estimate=estimate, facts=_FACTS, fix_at=f"{__name__}.fix:FIX")
