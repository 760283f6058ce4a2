"""Conversions of precision that no layer took in, and the products that read a wide result of one."""

from tracemine.causes.cause import Cause
from tracemine.causes.trt_precision_gap import estimate

CAUSE = Cause(rule="trt_quantize_alone", estimate=estimate)
