"""An activation behind a product, which the library's product can do itself.

estimate.py  left out of training
fix.py       the library's call, as verify tries it
"""

from tracemine.causes.cause import Cause
from tracemine.causes.epilogue_apart.estimate import estimate

CAUSE = Cause(rule="epilogue_apart", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
