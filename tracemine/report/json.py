"""A scan, verdicts or a difference as one line of JSON, for programs: all of it, whatever `top` says: the sums hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from tracemine.report.escape import json_of

if TYPE_CHECKING:
    from tracemine.comparison import Difference
    from tracemine.findings.record import Scan
    from tracemine.report import Drawing
    from tracemine.verdicts.verdict import Verdicts


def render(found: Scan | Verdicts | Difference, out: TextIO, options: Drawing) -> None:
    """Write one JSON object and a newline; several traces make JSON Lines."""
    out.write(json_of(found))
