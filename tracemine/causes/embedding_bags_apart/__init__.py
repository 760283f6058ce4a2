"""Embedding bags over many tables, a call each.

estimate.py  one table for all bags
fix.py       one bag over a table of all rows
"""

from tracemine.causes.cause import Cause
from tracemine.causes.embedding_bags_apart.estimate import estimate

CAUSE = Cause(rule="embedding_bags_apart", estimates=("one_pass", estimate), fix_at=f"{__name__}.fix:FIX")
