"""Logits over a vocabulary that are written to memory for a loss alone, or for rows that nothing reads.

columns.py   heads, and all that their logits go through
facts.py     what the logits are for
estimate.py  head and loss in strips, or of fewer rows
fix.py       the same, as verify tries it
"""

from tracemine.causes.cause import Cause
from tracemine.causes.logits_written.columns import COLUMNS
from tracemine.causes.logits_written.estimate import estimate
from tracemine.causes.logits_written.facts import FACTS

CAUSE = Cause(rule="logits_written", columns=COLUMNS, estimate=estimate, facts=FACTS, fix_at=f"{__name__}.fix:FIX")
