"""What is drawn of a trace in addition to its findings: the one way from an analysis to a picture."""

from __future__ import annotations

from tracemine.findings.record import Scan
from tracemine.pipeline import Analysis, ScanOptions
from tracemine.report.picture import Picture, picture

__all__ = ["picture_of"]


def picture_of(analysis: Analysis, found: Scan, options: ScanOptions) -> Picture:
    """Return what reports draw of a trace. found: what was mined in it, with these options.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/chain")
    >>> len(picture_of(analysis, mined(analysis), ScanOptions()).activities.start_ns)
    8
    """
    codes = {} if options.evidence is None else options.evidence.codes(found, found.trace.gpu)
    device = analysis.device or options.device
    return picture(analysis.timeline, analysis.dataflow, analysis.rows, device, found, codes, analysis.causes)
