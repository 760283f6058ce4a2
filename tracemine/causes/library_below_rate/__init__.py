"""A library call below the rate that such calls usually reach.

fix.py  other algorithms and layouts of a convolution, other tiles of a product
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="library_below_rate", fix_at=f"{__name__}.fix:FIX")
