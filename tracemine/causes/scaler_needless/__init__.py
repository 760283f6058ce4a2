"""A gradient scaler that nothing needs.

fix.py  gradients that are never scaled
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="scaler_needless", fix_at=f"{__name__}.fix:FIX")
