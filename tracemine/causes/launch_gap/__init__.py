"""The device waits for the host to launch the next kernel."""

from tracemine.causes.cause import Cause

CAUSE = Cause(rule="launch_gap", closed_by_graph=True)
