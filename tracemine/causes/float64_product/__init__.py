"""Products in float64.

fix.py  the same call in float32 and TF32
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="float64_product", fix_at=f"{__name__}.fix:FIX")
