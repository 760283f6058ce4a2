"""A cache that is joined with each new row.

estimate.py  rows written in place
fix.py       new rows written into a cache of the largest length
"""

from tracemine.causes.cache_grown.estimate import estimate
from tracemine.causes.cause import Cause

CAUSE = Cause(rule="cache_grown", estimates=("one_pass", estimate), fix_at=f"{__name__}.fix:FIX")
