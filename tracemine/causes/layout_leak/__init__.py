"""A call slow because of how its inputs lie.

fix.py  the same calls on contiguous tensors
"""

from tracemine.causes.cause import Cause

LAYOUT_LEAK = Cause(rule="layout_leak", fix_at="tracemine.causes.layout_leak.fix:FIX")
