"""Where the time goes, and what is drawn of a trace in addition to its findings:
the one way from an analysis to each."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tracemine.documents.own_code import DeeperFrames
from tracemine.findings.accounting import Accounts, measure
from tracemine.findings.notes import gpu_name, sm_count
from tracemine.findings.record import Scan
from tracemine.perfmodel import GPU, Curves, chosen, of_this_user, rates_of
from tracemine.pipeline import Analysis, ScanOptions
from tracemine.report.picture import Picture, picture, trace_name
from tracemine.top import BY, Tops


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


def tops_of(
    analysis: Analysis, found: Scan, options: ScanOptions, *, whole: bool = False, accounts: Accounts | None = None
) -> Tops:
    """Return the tables of a trace. found: what was mined in it, with these options. whole: not of its steps alone.
    accounts: of its timeline, where they are known already.

    >>> from tracemine.pipeline import analyse, mined
    >>> analysis = analyse("fixtures/captures/chain")
    >>> tops_of(analysis, mined(analysis), ScanOptions()).by("kernel").calls
    8
    """
    timeline = analysis.timeline
    device = analysis.device or options.device
    device = None if device is None or device.guessed_from else device
    rates = None
    if device is not None:
        own = of_this_user()[0] if options.calibrations is None else options.calibrations
        curves = chosen(GPU(gpu_name(timeline), sm_count(timeline), device), own).curves or Curves.of(device)
        rates = rates_of(device, None if curves is None or curves.scaled_from else curves.calibration)
    return Tops(
        timeline=timeline,
        activities=analysis.rows["activities"],
        accounts=accounts or measure(timeline),
        scan=found,
        device=device,
        rates=rates,
        gaps=analysis.rows["gaps"],
        whole=whole,
    )
