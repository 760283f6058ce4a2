"""Tokens sorted by their expert with wide keys.

fix.py  tokens in order by narrow keys, and by counting
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="expert_sort", fix_at=f"{__name__}.fix:FIX")
