"""A grouped convolution for which cuDNN has no good kernel."""

from tracemine.causes.cause import SEARCHED, Cause

CAUSE = Cause(rule="grouped_convolution", ways={"ways": SEARCHED, "others": ("unfold, bmm",)})
