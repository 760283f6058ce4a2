"""Products, convolutions and attention in float32 where half precision would do: a whole model, run without gradients.

estimate.py  the same calls in half precision
fix.py       the same call in half precision
"""

from tracemine.causes.cause import Cause
from tracemine.causes.inference_in_float32.estimate import estimate

CAUSE = Cause(rule="inference_in_float32", estimate=estimate, fix_at=f"{__name__}.fix:FIX")
