"""Tensors that leave an INT8 engine's narrow precision between its products.

engine.py     the layers of a TensorRT engine, joined by their tensors
columns.py    which of them belong to what rules look for
estimate.py   the region without its conversions, by the engine's own narrow products
"""

from tracemine.causes.cause import Cause
from tracemine.causes.trt_precision_gap.columns import COLUMNS
from tracemine.causes.trt_precision_gap.estimate import estimate

CAUSE = Cause(rule="trt_precision_gap", columns=COLUMNS, estimate=estimate)
