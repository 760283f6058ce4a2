"""A loop over tensors that an operator over lists does at once.

fix.py  operators over lists
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="parameter_loop", fix_at=f"{__name__}.fix:FIX")
