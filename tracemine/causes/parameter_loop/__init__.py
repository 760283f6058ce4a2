"""A loop over tensors that an operator over lists does at once.

columns.py  loops over tensors
fix.py      operators over lists
passes.py   what passes over lists move
"""

from tracemine.causes.cause import Cause
from tracemine.causes.column_fact import column_fact
from tracemine.causes.parameter_loop.columns import COLUMNS

_SWEEPS = ("zero", "norm", "average", "update")
_FACTS = column_fact("loop", "what a loop over tensors does to each", "sweep_kind", _SWEEPS)
CAUSE = Cause(rule="parameter_loop", columns=COLUMNS, facts=_FACTS, fix_at=f"{__name__}.fix:FIX")
