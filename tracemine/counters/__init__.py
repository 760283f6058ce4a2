"""Hardware counters of single kernels, as Nsight Compute measured them, and which activities of a timeline they are of.

Report, Kernel               what a report says of each kernel that it profiled
counters_table(reports)      those as a table of a timeline directory; `stored_reports` reads it
match(timeline, reports)     which activities those kernels are, and how sure that is: `Counters`
"""

from __future__ import annotations

from tracemine.counters.match import Counters, match
from tracemine.counters.record import Bound, CounterReport, ProfiledKernel
from tracemine.counters.stored import counters_table, stored_reports, with_stored

__all__ = [
    "Bound",
    "CounterReport",
    "Counters",
    "ProfiledKernel",
    "counters_table",
    "match",
    "stored_reports",
    "with_stored",
]
