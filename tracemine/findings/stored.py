"""Stored scans: JSON that scan printed, one a line, or within an HTML report, of which nothing else is looked at.

Such a file is as little trusted as a trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tracemine.errors import InputError, Location, UsageError
from tracemine.files import read_file, read_head
from tracemine.findings.record import FINDINGS_SCHEMA_VERSION, Finding, Scan, Summary, Variant
from tracemine.findings.tables import findings_table, occurrences_table
from tracemine.timeline.meta import schema_version_of
from tracemine.units import count_text

_LARGEST_BYTES = 1 << 30
_HEAD_BYTES = 4096
_VERSIONS = range(1, FINDINGS_SCHEMA_VERSION + 1)
_MOST_NS = 1 << 62  # as in a timeline
_SUFFIXES = (".json", ".jsonl")
_PAGE = b'<meta name="generator" content="tracemine'
_EMBEDDED, _END = b'<script type="application/json" id="tracemine-findings">', b"</script>"
_HINT = "scan --format json writes one"


def stored_scans(path: Path) -> list[Scan] | None:
    """Return the scans that a file holds; None where it is something else.

    Raise InputError, naming the line, where it begins as findings do and does not go on so, and for verdicts.
    """
    if not _is_findings(path):
        _check_no_verdicts(path)
        return None
    return _scans_in(path)


def one_stored(path: Path) -> Scan | None:
    """Return the one scan that a file, or the files of a folder, hold; None where they hold none, as a trace does.

    Raise UsageError where there are several.
    """
    files = findings_files(path) if path.is_dir() else [path] if path.is_file() else []
    found = [scan for file in files for scan in stored_scans(file) or ()]
    if len(found) > 1:
        says = f"{path}: {count_text(len(found), 'scan')}, and one is compared with one"
        raise UsageError(says, hint="name one file")
    return found[0] if found else None


def load_scans(path: Path) -> list[Scan]:
    """Return the scans that a findings file holds, whatever it is called; every number fits into a table.

    Raise InputError where it is none.
    """
    _check_no_verdicts(path)
    found = _scans_in(path)
    for number, scan in enumerate(found, 1):
        try:
            findings_table(scan)
            occurrences_table(scan)
        except OverflowError:
            says = f"is no findings file: its {number}. scan has a number beyond 64 bits"
            raise InputError(says, where=Location(str(path)), hint=_HINT) from None
    if not found:
        raise InputError("holds no findings", where=Location(str(path)), hint=_HINT)
    return found


def _scans_in(path: Path) -> list[Scan]:
    content = _embedded(read_file(path, _LARGEST_BYTES))
    found = []
    for number, line in enumerate(_lines(content), 1):
        if not line.strip():
            continue
        where = Location(str(path), line=number)
        try:
            version = schema_version_of(line)
            scan = decoded(line) if version in _VERSIONS else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"is no findings file: {error}", where=where, hint=_HINT) from None
        if scan is None:
            says = f"its findings are of version {version}; this tracemine reads 1 to {FINDINGS_SCHEMA_VERSION}"
            raise InputError(says, where=where)
        if wrong := _impossible(scan):
            raise InputError(f"is no findings file: {wrong}", where=where, hint=_HINT)
        found.append(scan)
    return found


def _impossible(scan: Scan) -> str | None:
    """Return which of its times contradicts the others, or is NaN; None: they can be."""
    whole = scan.summary
    if not all(0 <= ns <= _MOST_NS for ns in (whole.span_ns, whole.gpu_time_ns)):
        return f"a time is out of range: more than {_MOST_NS:,} ns, or less than nothing"
    for finding in scan.findings:
        counts = [variant.occurrences for variant in finding.variants]
        if counts and (min(counts) < 1 or sum(counts) != len(finding.activities)):
            return f"finding {finding.fingerprint[:16]} has other occurrences than its variants"
        every: list[Finding | Variant] = [finding, *finding.variants]
        if wrong := next(filter(None, (_impossible_times(one, whole) for one in every)), None):
            return wrong
    return None


def _impossible_times(one: Finding | Variant, whole: Summary) -> str | None:
    mark = one.identity.finding[:16]
    own, gpu, step = one.measured_ns, one.gpu_saving_ns, one.step_saving_ns
    on_gpu = one.fused_ns is not None or gpu.high > 0
    if not 0 <= gpu.low <= gpu.mid <= gpu.high <= own or (on_gpu and own > whole.gpu_time_ns):
        return f"finding {mark} saves more than was measured"
    if not 0 <= step.low <= step.mid <= step.high <= whole.span_ns:
        return f"finding {mark} saves more than the span has"
    return None


def _embedded(content: bytes) -> bytes:
    """Return the findings of an HTML report; of all else the whole.

    >>> _embedded(b'<!doctype html><script type="application/json" id="tracemine-findings">{}</script>')
    b'{}'
    """
    if not content[:_HEAD_BYTES].lstrip().startswith(b"<!doctype html>"):
        return content
    return content.partition(_EMBEDDED)[2].partition(_END)[0]


def _lines(content: bytes) -> list[bytes]:
    """Return its lines; all of it as one, where what begins in the first line goes on in others, as jq writes JSON."""
    lines = content.splitlines()
    first = next((line for line in lines if line.strip()), b"")
    return lines if first.rstrip().endswith(b"}") else [content]


def findings_files(folder: Path) -> list[Path]:
    """Return the files of JSON right in a folder that begin as findings do, in order of name."""
    return [path for path in sorted(folder.iterdir()) if path.suffix in _SUFFIXES and _is_findings(path)]


def _check_no_verdicts(path: Path) -> None:
    """Raise InputError for a file that begins as `verify` writes it."""
    head = _head(path)
    if b'"schema_version"' in head and b'"trace":"' in head.replace(b" ", b"") and b'"verdicts":[' in head:
        hint = "name the findings, and these as --evidence of scan"
        raise InputError("holds verdicts, not findings", where=Location(str(path)), hint=hint)


def _is_findings(path: Path) -> bool:
    """Return whether a file begins as findings do. Verdicts do too, but only of findings `trace` is an object."""
    head = _head(path)
    return _PAGE in head or (b'"schema_version"' in head and b'"trace":{' in head.replace(b" ", b""))


def _head(path: Path) -> bytes:
    return read_head(path, _HEAD_BYTES) if path.is_file() else b""


# --- versions: a finding of schema version 1 was what a variant is now ------------------------------------------------


def decoded(content: bytes) -> Scan:
    """Return a scan as JSON has it, of version 1 as well. Raise msgspec's DecodeError."""
    if schema_version_of(content) != 1:
        return msgspec.json.decode(content, type=Scan)
    return msgspec.convert(_upgraded(msgspec.json.decode(content)), type=Scan)


def _upgraded(scan: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a decoded scan of version 1 to version 2. What version 1 did not say is null.

    Each finding stands alone, under its own fingerprint: what verdicts and tickets call it.

    >>> _upgraded({"schema_version": 1, "findings": [{"fingerprint": "aa", "rule": "r"}]})["findings"][0]["cause"]
    'r'
    """
    findings = scan.get("findings")
    if not isinstance(findings, list):
        return scan  # the schema's check says so
    return scan | {"schema_version": 2, "findings": [_upgraded_finding(finding) for finding in findings]}


def _upgraded_finding(finding: Any) -> Any:
    if not isinstance(finding, dict):
        return finding
    mark = finding.get("fingerprint")
    return finding | {"cause": finding.get("rule"), "identity": {"finding": mark, "aliases": []}}
