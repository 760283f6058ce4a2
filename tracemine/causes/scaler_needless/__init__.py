"""A gradient scaler that nothing needs.

columns.py  scaling without float16
fix.py      gradients that are never scaled
"""

from tracemine.causes.cause import Cause
from tracemine.causes.scaler_needless.columns import COLUMNS

CAUSE = Cause(rule="scaler_needless", columns=COLUMNS, fix_at=f"{__name__}.fix:FIX")
