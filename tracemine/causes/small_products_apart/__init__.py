"""Small products in a loop, a call each.

columns.py   loops over independent products
estimate.py  what one call of each operator saves
loop.py      the loop's operators: what they move and compute in all iterations
batching.py  how long one call of each takes
fix.py       one product of all iterations
"""

from tracemine.causes.cause import Cause
from tracemine.causes.small_products_apart.columns import COLUMNS
from tracemine.causes.small_products_apart.estimate import estimate

CAUSE = Cause(rule="small_products_apart", columns=COLUMNS, savings={"batch": estimate}, fix_at=f"{__name__}.fix:FIX")
