"""A product whose sizes or addresses are not aligned for matrix units."""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="misaligned_product", ways={"ways": ("padded",)})
