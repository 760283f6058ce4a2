"""The tools that generate kernels: `emit` shows a reproduction, `verify` runs one; both write files where they may."""

from __future__ import annotations

import time
from pathlib import Path

from tracemine.agents.folders import Folders
from tracemine.agents.quoted import SENTENCE, lines, maybe, page, quoted, some, word
from tracemine.agents.reading import (
    GPU,
    Answer,
    Cursor,
    FindingId,
    Lines,
    Output,
    Read,
    Reader,
    Seconds,
    TracePath,
    asked_id,
)
from tracemine.errors import UsageError
from tracemine.findings.grouping import scan_of_variants
from tracemine.findings.record import Finding
from tracemine.units import range_text
from tracemine.verdicts.candidate import WITH_PRODUCTS, Candidate
from tracemine.verdicts.files import verdicts_before, write_verdicts
from tracemine.verdicts.verdict import Verdict, Verdicts
from tracemine.verify.internal_errors import Bugs
from tracemine.verify.pipeline import How, fusable, gpu_name, needed
from tracemine.verify.prepare import Ready, candidate_name, prepared
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.repro.emitter import Emitter, write, write_harness
from tracemine.verify.run import verified

_SENTENCES = 3
_LONGEST_TEXT = 400_000  # characters of a reproduction


def emit(
    reader: Reader,
    *,
    path: TracePath,
    id: FindingId,
    gpu: GPU = None,
    output: Output = None,
    limit: Lines = 120,
    cursor: Cursor = None,
) -> Answer:
    """Return a page of the file that runs a finding's operators and its fix, which nothing is run for.

    shows: the variant of the finding that the file is of. refused: why there is none.
    """
    allowed = reader.allowed
    folder = allowed.folder(output, reader.folders)
    read, analysis = reader.analysed(path, gpu)
    asked = read.named(id)
    variant = _fixable(read, asked)
    bugs, before = Bugs(), _names(folder)
    with Emitter(folder if allowed.run else None) as emitter:  # one that writes compiles the kernel too
        ready = prepared(variant, Rebuilder(analysis.dataflow, analysis.groups), emitter, None, bugs, analysis.causes)
    fix, given = ready.candidates[0], _shown(ready)
    name, text = candidate_name(variant, given), given.own_file
    if folder is not None and text is not None and not allowed.run:
        write_harness(folder)
        write(folder, name, text)
    question = ("emit", read.key, variant.fingerprint, output)
    rows = [] if text is None else text[:_LONGEST_TEXT].splitlines(keepends=True)
    shown, following = page(rows, limit, cursor, question)
    return {
        "id": asked_id(read.report[asked], asked),
        "shows": word(variant.fingerprint),
        "rule": word(variant.rule),
        "lines_in_all": len(rows),
        "next_cursor": following,
        "next": "apply the fix that `explain` gives in words"
        if text is None
        else "verify it, where the server may run kernels",
        "untrusted": {
            "refused": maybe(fix.refused or bugs.first, SENTENCE),
            "file_name": None if text is None else quoted(name),
            "text": None if text is None else lines("".join(shown), _LONGEST_TEXT),
            "assumptions": some(fix.assumptions, _SENTENCES, SENTENCE),
            "written": _written(folder, before, reader.folders),
        },
    }


def verify(
    reader: Reader,
    *,
    path: TracePath,
    id: FindingId,
    gpu: GPU = None,
    output: Output = None,
    time_limit_s: Seconds = 60,
) -> Answer:
    """Generate a finding's kernel or apply its fix, check it, and time one occurrence where there is a GPU.

    level: L0 (predicted) to L5, as docs/guide/verify.md has them. Without a GPU nothing is timed, and they end at L2.
    """
    reader.allowed.check_run()
    needed()
    begun = time.monotonic()
    folder = reader.allowed.folder(output, reader.folders)
    stem = None if folder is None else folder / "verdicts"
    read, analysis = reader.analysed(path, gpu)
    asked = read.named(id)
    variant = _fixable(read, asked)
    own_gpu = gpu_name()
    if stem is not None:
        verdicts_before(stem, own_gpu)  # better an error now than after minutes of validation
    before = _names(folder)
    how = How(gpu=own_gpu, time_limit_s=float(time_limit_s), emit=folder)
    run = verified([variant], analysis, scan_of_variants(read.scan), how, step=False)
    if isinstance(run.stopped, Exception):
        raise run.stopped
    if stem is not None:
        seconds, trace = round(time.monotonic() - begun, 1), read.scan.trace.path
        kept = Verdicts(
            trace=trace, gpu=own_gpu, verdicts=run.verdicts, skipped={}, warnings=run.warnings, seconds=seconds
        )
        write_verdicts(kept, stem, own_gpu)
    return {
        "id": asked_id(read.report[asked], asked),
        "next": "change the program, record again, and diff"
        if own_gpu
        else "nothing was timed: a GPU is needed for that",
        "untrusted": {
            "gpu": maybe(own_gpu),
            "verdicts": tuple(map(_judged, run.verdicts)),
            "written": _written(folder, before, reader.folders),
        },
    }


def _fixable(read: Read, fingerprint: str) -> Finding:
    """Return the variant of a finding that a kernel or another call is made for: the one named, or that saves most."""
    finding = read.report[fingerprint]
    variants = fusable([finding])
    named = [one for one in variants if any(name.startswith(fingerprint) for name in one.names)]
    if not variants:
        says = f"no kernel is made for {word(finding.fingerprint)}: its fix is in the program"
        raise UsageError(says, hint="`explain` says what to change")
    return (named or variants)[0]


def _shown(ready: Ready) -> Candidate:
    """Return what is shown: the kernel or another fix, else a library's call that says the same."""
    files = [each for each in ready.candidates if each.own_file is not None and each.by != WITH_PRODUCTS]
    return (files or ready.candidates)[0]


def _judged(verdict: Verdict) -> Answer:
    return {
        "shows": word(verdict.fingerprint),
        "rule": word(verdict.rule),
        "level": word(verdict.level),
        "says": quoted(verdict.says, SENTENCE),
        "predicted": f"saves {range_text(verdict.predicted_ns.low, verdict.predicted_ns.high)}",
        "measured_ns": verdict.measured_ns,
        "within_interval": verdict.within_interval,
        "best": verdict.best,
        "assumptions": some(verdict.assumptions, _SENTENCES, SENTENCE),
        "not_tested": some(verdict.not_tested, _SENTENCES, SENTENCE),
        "bug": maybe(verdict.bug, SENTENCE),
    }


def _names(folder: Path | None) -> dict[Path, int]:
    """Return the files of a folder, with when they were written."""
    return {} if folder is None else {path: path.stat().st_mtime_ns for path in folder.iterdir() if path.is_file()}


def _written(folder: Path | None, before: dict[Path, int], folders: Folders) -> tuple[str, ...]:
    """Return the files that were not there before, or not as they are now."""
    now = sorted(_names(folder).items())
    return tuple(quoted(folders.shown(path)) for path, when in now if before.get(path) != when)
