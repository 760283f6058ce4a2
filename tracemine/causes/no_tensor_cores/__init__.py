"""A call in half precision whose kernel does not use matrix units.

fix.py  other algorithms and layouts, or one batched product
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="no_tensor_cores", fix_at=f"{__name__}.fix:FIX")
