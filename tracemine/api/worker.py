"""A process that scans traces: `python -m tracemine.api.worker` answers a line with a line, each a JSON object.

Nothing is imported by it but tracemine, so a program that calls `scan_many` needs no `if __name__ == "__main__":`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from tracemine import errors, pipeline
from tracemine.errors import Location, TracemineError
from tracemine.findings.record import Scan
from tracemine.pipeline import ScanOptions
from tracemine.processes import serve
from tracemine.scan_settings import ScanSettings

# What was found, or an error: its class, and what `TracemineError` has of it.
_Answer = Scan | tuple[str, str, Location | None, str | None]


def question(settings: ScanSettings, path: Path) -> bytes:
    """Return the line that asks for a scan."""
    return msgspec.json.encode((settings, str(path)))


def answered(line: bytes) -> Scan | Exception:
    """Return what an answer says."""
    found: _Answer = msgspec.json.decode(line, type=_Answer)
    if isinstance(found, Scan):
        return found
    name, message, where, hint = found
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, TracemineError):
        return kind(message, where=where, hint=hint)
    return RuntimeError(f"{name}: {message}")


def answer(line: bytes) -> bytes:
    """Scan what a line asks for."""
    settings, path = msgspec.json.decode(line, type=tuple[ScanSettings, str])
    try:
        found: _Answer = pipeline.scan(path, _options(settings))
    except TracemineError as error:
        found = type(error).__name__, error.message, error.where, error.hint
    except Exception as error:
        found = type(error).__name__, str(error), None, None
    return msgspec.json.encode(found)


@lru_cache(maxsize=1)
def _options(settings: ScanSettings) -> ScanOptions:
    """Return rules and evidence, which are read once."""
    return settings.options()[0]


def main() -> None:
    """Answer until there are no more lines."""
    serve(answer)


if __name__ == "__main__":
    main()
