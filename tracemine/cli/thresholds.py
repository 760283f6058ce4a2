"""What --min-saving and --fail-on say: a time, a share of the trace, a severity."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tracemine import units
from tracemine.errors import UsageError
from tracemine.units import Threshold

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan

SEVERITIES = ("low", "medium", "high")


def parse_threshold(option: str, text: str) -> Threshold:
    """Raises UsageError for what is neither a time nor a percentage.

    >>> parse_threshold("--min-saving", "0.1ms")
    Threshold(ns=100000, share=None)
    """
    try:
        return units.parse_threshold(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="write a time or a share of the trace: 0.1ms, 50us, 1%") from None


def parse_fail_on(text: str) -> Callable[[Scan], list[Finding]]:
    """Return what finds those of a severity in a scan, or that save this much; refuted ones do not count.

    Several have commas between them: one is enough. Raises UsageError for anything else.
    """
    every = [_fail_on(one.strip()) for one in text.split(",")]
    return lambda scan: list({one.fingerprint: one for reached in every for one in reached(scan)}.values())


def _fail_on(text: str) -> Callable[[Scan], list[Finding]]:
    if text in SEVERITIES:
        reached = SEVERITIES[SEVERITIES.index(text) :]
        return lambda scan: [one for one in scan.reported if one.severity in reached and not one.refuted]
    try:
        threshold = parse_threshold("--fail-on", text)
    except UsageError as error:
        raise UsageError(error.message, hint="write high, medium, low, a time (1ms) or a share (5%)") from None
    return lambda scan: [one for one in scan.findings if _saving_ns(one) >= threshold.of(scan.summary.span_ns)]


def _saving_ns(finding: Finding) -> int:
    return max(finding.step_saving_ns.mid, finding.gpu_saving_ns.mid)
