"""Small products in a loop, a call each.

fix.py  one product of all iterations
"""

from tracemine.causes.cause import Cause

SMALL_PRODUCTS_APART = Cause(rule="small_products_apart", fix_at="tracemine.causes.small_products_apart.fix:FIX")
