"""Tokens sorted by their expert with wide keys.

fix.py  tokens in order by narrow keys, and by counting
"""

from tracemine.causes.cause import Cause

EXPERT_SORT = Cause(rule="expert_sort", fix_at="tracemine.causes.expert_sort.fix:FIX")
