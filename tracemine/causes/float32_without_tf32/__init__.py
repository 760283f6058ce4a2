"""Products and convolutions in float32 without TF32.

fix.py  the same call in TF32
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="float32_without_tf32", fix_at=f"{__name__}.fix:FIX")
