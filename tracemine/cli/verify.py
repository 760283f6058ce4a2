"""tracemine verify: from findings to measured verdicts."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tracemine.cli.console import BUG, INTERRUPTED, REPORT_BUG, options, say, say_error, write
from tracemine.cli.described import option
from tracemine.cli.findings import named_finding, stored_scans
from tracemine.cli.options import (
    ExecutionTraceOption,
    FindingOption,
    FindingsArgument,
    NoColorOption,
    QuietOption,
    RulesOption,
    check_format,
    check_top,
)
from tracemine.cli.progress import reading
from tracemine.errors import InputError, Location, TracemineError, UsageError
from tracemine.files import path_text
from tracemine.report import VERDICT_REPORTS, render_verdicts
from tracemine.units import count_text
from tracemine.version import __version__

if TYPE_CHECKING:
    from tracemine.findings.record import Finding, Scan
    from tracemine.pipeline import Analysis
    from tracemine.verdicts.verdict import Verdicts
    from tracemine.verify.prepare import Identity
    from tracemine.verify.run import VerifyRun
    from tracemine.verify.workers.quick import Quick

_LONGEST_S = 1e6

FormatOption = Annotated[str, option("verify.format", metavar="|".join(VERDICT_REPORTS))]
OutputOption = Annotated[Path | None, option("verify.output")]
TopOption = Annotated[int, typer.Option(metavar="N", help="Verify so many findings, 0 for all.")]
RuleOption = Annotated[list[str] | None, option("verify.rule")]
EmitOption = Annotated[Path | None, option("verify.emit")]
StepOption = Annotated[bool, option("verify.step")]
AgainOption = Annotated[bool, typer.Option("--again", help="Also findings that a verdict in the file has settled.")]
MutantsOption = Annotated[bool, option("verify.mutants")]
QuickOption = Annotated[bool, option("verify.quick")]
TimeLimitOption = Annotated[float, option("verify.time_limit")]


def verify(
    path: FindingsArgument,
    report: FormatOption = "text",
    output: OutputOption = None,
    top: TopOption = 10,
    rule: RuleOption = None,
    finding: FindingOption = None,
    emit: EmitOption = None,
    step: StepOption = False,
    again: AgainOption = False,
    quick: QuickOption = False,
    execution_trace: ExecutionTraceOption = None,
    rules: RulesOption = None,
    mutants: MutantsOption = False,
    time_limit: TimeLimitOption = 60.0,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Rebuild what findings would fuse, generate the kernel, validate it, and on a GPU time it.

    Without a GPU the numerics are validated in Triton's interpreter, and nothing is timed. Next to a findings file the
    verdicts are written as NAME.verdicts.json and NAME.verdicts.parquet.

    \b
    Examples:
      tracemine verify trace.json.gz --et et.json.gz --top 3
      tracemine verify trace.json.gz --finding 1
      tracemine verify trace.json.gz --quick
      tracemine verify findings.json --format json
      tracemine verify run/ --step --emit reproductions/
    """
    from tracemine.verdicts.files import verdicts_before, write_verdicts
    from tracemine.verify.pipeline import How, needed
    from tracemine.verify.run import verified

    _check(report, top, time_limit)
    needed()
    begun = time.monotonic()
    with _machine(quick, step) as machine:
        given = _read(path, output, emit, execution_trace, rules or (), finding=finding, quiet=quiet)
        kept, skipped = _selected(given, rule or (), rules or (), top=top, again=again, step=step)
        gpu = _gpu(machine)
        if given.stem is not None:
            verdicts_before(given.stem, gpu)  # better an error now than after minutes of validation
        if gpu is None and not quiet and report == "text":
            say("no GPU here: kernels are validated in Triton's interpreter, levels above L2 are left out")
        asked = None if gpu is None else machine
        how = How(gpu=gpu, mutants=mutants, time_limit_s=time_limit, emit=emit, identity=given.identity, quick=asked)
        with reading(path, quiet=quiet) as bar:
            run = verified(kept, given.analysis, given.scan, how, step=step, progress=bar)
    found = _verdicts(given, run, gpu, skipped, time.monotonic() - begun)
    try:
        text = StringIO()
        render_verdicts(report, found, text, options(sys.stdout, top=top, no_color=no_color))
        write(text.getvalue())
    finally:  # whoever reads what is printed may be gone, or the disk full that it goes to
        if given.stem is not None:
            write_verdicts(found, given.stem, gpu)
    return _ended(run)


def _machine(quick: bool, step: bool) -> contextlib.AbstractContextManager[Quick | None]:
    """Begin what verifies quickly, which takes seconds to begin; None where that is not asked, or no GPU is here."""
    from tracemine.verify.pipeline import has_driver
    from tracemine.verify.workers.quick import Quick

    if quick and step:
        raise UsageError("--quick and --step do not go together", hint="leave one out")
    return Quick() if quick and has_driver() else contextlib.nullcontext()


def _gpu(machine: Quick | None) -> str | None:
    from tracemine.verify.pipeline import gpu_name

    return gpu_name() if machine is None else machine.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What is verified: a trace, read; its findings; and where verdicts go, without the files' endings."""

    trace: Path
    analysis: Analysis
    scan: Scan  # whose findings are variants: a verdict is of one
    stem: Path | None  # None: nowhere
    asked: frozenset[str] | None = None  # names of the finding that is asked for; None: all are
    identity: Identity | None = None  # of findings that a file holds: it may be made up


def _check(report: str, top: int, time_limit_s: float) -> None:
    check_format(report, VERDICT_REPORTS)
    check_top(top, "verifies all findings")
    if not 0 < time_limit_s <= _LONGEST_S:
        says = f"--time-limit: {time_limit_s:g} is no time that a validation could take"
        raise UsageError(says, hint="a number of seconds")


def _read(
    path: Path,
    output: Path | None,
    emit: Path | None,
    execution_trace: Path | None,
    rules: Sequence[Path],
    *,
    finding: str | None,
    quiet: bool,
) -> _Given:
    """Return the findings of a file and their trace, or those of a trace."""
    from tracemine.causes import load_rules
    from tracemine.findings.grouping import scan_of_variants
    from tracemine.findings.identity import identities
    from tracemine.pipeline import ScanOptions, analyse, mined

    given = _findings_in(path)
    stem = _stem(path if given is not None else None, output)
    for folder in (emit, None if stem is None else stem.parent):
        if folder is not None:
            _writable(folder, output is None and folder is not emit)
    trace = path if given is None else _trace_of(given, path)
    if given is not None and execution_trace is None:
        execution_trace = _execution_trace_of(given, path, trace)
    with reading(trace, quiet=quiet) as progress:
        analysis = analyse(trace, execution_trace=execution_trace, progress=progress)
    known = load_rules(*rules)
    if given is None:
        scan = mined(analysis, ScanOptions(rules=known))
        asked = _asked(finding, scan)
        return _Given(trace=trace, analysis=analysis, scan=scan_of_variants(scan), stem=stem, asked=asked)
    identity = identities(analysis.timeline, analysis.rows["activities"], known)
    asked, given = _asked(finding, given), scan_of_variants(given)
    return _Given(trace=trace, analysis=analysis, scan=given, stem=stem, asked=asked, identity=identity)


def _asked(mark: str | None, scan: Scan) -> frozenset[str] | None:
    """Return the names of the finding that --finding means, those of its variants too; None: of all."""
    return None if mark is None else frozenset(named_finding(mark, [scan], "--finding")[0].names)


def _selected(
    given: _Given, names: Sequence[str], rules: Sequence[Path], *, top: int, again: bool, step: bool
) -> tuple[Sequence[Finding], dict[str, int]]:
    """Return the findings that are verified, and how many are not, by reason."""
    from tracemine.findings.verdicts import unjudged
    from tracemine.verify.pipeline import fusable
    from tracemine.verify.step.build import proven

    if step:
        proven(given.analysis.dataflow)
    if names:
        _known(names, given.scan, rules)
    findings = given.scan.reported
    able = fusable([unjudged(f) for f in findings])
    wanted = [f for f in able if given.asked is None or f.fingerprint in given.asked]
    chosen = [f for f in wanted if not names or f.rule in names]
    settled = {f.fingerprint for f in findings if f.verdict is not None and f.verdict.basis != "predicted"}
    left = [f for f in chosen if again or f.fingerprint not in settled]
    kept = left[:top] if top else left
    return kept, {
        "not_reported": len(given.scan.findings) - len(findings),
        "nothing_to_fuse": len(findings) - len(able),
        "another_finding": len(able) - len(wanted),
        "another_rule": len(wanted) - len(chosen),
        "settled": len(chosen) - len(left),
        "beyond_top": len(left) - len(kept),
    }


def _verdicts(given: _Given, run: VerifyRun, gpu: str | None, skipped: Mapping[str, int], seconds: float) -> Verdicts:
    """Return all that is printed and written."""
    from tracemine.verdicts.verdict import Verdicts

    counts = Counter(skipped)
    counts.update({"nothing_to_fuse": -run.of_step, "interrupted": run.left})
    return Verdicts(
        trace=path_text(given.trace),
        gpu=gpu,
        verdicts=run.verdicts,
        skipped={name: count for name, count in counts.items() if count},
        warnings=(*given.scan.warnings, *run.warnings),
        step=run.step,
        seconds=round(seconds, 1),
    )


def _ended(run: VerifyRun) -> int:
    """Return the exit code; what ended the run is raised, and bugs of ours are said."""
    bugs = [*(verdict.bug for verdict in run.verdicts if verdict.bug is not None), *run.bugs]
    if bugs:
        count = len(bugs) - len(run.bugs)
        where = [count_text(count, "finding")] * bool(count) + ["the step"] * len(run.bugs)
        says = f"tracemine {__version__} has a bug, which {' and '.join(where)} came upon"
        say_error(TracemineError(f"{says}; the first is {bugs[0]}", hint=REPORT_BUG))
    if isinstance(run.stopped, OSError | TracemineError):
        raise run.stopped
    return INTERRUPTED if run.stopped else BUG if bugs else 0


def _writable(folder: Path, unasked: bool) -> None:
    """Makes a folder that something is written to at the end: better an error now than after minutes of validation.

    unasked: it was not named, and another can be named.
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
    from tracemine.causes import load_rules

    known = {finding.rule for finding in scan.findings} | {rule.id for rule in load_rules(*rules)}
    for name in names:
        if name not in known:
            raise UsageError(f"--rule: there is no rule {name[:100]!a}", hint="tracemine rules list names them")


def _findings_in(path: Path) -> Scan | None:
    """Return the scan that a file holds; None where it is something else."""
    found = stored_scans(path)
    if found is not None and len(found) != 1:
        raise InputError(f"holds the findings of {len(found)} traces", where=Location(str(path)), hint="verify one")
    return None if found is None else found[0]


def _trace_of(scan: Scan, path: Path) -> Path:
    """Return the trace that findings were found in: where they say, or next to them."""
    return _named(scan.trace.path, (path.parent,)) or _gone("trace", scan.trace.path, path, "verify the trace itself")


def _execution_trace_of(scan: Scan, path: Path, trace: Path) -> Path | None:
    """Return the execution trace that findings were found with: where they say, next to them, or next to the trace."""
    name = scan.trace.execution_trace
    if name is None:
        return None
    return _named(name, (path.parent, trace.parent)) or _gone("execution trace", name, path, "name it with --et")


def _named(name: str, folders: Sequence[Path]) -> Path | None:
    """Return a file that another names, as it is named or by its last part in a folder; None where it is not there."""
    named = Path(name)
    for candidate in (named, *(folder / part for folder in folders for part in (named, named.name))):
        with contextlib.suppress(OSError, ValueError):  # no path at all
            if candidate.exists():
                return candidate
    return None


def _gone(what: str, name: str, path: Path, hint: str) -> NoReturn:
    raise InputError(f"its {what} {name[:200]} is not there", where=Location(str(path)), hint=hint)


def _stem(findings: Path | None, output: Path | None) -> Path | None:
    """Return where verdicts go, without the ending: into a folder, or next to the findings; None: nowhere."""
    if output is not None:
        return output / "verdicts"
    return None if findings is None else findings.with_name(findings.stem + ".verdicts")
