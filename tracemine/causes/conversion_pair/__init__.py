"""Conversions around calls that take tensors as they lie.

fix.py  calls that take tensors as they lie
"""

from tracemine.causes.cause import Cause

CONVERSION_PAIR = Cause(rule="conversion_pair", fix_at="tracemine.causes.conversion_pair.fix:FIX")
