"""Gradients that are filled with zeros, and added to.

columns.py   gradients filled with zeros
fix.py       gradients that are None in place of zeros
estimate.py  gradients that are None
"""

from tracemine.causes.cause import Cause
from tracemine.causes.gradient_zeroing.columns import COLUMNS
from tracemine.causes.gradient_zeroing.estimate import estimate

CAUSE = Cause(rule="gradient_zeroing", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
