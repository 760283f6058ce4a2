"""The format of `export_chrome_trace`: recognised, scanned, assembled."""

from __future__ import annotations

from pathlib import Path

from tracemine.formats.format import Format, Progress
from tracemine.formats.kineto.assemble import assemble
from tracemine.formats.kineto.report import check_known
from tracemine.formats.kineto.scanner import scan
from tracemine.formats.sniff import is_trace_json
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline


def read(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of a trace. Raises InputError where it holds none that can be read."""
    raw = scan(source, progress=progress)
    check_known(raw, source.path)
    return assemble(raw, Path(source.path).name)


FORMAT = Format("kineto", is_trace_json, read)
