"""The head of a reproduction, and the name of its file."""

from __future__ import annotations

import re

from tracemine.findings.record import Finding
from tracemine.units import MINUS, time_text

_LONGEST = 60  # characters of a name next to the fingerprint
_LINES = 2  # of source


def facts(finding: Finding, fingerprint: str) -> list[str]:
    """Return lines of the head: a word, and from the eleventh character on what it is."""
    lines = [f"Finding   {fingerprint}, rule {finding.rule}, {finding.severity}"]
    where = [f"module {finding.module}"] if finding.module else []
    where += [
        f"{s.file.replace(chr(92), '/').rpartition('/')[2]}:{s.line} ({s.function})" for s in finding.source[:_LINES]
    ]
    lines.append(f"Where     {', '.join(where) or 'not recorded: neither modules nor stacks'}")
    if finding.shapes:
        lines.append(f"Shapes    {finding.shapes}{f', {finding.dtype}' if finding.dtype else ''}")
    times = f"{finding.occurrences} {'time' if finding.occurrences == 1 else 'times'} in the trace"
    took = f"{_us(finding.measured_ns)} of GPU time measured"
    saving = finding.gpu_saving_ns
    saves = f"{_us(saving.mid)} predicted to be saved ({_us(saving.low)} to {_us(saving.high)})"
    return [*lines, f"Time      {times}: {took}, {saves}"]


def _us(ns: float) -> str:
    return time_text(ns).replace("\N{MICRO SIGN}", "u").replace(MINUS, "-")


def file_name(finding: Finding, fingerprint: str, *, suffix: str = "") -> str:
    """Return a reproduction's file name: of a trace's texts letters, digits and underscores alone."""
    module = (finding.module or "").rpartition(".")[2]
    words = re.sub(r"[^A-Za-z0-9]+", "_", f"{finding.rule}_{module}", flags=re.ASCII).strip("_")[:_LONGEST].strip("_")
    return "_".join(filter(None, (fingerprint, words, suffix))) + ".py"
