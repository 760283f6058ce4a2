"""A cache that is joined with each new row.

fix.py  new rows written into a cache of the largest length
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="cache_grown", fix_at=f"{__name__}.fix:FIX")
