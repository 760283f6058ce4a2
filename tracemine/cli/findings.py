"""Findings that scan printed as JSON, read back, and one of them by name: what reads them is loaded when needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracemine.cli.console import say
from tracemine.documents.numbered import by_number
from tracemine.errors import TracemineError, UsageError
from tracemine.report.escape import line
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.verdicts.evidence import Evidence

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


def stored_in(path: Path) -> list[tuple[Path, Scan]]:
    """Return the scans that a file holds, each with its file; of a folder its findings, where no trace lies in it.

    Raises InputError for a file that begins as findings do and does not go on so.
    """
    files = [path] if path.is_file() else findings_files(path) if path.is_dir() else []
    if files and path.is_dir() and _holds_traces(path):
        return []
    return [(file, scan) for file in files for scan in stored_scans(file) or ()]


def _holds_traces(folder: Path) -> bool:
    from tracemine.formats.discover import traces

    try:
        return next(traces(str(folder)), None) is not None
    except TracemineError:
        return False


def judged(scan: Scan, evidence: Evidence | None) -> Scan:
    """Add verdicts to stored findings; None: leave them as they are.

    What the step gains was found with the trace: where a verdict lowers the saving of GPU time it is lowered in
    proportion, and never raised.
    """
    if evidence is None:
        return scan
    from msgspec.structs import replace

    from tracemine.findings.verdicts import with_verdicts

    gpu = scan.trace.gpu
    found = with_verdicts(scan, lambda finding: evidence.on(finding, gpu))
    return replace(found, evidence=evidence.account(found, gpu))


def say_verdicts(file: Path) -> None:
    """Name the verdicts that verify wrote next to findings, and that are not asked for."""
    verdicts = file.with_name(f"{file.stem}.verdicts.json")
    if verdicts.is_file():
        say(f"{file}: verdicts lie next to it and are not looked at: --evidence {shlex.quote(str(verdicts))}")


def named_finding(mark: str, scans: Sequence[Scan], option: str) -> tuple[Finding, Scan]:
    """Return the one finding whose fingerprint, or that of one of its variants, begins so; and its scan.

    Of one scan a number will do, as its report prints it. Raises UsageError, which names `option`, where there is none,
    or several.
    """
    if len(scans) == 1 and (numbered := by_number(mark, scans[0])) is not None:
        return numbered, scans[0]
    if len(mark) < _SHORTEST_MARK:
        if mark.isdecimal() and len(scans) == 1 and not scans[0].reported:
            hint = f"tracemine scan {line(scans[0].trace.path, 200)} --why-not"
            raise UsageError(f"there is no finding {mark}: this scan has none", hint=hint)
        if mark.isdecimal():
            hint = f"numbers go from 1 to {len(scans[0].reported)}" if len(scans) == 1 else _known(scans)
            raise UsageError(f"{option}: no finding has the number {mark}", hint=hint)
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
