"""Products in float64."""

from tracemine.causes.cause import Cause

CAUSE = Cause(
    rule="float64_product",
    ways={
        "ways": ("float32", "float32, TF32"),
        "assumes": ("nothing needs float64: results are right as float32 and TF32 round, not equal to eager's",),
    },
)
