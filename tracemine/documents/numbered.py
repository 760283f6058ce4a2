"""Which findings a report numbers, and by which number or name a command means one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracemine.patterns import deferred

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan

_NUMBER = deferred(r"[0-9]{1,3}")  # a fingerprint is named by four digits at least


def claimed(scan: Scan) -> list[Finding]:
    """Return the findings that reports number, from 1 on: shown, and not refuted."""
    return [finding for finding in scan.reported if not finding.refuted]


def by_number(mark: str, scan: Scan) -> Finding | None:
    """Return the finding of a number as reports print it; None where it is no number, or there are not so many."""
    if not _NUMBER.fullmatch(mark):
        return None
    return next((one for number, one in enumerate(claimed(scan), 1) if number == int(mark)), None)
