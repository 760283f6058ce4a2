"""Gradients that are filled with zeros, and added to.

fix.py  gradients that are None in place of zeros
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="gradient_zeroing", fix_at=f"{__name__}.fix:FIX")
