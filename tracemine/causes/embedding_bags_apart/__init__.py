"""Embedding bags over many tables, a call each.

fix.py  one bag over a table of all rows
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="embedding_bags_apart", fix_at=f"{__name__}.fix:FIX")
