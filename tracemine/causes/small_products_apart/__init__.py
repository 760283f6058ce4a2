"""Small products in a loop, a call each.

fix.py  one product of all iterations
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="small_products_apart", fix_at=f"{__name__}.fix:FIX")
