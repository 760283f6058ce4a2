"""A convolution whose windows do not overlap.

fix.py  other algorithms and layouts, or patches and one product
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="patch_convolution", fix_at=f"{__name__}.fix:FIX")
