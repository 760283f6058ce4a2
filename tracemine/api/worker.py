"""A process that scans traces: `python -m tracemine.api.worker` answers a line with a line, each a JSON object.

Nothing is imported by it but tracemine, so a program that calls `scan_many` needs no `if __name__ == "__main__":`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from tracemine import errors, pipeline
from tracemine.api.settings import Settings
from tracemine.errors import Location, TracemineError
from tracemine.findings.record import Scan
from tracemine.pipeline import ScanOptions
from tracemine.processes import serve


class Question(msgspec.Struct, frozen=True):
    """A trace to scan, and how."""

    settings: Settings
    path: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """An error, as `TracemineError` has it; `kind`: its class."""

    kind: str
    message: str
    where: Location | None = None
    hint: str | None = None


class WorkerScan(msgspec.Struct, frozen=True, tag="found"):
    """What was found."""

    scan: Scan


def question(settings: Settings, path: Path) -> bytes:
    """Return the line that asks for a scan."""
    return msgspec.json.encode(Question(settings, str(path)), enc_hook=str)  # of paths


def answered(line: bytes) -> Scan | Exception:
    """Return what an answer says."""
    found = msgspec.json.decode(line, type=WorkerScan | Failed)
    if isinstance(found, WorkerScan):
        return found.scan
    kind = getattr(errors, found.kind, None)
    if isinstance(kind, type) and issubclass(kind, TracemineError):
        return kind(found.message, where=found.where, hint=found.hint)
    return RuntimeError(f"{found.kind}: {found.message}")


def answer(line: bytes) -> bytes:
    """Scan what a line asks for."""
    asked = msgspec.json.decode(line, type=Question, dec_hook=lambda kind, value: kind(value))
    found: WorkerScan | Failed
    try:
        found = WorkerScan(pipeline.scan(asked.path, _options(asked.settings)))
    except TracemineError as error:
        found = Failed(type(error).__name__, error.message, error.where, error.hint)
    except Exception as error:
        found = Failed(type(error).__name__, str(error))
    return msgspec.json.encode(found)


@lru_cache(maxsize=1)
def _options(settings: Settings) -> ScanOptions:
    """Return rules and evidence, which are read once."""
    return settings.options()[0]


if __name__ == "__main__":
    serve(answer)
