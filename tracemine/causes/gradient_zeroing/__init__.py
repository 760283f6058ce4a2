"""Gradients that are filled with zeros, and added to.

fix.py  gradients that are None in place of zeros
"""

from tracemine.causes.cause import Cause

GRADIENT_ZEROING = Cause(rule="gradient_zeroing", fix_at="tracemine.causes.gradient_zeroing.fix:FIX")
