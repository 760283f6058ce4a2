"""A call slow because of how its inputs lie.

fix.py  the same calls on contiguous tensors
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="layout_leak", fix_at=f"{__name__}.fix:FIX")
