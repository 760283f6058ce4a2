"""A grouped convolution for which cuDNN has no good kernel.

fix.py  other algorithms and layouts, or one batched product
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="grouped_convolution", fix_at=f"{__name__}.fix:FIX")
