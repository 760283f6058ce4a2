"""Products and convolutions in float32 without TF32."""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="float32_without_tf32", ways={"ways": ("TF32",)})
