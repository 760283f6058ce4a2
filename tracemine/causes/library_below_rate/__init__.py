"""A library call below the rate that such calls usually reach."""

from tracemine.causes.cause import SEARCHED, Cause

CAUSE = Cause(rule="library_below_rate", ways={"ways": ("padded", "cublasLt"), "of_convolutions": SEARCHED})
