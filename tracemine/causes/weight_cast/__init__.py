"""Weights cast anew in each step.

fix.py  weights copied as one list
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="weight_cast", fix_at=f"{__name__}.fix:FIX")
