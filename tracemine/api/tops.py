"""Where the step's time goes: the one way from an analysis to its tables."""

from __future__ import annotations

from tracemine.findings.accounting import Accounts, measure
from tracemine.findings.notes import gpu_name, sm_count
from tracemine.findings.record import Scan
from tracemine.perfmodel import GPU, Curves, chosen, of_this_user, rates_of
from tracemine.pipeline import Analysis, ScanOptions
from tracemine.top import Asked, Tops


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
        Asked(
            timeline=timeline,
            activities=analysis.rows["activities"],
            accounts=accounts or measure(timeline),
            scan=found,
            device=device,
            rates=rates,
            gaps=analysis.rows["gaps"],
            whole=whole,
        )
    )
