"""One finding whole, for a person at a terminal: what, where, evidence, cost, saving, fix, verdict. Nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from tracemine.documents import words
from tracemine.documents.finding import sections
from tracemine.report.paragraphs import LABEL, console_for, drawn_lines, labelled, paragraph, plain, print_rows

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.report import Drawing


def render(finding: Finding, scan: Scan, out: TextIO, options: Drawing) -> None:
    """Write all that is known of a finding."""
    console = console_for(out, options)
    about = plain(" · ".join((scan.trace.path, *words.summary_parts(scan.trace))))
    print_rows(console, (paragraph((plain(finding.title), "bold")), paragraph((about, LABEL))))
    for label, lines in sections(finding, scan, options.frames).items():
        print_rows(console, labelled(label, *drawn_lines(lines)))
