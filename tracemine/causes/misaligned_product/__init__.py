"""A product whose sizes or addresses are not aligned for matrix units.

fix.py  the same product, padded
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="misaligned_product", fix_at=f"{__name__}.fix:FIX")
