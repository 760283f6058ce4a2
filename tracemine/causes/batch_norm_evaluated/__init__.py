"""A norm in evaluation behind a convolution that could do its work.

fix.py  the convolution, with the weight and bias that the norm makes of them
"""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="batch_norm_evaluated", fix_at=f"{__name__}.fix:FIX")
