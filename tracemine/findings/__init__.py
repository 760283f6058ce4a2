"""Findings: what the matches of all rules come to, without claiming anything twice.

scan = find(timeline, rows, matches, device_of(timeline))
"""

from tracemine.findings.find import find
from tracemine.findings.notes import device_of
from tracemine.findings.record import Finding, Range, Scan, Source

__all__ = ["Finding", "Range", "Scan", "Source", "device_of", "find"]
