"""A scan or verdicts as one line of JSON, for programs: every finding, whatever `top` says, so that the sums hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

import msgspec

from tracemine.report.escape import json_text

if TYPE_CHECKING:
    from tracemine.findings.record import Scan
    from tracemine.report import Options
    from tracemine.verdicts.verdict import Verdicts


def render(found: Scan | Verdicts, out: TextIO, options: Options) -> None:
    """One JSON object and a newline; several traces make JSON Lines."""
    out.write(json_text(msgspec.json.encode(found).decode()) + "\n")
