"""Findings that scan printed as JSON, read back: what reads them is loaded when a command needs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracemine.findings.record import Scan


def stored_scans(path: Path) -> list[Scan] | None:
    """As `tracemine.findings.stored.stored_scans`."""
    from tracemine.findings import stored

    return stored.stored_scans(path)


def one_stored(path: Path) -> Scan | None:
    """As `tracemine.findings.stored.one_stored`."""
    from tracemine.findings import stored

    return stored.one_stored(path)


def findings_files(folder: Path) -> list[Path]:
    """As `tracemine.findings.stored.findings_files`."""
    from tracemine.findings import stored

    return stored.findings_files(folder)
