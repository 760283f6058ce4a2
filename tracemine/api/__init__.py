"""What Python programs call. Everything public is a name of `tracemine` itself: `tracemine.scan("trace.json.gz")`.

calls.py         scan a trace, load what was stored, open a timeline
many.py          many traces, in several processes
report.py        what a scan found
before_after.py  what became of each finding
"""

from __future__ import annotations

from tracemine.on_demand import on_demand

# Who scans one trace waits for no processes.
__getattr__ = on_demand(__name__, {"many": f"{__name__}.many"})
