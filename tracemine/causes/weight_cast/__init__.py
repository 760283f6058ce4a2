"""Weights cast anew in each step.

estimate.py  weights kept at half width
fix.py       weights copied as one list
"""

from tracemine.causes.cause import Cause
from tracemine.causes.weight_cast.estimate import estimate

CAUSE = Cause(rule="weight_cast", estimates=("one_pass", estimate), fix_at=f"{__name__}.fix:FIX")
