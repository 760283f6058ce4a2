"""What Python programs call. Everything public is a name of `tracemine` itself: `tracemine.scan("trace.json.gz")`.

calls.py         scan a trace, load what was stored, open a timeline
many.py          many traces, in several processes
report.py        what a scan found
before_after.py  what became of each finding
"""
