"""Findings: what the matches of all rules come to, without claiming anything twice.

scan = find(timeline, rows, matches, device_of(timeline))
"""

from tracemine.findings.find import find
from tracemine.findings.identity import fingerprint
from tracemine.findings.notes import device_of
from tracemine.findings.ranking import SEVERITIES
from tracemine.findings.record import NOTHING, Finding, Range, Scan, Source, Summary, Traffic

__all__ = [
    "NOTHING",
    "SEVERITIES",
    "Finding",
    "Range",
    "Scan",
    "Source",
    "Summary",
    "Traffic",
    "device_of",
    "find",
    "fingerprint",
]
