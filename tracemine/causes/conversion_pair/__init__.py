"""Conversions around calls that take tensors as they lie.

fix.py  calls that take tensors as they lie
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="conversion_pair", fix_at=f"{__name__}.fix:FIX")
