"""Products of what was quantised, computed at full width.

estimate.py  the same products of 8 bits
fix.py       the library's product of 8 bits, as verify tries it
"""

from tracemine.causes.cause import Cause
from tracemine.causes.quantised_product_widened.estimate import estimate

CAUSE = Cause(rule="quantised_product_widened", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
