"""Embedding bags over many tables, a call each.

columns.py   which bags are of one kind
estimate.py  one table for all bags
fix.py       one bag over a table of all rows
"""

from tracemine.causes.cause import Cause
from tracemine.causes.embedding_bags_apart.columns import COLUMNS
from tracemine.causes.embedding_bags_apart.estimate import estimate

CAUSE = Cause(rule="embedding_bags_apart", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
