"""Findings files of every version: a finding of schema version 1 was what a variant is now."""

from __future__ import annotations

from typing import Any

import msgspec

from tracemine.findings.record import Scan


class _Version(msgspec.Struct):
    schema_version: int


def version_of(content: bytes) -> int:
    """Return the schema version that findings say they are of. Raise msgspec's DecodeError.

    >>> version_of(b'{"schema_version": 3, "findings": "of another kind"}')
    3
    """
    return msgspec.json.decode(content, type=_Version).schema_version


def decoded(content: bytes) -> Scan:
    """Return a scan as JSON has it, of version 1 as well. Raise msgspec's DecodeError."""
    if version_of(content) != 1:
        return msgspec.json.decode(content, type=Scan)
    return msgspec.convert(_upgraded(msgspec.json.decode(content)), type=Scan)


def _upgraded(scan: dict[str, Any]) -> dict[str, Any]:
    """Upgrade a decoded scan of version 1 to version 2. What version 1 did not say is null.

    Each finding stands for itself, under its own fingerprint: what verdicts and tickets call it.

    >>> _upgraded({"schema_version": 1, "findings": [{"fingerprint": "aa", "rule": "r"}]})["findings"][0]["cause"]
    'r'
    """
    findings = scan.get("findings")
    if not isinstance(findings, list):
        return scan  # the schema's check says so
    return scan | {"schema_version": 2, "findings": [_one(each) for each in findings]}


def _one(finding: Any) -> Any:
    if not isinstance(finding, dict):
        return finding
    mark = finding.get("fingerprint")
    return finding | {"cause": finding.get("rule"), "identity": {"finding": mark, "aliases": []}}
