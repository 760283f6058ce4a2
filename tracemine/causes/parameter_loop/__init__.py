"""A loop over tensors that an operator over lists does at once.

columns.py  loops over tensors
fix.py      operators over lists
facts.py    what a loop does to each tensor
passes.py   what passes over lists move
"""

from tracemine.causes.cause import Cause
from tracemine.causes.parameter_loop.columns import COLUMNS
from tracemine.causes.parameter_loop.facts import FACTS

CAUSE = Cause(rule="parameter_loop", columns=COLUMNS, facts=FACTS, fix_at=f"{__name__}.fix:FIX")
