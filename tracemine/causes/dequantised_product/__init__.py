"""A weight that is dequantised for a product of few rows.

estimate.py  one kernel that reads the codes
"""

from tracemine.causes.cause import Cause
from tracemine.causes.dequantised_product.estimate import estimate

CAUSE = Cause(rule="dequantised_product", estimate=estimate)
