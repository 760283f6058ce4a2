"""Hardware counters of single kernels, as Nsight Compute measured them, and which activities of a timeline they are of.

Report, Kernel               what a report says of each kernel that it profiled
match(timeline, reports)     which activities those kernels are, and how sure that is: `Counters`
"""

from __future__ import annotations

from tracemine.counters.match import Counters, match
from tracemine.counters.record import Bound, Kernel, Report

__all__ = ["Bound", "Counters", "Kernel", "Report", "match"]
