"""A layer norm whose kernel is slow for its rows.

estimate.py  a kernel made for its rows
"""

from tracemine.causes.cause import Cause
from tracemine.causes.layer_norm_slow.estimate import estimate

CAUSE = Cause(rule="layer_norm_slow", savings={"norm": estimate})
