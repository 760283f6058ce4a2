"""A call in half precision whose kernel does not use matrix units."""

from tracemine.causes.cause import SEARCHED, Cause

CAUSE = Cause(rule="no_tensor_cores", ways={"ways": SEARCHED, "others": ("unfold, bmm",)})
