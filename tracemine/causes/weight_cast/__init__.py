"""Weights cast anew in each step.

fix.py  weights copied as one list
"""

from tracemine.causes.cause import Cause

WEIGHT_CAST = Cause(rule="weight_cast", fix_at="tracemine.causes.weight_cast.fix:FIX")
