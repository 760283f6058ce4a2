"""Findings that scan printed as JSON, read back, and one of them by name: what reads them is loaded when needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.documents.numbered import by_number
from tracemine.errors import UsageError
from tracemine.report.escape import line
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan

_SHORTEST_MARK = 4  # digits
_SHOWN = 10  # fingerprints in a hint


def stored_scans(path: Path) -> list[Scan] | None:
    """Do what `tracemine.findings.stored.stored_scans` does."""
    from tracemine.findings import stored

    return stored.stored_scans(path)


def one_stored(path: Path) -> Scan | None:
    """Do what `tracemine.findings.stored.one_stored` does."""
    from tracemine.findings import stored

    return stored.one_stored(path)


def findings_files(folder: Path) -> list[Path]:
    """Do what `tracemine.findings.stored.findings_files` does."""
    from tracemine.findings import stored

    return stored.findings_files(folder)


def named_finding(mark: str, scans: Sequence[Scan], option: str) -> tuple[Finding, Scan]:
    """Return the one finding whose fingerprint, or that of one of its variants, begins so; and its scan.

    Of one scan a number will do, as its report prints it. Raises UsageError, which names `option`, where there is none,
    or several.
    """
    if len(scans) == 1 and (numbered := by_number(mark, scans[0])) is not None:
        return numbered, scans[0]
    if len(mark) < _SHORTEST_MARK:
        if mark.isdecimal():
            raise UsageError(f"{option}: no finding has the number {mark}", hint=_known(scans))
        raise UsageError(f"{option}: a fingerprint has 16 digits; give {_SHORTEST_MARK} at least")
    named = {
        finding.fingerprint: (finding, scan)
        for scan in reversed(scans)
        for finding in scan.findings
        if any(name.startswith(mark) for name in finding.names)
    }
    if len(named) != 1:
        raise UsageError(f"{option}: {count_text(len(named), 'finding')} begin with {mark[:40]!a}", hint=_known(scans))
    return next(iter(named.values()))


def _known(scans: Sequence[Scan]) -> str:
    """Return which findings there are."""
    shown = [line(finding.fingerprint, 20) for scan in scans for finding in scan.reported]
    more = ", …" if len(shown) > _SHOWN else ""
    return f"there are: {', '.join(shown[:_SHOWN])}{more}" if shown else "there are no findings"
