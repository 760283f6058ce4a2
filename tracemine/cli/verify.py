"""tracemine verify: from findings to measured verdicts."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tracemine import __version__
from tracemine.cli.console import BUG, INTERRUPTED, REPORT_BUG, ending, options, say, say_error, write, write_file
from tracemine.cli.findings import stored_scans
from tracemine.cli.progress import reading
from tracemine.cli.scan import ExecutionTraceOption, QuietOption, RulesOption
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import read_file
from tracemine.units import count_text

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.flow import Flow
    from tracemine.fusion import Groups
    from tracemine.verify.bugs import Bugs
    from tracemine.verify.findings import Identity
    from tracemine.verify.step.compared import StepVerdict
    from tracemine.verify.verdicts.verdict import Verdict, Verdicts

FORMATS = ("text", "json")
_LONGEST_S = 1e6
_LARGEST_BYTES = 1 << 30  # of verdicts that lie there already


def verify(
    path: Annotated[Path, typer.Argument(metavar="FINDINGS.json|TRACE", help="What scan printed as JSON, or a trace.")],
    report: Annotated[str, typer.Option("--format", "-f", metavar="|".join(FORMATS), help="What to print.")] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write verdicts.json and verdicts.parquet here."),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", help="Verify so many findings, 0 for all.")] = 10,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="RULE", help="Only findings of this rule. May be repeated.")
    ] = None,
    emit: Annotated[
        Path | None,
        typer.Option("--emit", metavar="DIR", help="Write a reproduction of each finding, a file that stands alone."),
    ] = None,
    step: Annotated[
        bool, typer.Option("--step", help="Also replay a whole step, with the fused kernels in place (level L6).")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Also findings that a verdict in the file has settled.")
    ] = False,
    execution_trace: ExecutionTraceOption = None,
    rules: RulesOption = None,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Also try wrong kernels beside the right ones, which must be found out.")
    ] = False,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Processor time that the proof of a finding may take.")
    ] = 60.0,
    quiet: QuietOption = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR=1 does the same.")] = False,
) -> int:
    """Rebuild what findings would fuse, generate the kernel, prove it, and on a GPU time it.

    Without a GPU the numerics are proved in Triton's interpreter, and nothing is timed. Beside a findings file the
    verdicts are written as NAME.verdicts.json and NAME.verdicts.parquet.

    \b
    Examples:
      tracemine verify trace.json.gz --et et.json.gz --top 3
      tracemine verify findings.json --format json
      tracemine verify run/ --step --emit reproductions/
    """
    from tracemine.findings.record import GRAPH
    from tracemine.findings.verdicts import unjudged
    from tracemine.verify.bugs import Bugs
    from tracemine.verify.findings import How, fusable, gpu_name, needed
    from tracemine.verify.findings import verify as verified
    from tracemine.verify.step.build import proven
    from tracemine.verify.verdicts.verdict import Verdicts

    if report not in FORMATS:
        raise UsageError(f"--format: there is no report {report!r}", hint=f"there are: {', '.join(FORMATS)}")
    if top < 0:
        raise UsageError(f"--top: {top} is negative", hint="0 verifies all findings")
    if not 0 < time_limit <= _LONGEST_S:
        raise UsageError(f"--time-limit: {time_limit:g} is no time that a proof could take", hint="a number of seconds")
    needed()
    begun = time.monotonic()
    given = _findings_in(path)
    stem = _stem(path if given is not None else None, output)
    for folder in (emit, None if stem is None else stem.parent):
        if folder is not None:
            _writable(folder, output is None and folder is not emit)
    trace = _trace_of(given, path) if given is not None else path
    if given is not None and execution_trace is None:
        execution_trace = _execution_trace_of(given, path, trace)
    flow, groups, scan = _read(trace, execution_trace, rules or (), quiet=quiet, given=given)
    if step:
        proven(flow)
    if rule:
        _known(rule, scan, rules or ())
    able = fusable([unjudged(f) for f in scan.findings])
    chosen = [f for f in able if not rule or f.rule in rule]
    settled = {f.fingerprint for f in scan.findings if f.verdict is not None and f.verdict.basis != "predicted"}
    left = [f for f in chosen if again or f.fingerprint not in settled]
    kept = left[:top] if top else left
    skipped = {
        "nothing_to_fuse": len(scan.findings) - len(able),
        "another_rule": len(able) - len(chosen),
        "settled": len(chosen) - len(left),
        "beyond_top": len(left) - len(kept),
    }
    gpu = gpu_name()
    if stem is not None:
        _before(stem, gpu)  # better an error now than after minutes of proofs
    if gpu is None and not quiet and report == "text":
        say("no GPU here: kernels are proved in Triton's interpreter, levels above L2 are left out")
    how = How(gpu=gpu, mutants=mutants, time_limit_s=time_limit, emit=emit)
    if given is not None:
        how = replace(how, identity=_identities(flow, groups, rules or ()))
    done: list[Verdict] = []
    verdicts: tuple[Verdict, ...] = ()
    warnings = list(scan.warnings)
    stepped, bugs = None, Bugs()
    stopped: KeyboardInterrupt | OSError | TracemineError | None = None
    try:
        with ending():
            with reading(path, quiet=quiet) as bar:
                done.extend(verified(kept, flow, groups, how, bar or (lambda done, all_: None)))
            if step:
                verdicts, stepped = _stepped(done, kept, flow, groups, scan, gpu, emit, warnings, bugs)
                skipped["nothing_to_fuse"] -= sum(v.by == GRAPH for v in verdicts)
    except (KeyboardInterrupt, OSError, TracemineError) as error:  # what is proved by now took its time, and is kept
        if not done:
            raise
        stopped = error
        skipped["interrupted"] = len(kept) - len(done)
        warnings += ["no step was replayed: the run ended before"] * step
    verdicts = verdicts or tuple(done)
    found = Verdicts(
        trace=str(trace).encode("utf-8", "replace").decode(),
        gpu=gpu,
        verdicts=verdicts,
        skipped={name: count for name, count in skipped.items() if count},
        warnings=tuple(warnings),
        step=stepped,
        seconds=round(time.monotonic() - begun, 1),
    )
    try:
        _print(found, report, top=top, no_color=no_color)
    finally:  # whoever reads what is printed may be gone, or the disk full that it goes to
        if stem is not None:
            _write(found, stem, gpu)
    said = [*(verdict.bug for verdict in verdicts if verdict.bug is not None), *bugs.said]
    if said:
        count = len(said) - len(bugs.said)
        where = [count_text(count, "finding")] * bool(count) + ["the step"] * len(bugs.said)
        says = f"tracemine {__version__} has a bug, which {' and '.join(where)} came upon"
        say_error(TracemineError(f"{says}; the first is {said[0]}", hint=REPORT_BUG))
    if isinstance(stopped, OSError | TracemineError):
        raise stopped
    return INTERRUPTED if stopped else BUG if said else 0


def _writable(folder: Path, unasked: bool) -> None:
    """Makes a folder that something is written to at the end: better an error now than after minutes of proofs.

    unasked: nobody named it, and another can be named.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        says = "is a file, not a folder" if folder.is_file() else f"cannot be written to: {error.strerror}"
        hint = "name another folder with --output" if unasked else None
        raise UsageError(says, where=Location(str(folder)), hint=hint) from None


def _known(names: Sequence[str], scan: Scan, rules: Sequence[Path]) -> None:
    """Raises UsageError for a name that is neither a rule nor a finding's."""
    from tracemine.engine import load_rules

    known = {finding.rule for finding in scan.findings} | {rule.id for rule in load_rules(*rules)}
    for name in names:
        if name not in known:
            raise UsageError(f"--rule: there is no rule {name[:100]!a}", hint="tracemine rules list names them")


def _stepped(
    verdicts: Sequence[Verdict],
    findings: Sequence[Finding],
    flow: Flow,
    groups: Groups,
    scan: Scan,
    gpu: str | None,
    emit: Path | None,
    warnings: list[str],
    bugs: Bugs,
) -> tuple[tuple[Verdict, ...], StepVerdict | None]:
    """The verdicts, raised where the step confirms them, and the step's own; a warning where there is none."""
    from tracemine.verify.rebuild.rebuilder import Rebuilder
    from tracemine.verify.step.build import NoStep
    from tracemine.verify.stepping import gaps_closed, raised, stepped

    def replayed() -> tuple[tuple[Verdict, ...], StepVerdict]:
        found = stepped(findings, verdicts, Rebuilder(flow, groups), scan, gpu=gpu, emit=emit)
        return (*raised(verdicts, found), *gaps_closed(scan, found)), found

    try:
        found = bugs.tried(replayed)
    except NoStep as reason:
        found = reason.message
    if isinstance(found, str):
        warnings.append(f"no step was replayed: {found}")
        return tuple(verdicts), None
    return found


def _findings_in(path: Path) -> Scan | None:
    """The scan that a file holds; None where it is something else."""
    found = stored_scans(path)
    if found is not None and len(found) != 1:
        raise InputError(f"holds the findings of {len(found)} traces", where=Location(str(path)), hint="verify one")
    return None if found is None else found[0]


def _trace_of(scan: Scan, path: Path) -> Path:
    """The trace that findings were found in: where they say, or beside them."""
    return _named(scan.trace.path, (path.parent,)) or _gone("trace", scan.trace.path, path, "verify the trace itself")


def _execution_trace_of(scan: Scan, path: Path, trace: Path) -> Path | None:
    """The execution trace that findings were found with: where they say, beside them, or beside the trace."""
    name = scan.trace.execution_trace
    if name is None:
        return None
    return _named(name, (path.parent, trace.parent)) or _gone("execution trace", name, path, "name it with --et")


def _named(name: str, folders: Sequence[Path]) -> Path | None:
    """A file that another names, as it is named or by its last part in a folder; None where it is not there."""
    named = Path(name)
    for candidate in (named, *(folder / part for folder in folders for part in (named, named.name))):
        with contextlib.suppress(OSError, ValueError):  # no path at all
            if candidate.exists():
                return candidate
    return None


def _gone(what: str, name: str, path: Path, hint: str) -> NoReturn:
    raise InputError(f"its {what} {name[:200]} is not there", where=Location(str(path)), hint=hint)


def _read(
    trace: Path, execution_trace: Path | None, rules: Sequence[Path], *, quiet: bool, given: Scan | None
) -> tuple[Flow, Groups, Scan]:
    from tracemine.engine import load_rules, mine
    from tracemine.findings import device_of, find
    from tracemine.flow import flow
    from tracemine.formats import open_trace
    from tracemine.fusion import groups
    from tracemine.rows import row_sets

    with reading(trace, quiet=quiet) as progress:
        timeline = open_trace(trace, progress, execution_trace=execution_trace)
    found_flow = flow(timeline)
    found = groups(found_flow)
    if given is not None:
        return found_flow, found, given
    rows = row_sets(timeline, found)
    matches = mine(rows, load_rules(*rules))
    return found_flow, found, find(timeline, rows, matches, device_of(timeline), groups=found, path=str(trace))


def _identities(flow: Flow, groups: Groups, rules: Sequence[Path]) -> Identity:
    """Which fingerprints findings of a file have in the trace: the file may be made up."""
    from tracemine.engine import load_rules
    from tracemine.findings.identity import identities
    from tracemine.rows import row_sets

    return identities(flow.timeline, row_sets(flow.timeline, groups)["activities"], load_rules(*rules))


def _print(found: Verdicts, report: str, *, top: int, no_color: bool) -> None:
    import msgspec

    from tracemine.report.escape import json_text

    if report == "json":
        write(json_text(msgspec.json.encode(found).decode()) + "\n")
        return
    text = StringIO()
    how = options(sys.stdout, top=top, no_color=no_color)
    from tracemine.cli.verdicts import render

    render(found, text, how)
    write(text.getvalue())


def _stem(findings: Path | None, output: Path | None) -> Path | None:
    """Where verdicts go, without the ending: into a folder, or beside the findings; None: nowhere."""
    if output is not None:
        return output / "verdicts"
    return None if findings is None else findings.with_name(findings.stem + ".verdicts")


def _before(stem: Path, gpu: str | None) -> Verdicts | None:
    """The verdicts that lie there already, which those of now join; None where none do."""
    import msgspec

    from tracemine.verify.verdicts.verdict import VERDICTS_SCHEMA_VERSION, Verdicts

    path = stem.with_name(stem.name + ".json")
    try:
        if not path.exists():
            return None
        found = msgspec.json.decode(read_file(path, _LARGEST_BYTES), type=Verdicts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        says = f"is not what verify wrote, and would be written over: {str(error)[:150]}"
        raise InputError(says, where=Location(str(path)), hint="move it away, or name a folder with --output") from None
    if found.schema_version != VERDICTS_SCHEMA_VERSION:
        says = f"its verdicts are of version {found.schema_version}; this tracemine writes {VERDICTS_SCHEMA_VERSION}"
        raise InputError(says, where=Location(str(path)), hint="move it away, or name a folder with --output")
    if None not in (gpu, found.gpu) and gpu != found.gpu:
        raise InputError(
            f"its verdicts are of another GPU, {str(found.gpu)[:100]}",
            where=Location(str(path)),
            hint="name another folder with --output: scan --evidence reads both",
        )
    return found


def _write(found: Verdicts, stem: Path, gpu: str | None) -> None:
    """Adds verdicts to those that lie there by now: another run may have ended meanwhile."""
    import msgspec
    import pyarrow.parquet as pq

    from tracemine.verify.verdicts.verdict import merged, table

    with _locked(stem.parent):
        before = _before(stem, gpu)
        both = found if before is None else merged(before, found)
        columns = BytesIO()
        pq.write_table(table(both), columns, compression="zstd")
        write_file(stem.with_name(stem.name + ".json"), msgspec.json.encode(both) + b"\n")
        write_file(stem.with_name(stem.name + ".parquet"), columns.getvalue())


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else reads and writes verdicts there meanwhile, where the system knows such locks."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            held = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
