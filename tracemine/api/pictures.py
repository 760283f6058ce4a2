"""What is drawn of a trace in addition to its findings: the one way from an analysis to a picture."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tracemine.api.tops import tops_of
from tracemine.documents.own_code import DeeperFrames
from tracemine.findings.accounting import measure
from tracemine.findings.record import Scan
from tracemine.pipeline import Analysis, ScanOptions
from tracemine.report.picture import Picture, picture
from tracemine.report.picture.names import trace_name
from tracemine.top import BY


def picture_of(analysis: Analysis, found: Scan, options: ScanOptions) -> Picture:
    """Return what reports draw of a trace. found: what was mined in it, with these options.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/chain")
    >>> drawn = picture_of(analysis, mined(analysis), ScanOptions())
    >>> drawn.name, len(drawn.activities.start_ns), drawn.tops["kernel"].calls
    ('chain', 8, 8)
    """
    device, accounts = analysis.device or options.device, measure(analysis.timeline)
    drawn = picture(
        analysis.timeline, analysis.dataflow, analysis.rows, device, found, analysis.causes, accounts.step_of
    )
    tops = tops_of(analysis, found, options, accounts=accounts)
    return replace(
        drawn,
        name=trace_name(str(Path(analysis.path).absolute())),
        sources={} if options.evidence is None else options.evidence.codes(found, found.trace.gpu),
        tops={by: tops.by(by) for by in BY},
        asked=tops,
        frames=DeeperFrames(found, analysis.timeline),
    )
