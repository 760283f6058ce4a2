"""scan --format perfetto: a trace with its findings as slices over it, one file to open in ui.perfetto.dev."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from tracemine.cli.console import say
from tracemine.cli.request import FoundIn
from tracemine.files import write_pieces
from tracemine.units import count_text


def with_findings(found: FoundIn, file: Path, *, quiet: bool) -> None:
    """Write a trace's own events and a track for each rule, a slice for each occurrence; `.gz` packs them.

    Findings alone where the trace is no file of torch.profiler's, or came by standard input: their times are the same.
    """
    from tracemine.report.overlay import events, overlay

    assert found.picture is not None  # noqa: S101 - it was asked for
    with ExitStack() as stack:
        pieces = _merged(found.trace, events(found.scan, found.picture.activities), stack)
        merged = pieces is not None
        if pieces is None:
            pieces = overlay(found.scan, found.picture.activities)
        write_pieces(file, _packed(pieces) if file.suffix == ".gz" else pieces)
    if not quiet:
        what = count_text(len(found.scan.reported), "finding")
        say(f"{file}: {what}{' and the trace' if merged else ''}; open it in https://ui.perfetto.dev")


def _merged(trace: Path | None, events: Iterator[bytes], stack: ExitStack) -> Iterator[bytes] | None:
    """Return the trace's own text with further events; None where that is no Chrome trace that lies in a file."""
    from tracemine.formats import format_of, recording_in
    from tracemine.formats.kineto.insert import with_events
    from tracemine.formats.source import FileSource

    recorded = None if trace is None else recording_in(trace) if trace.is_dir() else (trace, None)
    if recorded is None or not recorded[0].is_file():
        return None
    source = stack.enter_context(FileSource(recorded[0]))
    return with_events(source, events) if format_of(source).name == "kineto" else None


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces as gzip."""
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
