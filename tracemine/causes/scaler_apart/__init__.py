"""Gradients unscaled in a pass of their own.

columns.py  unscaling right before an optimizer's step
"""

from tracemine.causes.cause import Cause
from tracemine.causes.scaler_apart.columns import COLUMNS

CAUSE = Cause(rule="scaler_apart", columns=COLUMNS)
