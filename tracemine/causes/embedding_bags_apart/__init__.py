"""Embedding bags over many tables, a call each.

fix.py  one bag over a table of all rows
"""

from tracemine.causes.cause import Cause

EMBEDDING_BAGS_APART = Cause(rule="embedding_bags_apart", fix_at="tracemine.causes.embedding_bags_apart.fix:FIX")
