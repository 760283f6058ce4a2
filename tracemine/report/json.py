"""A scan, verdicts or a difference as one line of JSON, for programs: all of it, whatever `top` says: the sums hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import msgspec

from tracemine.report.escape import json_text

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.findings.record import Scan
    from tracemine.report import Drawing
    from tracemine.verdicts.verdict import Verdicts


def render(found: Scan | Verdicts | Difference, out: TextIO, options: Drawing) -> None:
    """Write one JSON object and a newline; several traces make JSON Lines."""
    out.write(json_of(found))


def json_of(found: object, *, indented: bool = False) -> str:
    """Return a record as safe JSON, on one line where it is not indented, with a newline."""
    encoded = msgspec.json.encode(found)
    return json_text((msgspec.json.format(encoded, indent=1) if indented else encoded).decode()) + "\n"
