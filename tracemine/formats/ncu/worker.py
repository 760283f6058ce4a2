"""The process that reads binary reports: one a line from standard input, what was found to standard output."""

from __future__ import annotations

from tracemine.formats.ncu import answer
from tracemine.processes import no_core_files, serve

if __name__ == "__main__":
    no_core_files()
    serve(answer)
