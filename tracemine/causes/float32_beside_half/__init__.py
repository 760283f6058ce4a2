"""Batched products in float32 of what was cast up for them, in a model that multiplies in half precision.

estimate.py  the same products in half precision, without the casts
"""

from tracemine.causes.cause import Cause
from tracemine.causes.float32_beside_half.estimate import estimate

CAUSE = Cause(rule="float32_beside_half", estimate=estimate)
