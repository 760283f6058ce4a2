"""What Python programs call. Everything public is a name of `tracemine` itself: `tracemine.scan("trace.json.gz")`.

calls.py         scan a trace, load what was stored, open a timeline
many.py          many traces, in several processes
report.py        what a scan found
before_after.py  what became of each finding
"""

from tracemine.api.before_after import Comparison, diff
from tracemine.api.calls import load, load_many, open, scan
from tracemine.api.many import Failure, Reports, scan_many
from tracemine.api.report import Report

__all__ = ["Comparison", "Failure", "Report", "Reports", "diff", "load", "load_many", "open", "scan", "scan_many"]
