"""Kernels so short that the host cannot launch them as fast as they run."""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="tiny_kernels", closed_by_graph=True)
