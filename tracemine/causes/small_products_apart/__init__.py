"""Small products in a loop, a call each.

columns.py   loops over independent products
estimate.py  what one call of each operator saves
loop.py      the loop's operators: what they move and compute in all iterations
batching.py  how long one call of each takes
facts.py     which of its matrices differ
fix.py       one product of all iterations
"""

from tracemine.causes.cause import Cause
from tracemine.causes.small_products_apart.columns import COLUMNS
from tracemine.causes.small_products_apart.estimate import estimate
from tracemine.causes.small_products_apart.facts import FACTS

CAUSE = Cause(
    rule="small_products_apart", columns=COLUMNS, savings={"batch": estimate}, facts=FACTS, fix_at=f"{__name__}.fix:FIX"
)
