"""A loop over tensors that an operator over lists does at once.

fix.py  operators over lists
"""

from tracemine.causes.cause import Cause

PARAMETER_LOOP = Cause(rule="parameter_loop", fix_at="tracemine.causes.parameter_loop.fix:FIX")
