"""Weights cast anew in each step.

columns.py     weights cast to half width
hand_casts.py  casts that the program makes itself
estimate.py    weights kept at half width
fix.py         weights copied as one list
"""

from tracemine.causes.cause import Cause
from tracemine.causes.weight_cast.columns import COLUMNS
from tracemine.causes.weight_cast.estimate import estimate

CAUSE = Cause(rule="weight_cast", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
