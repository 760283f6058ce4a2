"""tracemine overlay: findings as slices of a trace, for Perfetto."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from tracemine.cli.console import say
from tracemine.cli.options import (
    EvidenceOption,
    ExecutionTraceOption,
    GPUOption,
    MinSavingOption,
    QuietOption,
    RuleOption,
    RulesOption,
    SkipOption,
)
from tracemine.cli.request import asked, found_in, one_trace
from tracemine.cli.standard_input import STDIN
from tracemine.errors import Location, UsageError
from tracemine.files import write_pieces
from tracemine.units import count_text


def overlay(
    path: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or a folder that tracemine.capture wrote.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write to this file; .gz at its end packs it.")
    ],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the trace's own events too: one file to open instead of two.")
    ] = False,
    execution_trace: ExecutionTraceOption = None,
    gpu: GPUOption = None,
    min_saving: MinSavingOption = None,
    rules: RulesOption = None,
    rule: RuleOption = None,
    skip: SkipOption = None,
    evidence: EvidenceOption = None,
    quiet: QuietOption = False,
) -> int:
    """Draw findings over their trace: a track a rule, a slice an occurrence, at the times of the trace's own file.

    Open the file in ui.perfetto.dev with the trace, or, with --merge, alone. A slice says its finding's fingerprint,
    what fixing it saves, and the fix.

    \b
    Examples:
      tracemine overlay trace.json.gz -o findings.json.gz
      tracemine overlay trace.json.gz -o both.json.gz --merge
    """
    from tracemine.report.overlay import events
    from tracemine.report.overlay import overlay as alone

    request = asked(
        quiet=quiet, gpu=gpu, rules=rules, rule=rule, skip=skip, min_saving=min_saving, evidence=evidence,
        execution_trace=execution_trace, pictured=True,
    )  # fmt: skip
    trace = one_trace(path, quiet=quiet)
    found = found_in(trace, request)
    assert found.picture is not None  # noqa: S101 - it was asked for
    with ExitStack() as stack:
        pieces = alone(found.scan, found.picture.activities)
        if merge:
            pieces = _merged(trace, events(found.scan, found.picture.activities), stack)
        write_pieces(output, _packed(pieces) if output.suffix == ".gz" else pieces)
    if not quiet:
        what = count_text(len(found.scan.reported), "finding")
        say(f"{output}: {what}{' and the trace' if merge else ''}; open it in https://ui.perfetto.dev")
    return 0


def _merged(trace: Path, events: Iterator[bytes], stack: ExitStack) -> Iterator[bytes]:
    """Return the trace's own text with further events. Raises UsageError where that is no Chrome trace."""
    from tracemine.formats import format_of, recording_in
    from tracemine.formats.kineto.insert import with_events
    from tracemine.formats.source import FileSource

    where = Location(str(trace))
    if trace is STDIN:
        raise UsageError("--merge: reads the trace twice, and this one comes once", where=where, hint="name a file")
    recorded = recording_in(trace) if trace.is_dir() else (trace, None)
    if recorded is None or recorded[0].is_dir():
        raise UsageError("--merge: this folder holds no file of a trace", where=where, hint="leave --merge out")
    source = stack.enter_context(FileSource(recorded[0]))
    if format_of(source).name != "kineto":
        says = "--merge: adds to what torch.profiler wrote, and this is another format"
        raise UsageError(says, where=where, hint="leave --merge out")
    return with_events(source, events)


def _packed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces as gzip."""
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
