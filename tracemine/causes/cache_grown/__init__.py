"""A cache that is joined with each new row.

columns.py   rows appended
estimate.py  rows written in place
fix.py       new rows written into a cache of the largest length
"""

from tracemine.causes.cache_grown.columns import COLUMNS
from tracemine.causes.cache_grown.estimate import estimate
from tracemine.causes.cause import Cause

CAUSE = Cause(rule="cache_grown", columns=COLUMNS, estimate=estimate, fix_at=f"{__name__}.fix:FIX")
