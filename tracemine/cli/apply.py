"""tracemine apply: fixes tried in the user's own step, and what they were worth there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracemine.cli.console import say, write
from tracemine.cli.described import option
from tracemine.cli.options import ExecutionTraceOption, QuietOption, check_format
from tracemine.cli.progress import reading
from tracemine.cli.request import one_trace
from tracemine.errors import UsageError
from tracemine.extras import install
from tracemine.files import write_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracemine.apply.asked import Wanted
    from tracemine.apply.record import Applied
    from tracemine.findings.record import Scan
    from tracemine.top.record import GraphTop

_FORMATS = ("text", "json")
EditOption = Annotated[list[str] | None, option("apply.edit")]
RanksOption = Annotated[int, option("apply.ranks")]


def apply(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A trace or recording of the step: what is tried first.")],
    entry: Annotated[str, typer.Option(metavar="MODULE:FUNCTION", help="Your function that builds the step.")],
    source: Annotated[Path, typer.Option(metavar="DIR", help="The folder that MODULE is imported from.")] = Path(),
    variants: Annotated[list[str] | None, option("apply.variants")] = None,
    edit: EditOption = None,
    ranks: RanksOption = 1,
    budget: Annotated[str, typer.Option(metavar="SECONDS", help="Begin no variant after so long: 300s.")] = "inf",
    output: Annotated[Path | None, option("apply.output")] = None,
    patch: Annotated[Path | None, option("apply.patch")] = None,
    form: Annotated[str, typer.Option("--format", "-f", metavar="|".join(_FORMATS), help="What to print.")] = "text",
    execution_trace: ExecutionTraceOption = None,
    quiet: QuietOption = False,
) -> int:
    """Try fixes in your own step: torch.compile's modes, settings that findings ask for, source diffs.

    This runs your code: MODULE:FUNCTION, in a process for each variant. What computes something else, is slower or
    crashes is left out and named; the rest is joined, as long as that makes the step faster.

    \b
    Examples:
      tracemine apply run/ --entry my_model:build
      tracemine apply run/ --entry my_model:build --try tf32 --edit host_sync=faster.diff --budget 300s -o applied.jsonl
    """
    check_format(form, _FORMATS)
    said = (lambda text: None) if quiet else say
    options: dict[str, Any] = {"ranks": ranks, "budget_s": _seconds(budget), "say": said}
    from tracemine.api.pictures import tops_of
    from tracemine.pipeline import ScanOptions, analyse, mined

    with reading(path := one_trace(run, quiet=quiet), quiet=quiet) as progress:
        analysis = analyse(path, execution_trace=execution_trace, progress=progress)
        graphs = tops_of(analysis, scan := mined(analysis), ScanOptions()).graphs()
    try:
        from tracemine.apply.edits import mark_of
        from tracemine.apply.record import in_json, known_in
        from tracemine.apply.run import applied
        from tracemine.apply.table import table
        from tracemine.apply.variants import kept
    except ImportError as error:
        raise UsageError(f"trying fixes needs torch: {error}", hint=install("verify")) from error
    wanted = _wanted(scan, graphs, variants or (), edit or (), said)
    options["known"], held = known_in(output, entry, ranks, mark_of(source)), list["Applied"]()
    try:
        held.append(applied(entry, source.absolute(), wanted, progress=held.append, **options))
    finally:
        _append(output, held)
    write_file(patch, kept(held[-1].best, source).encode()) if patch else None
    write((in_json(held[-1]) if form == "json" else "\n".join(table(held[-1]))) + "\n")
    return 0


def _append(output: Path | None, held: Sequence[Applied]) -> None:
    """Add what is known last to a file: what is interrupted goes on from there."""
    from tracemine.apply.record import append

    if output and held:
        append(output, held[-1])


def _seconds(text: str) -> float:
    """Return a number of seconds. Raises UsageError."""
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise UsageError(f"--budget: {text} is no number of seconds", hint="--budget 300s")
    return seconds


def _wanted(
    scan: Scan, graphs: GraphTop, named: Sequence[str], edits: Sequence[str], tell: Callable[[str], None]
) -> Wanted:
    """Return what is to be tried: what is named; else torch.compile's modes and what findings ask for."""
    from tracemine.apply.asked import asked_by, asked_for, found_in
    from tracemine.apply.variants import VARIANTS, edit_name

    unknown = [name for name in named if name not in VARIANTS]
    if unknown:
        raise UsageError(f"--try: there is no {unknown[0]}", hint=f"there are {', '.join(VARIANTS)}")
    findings, modes = found_in(scan, graphs)
    wanted = asked_for(findings, modes, named)
    for name in wanted:
        if VARIANTS[name].rounding:
            tell(f"{name} rounds by up to {VARIANTS[name].rounding:.1g} of a number: what that does is in the table")
    for given in edits:
        rules, _, name = given.rpartition("=")
        if not Path(name).is_file():
            raise UsageError(f"--edit: there is no file {name}")
        wanted[edit_name(Path(name))] = asked_by(findings, rules.split(",") if rules else ())
    return wanted
