"""A gradient scaler that nothing needs.

fix.py  gradients that are never scaled
"""

from tracemine.causes.cause import Cause

SCALER_NEEDLESS = Cause(rule="scaler_needless", fix_at="tracemine.causes.scaler_needless.fix:FIX")
