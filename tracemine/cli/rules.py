"""tracemine rules: what is looked for, and whether the rules hold what they promise."""

from __future__ import annotations

import shlex
import sys
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracemine.cli.complete import complete_rule
from tracemine.cli.console import options, say, write
from tracemine.cli.described import argument, option
from tracemine.cli.options import ExecutionTraceOption, GPUOption, NoColorOption, QuietOption, RulesOption, group_help
from tracemine.cli.request import ScanRequest, analysed, device_named, one_trace, rules_asked
from tracemine.errors import UsageError
from tracemine.report.escape import line
from tracemine.units import count_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tracemine.matching import Rule

_FAILED = 1
_LONGEST = 2000  # characters of a line
_IdsArgument = Annotated[list[str] | None, argument("rules._ids", autocompletion=complete_rule)]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.callback(invoke_without_command=True)
def rules(context: typer.Context) -> int:
    """List, show, write, lint and test rules.

    \b
    Example:
      tracemine rules list
    """
    return group_help(context)


@app.command("list", short_help="A line for each rule.")
def list_(rules: RulesOption = None) -> int:
    """List the rules, in the order in which they claim what they match.

    \b
    Example:
      tracemine rules list --rules my_rules/
    """
    lines = [(one.id, one.rows, one.status, line(one.title)) for one in rules_asked(rules)]
    if sys.stdout.isatty():
        from rich.table import Table

        table = Table.grid("", "", "", "", padding=(0, 2, 0, 0))
        for one in lines:
            table.add_row(*one)
        _draw(table)
        return 0
    width = max((len(name) for name, *_ in lines), default=0)
    write("".join(f"{name:{width}}  {rows:10}  {status:12}  {title}\n" for name, rows, status, title in lines))
    return 0


@app.command(short_help="Everything a rule says.")
def show(rule: Annotated[str, argument("rules.rule", autocompletion=complete_rule)], rules: RulesOption = None) -> int:
    """Show a rule: what it finds, why it matters, the fix, its limits, its pattern and its cases.

    \b
    Example:
      tracemine rules show rmsnorm_unfused
    """
    from tracemine.matching.catalogue import show_rule
    from tracemine.report.markdown import rule_text

    text = show_rule(rules_asked(rules), rule, written=rule_text)
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        _draw(Markdown(text, code_theme="ansi_light", hyperlinks=False))
    else:
        write(text)
    return 0


@app.command(short_help="Begin a rule.")
def new(
    name: Annotated[str, typer.Argument(metavar="ID", help="The rule's id: what is found, not the cure.")],
    directory: Annotated[Path, option("rules.directory")] = Path("my_rules"),
) -> int:
    """Write a folder to begin a rule with: rule.toml, and cases.md with a near miss, with TODOs to be filled in.

    \b
    Example:
      tracemine rules new bias_apart --in my_rules/
    """
    from tracemine.matching.scaffold import new_rule

    folder = new_rule(name, directory)
    given = shlex.quote(str(directory))
    write(f"{line(str(folder))}: rule.toml, cases.md\n")
    say(f"fill in each TODO; what is left of them says: tracemine rules lint {name} --rules {given}")
    return 0


@app.command(short_help="Say what rules lack.")
def lint(ids: _IdsArgument = None, rules: RulesOption = None) -> int:
    """Say what rules lack: cases, near misses, limits, bounds. Exit code 1 if something is lacking.

    \b
    Example:
      tracemine rules lint my_rules/
    """
    from tracemine.matching.catalogue import lint_rules

    problems = lint_rules(*_asked(ids, rules))
    write("".join(f"{line(str(problem), _LONGEST)}\n" for problem in problems) or "nothing to fix\n")
    return _FAILED if problems else 0


@app.command(short_help="Run the cases of rules.")
def test(ids: _IdsArgument = None, rules: RulesOption = None) -> int:
    """Run the cases of rules. Exit code 1 if one fails.

    \b
    Examples:
      tracemine rules test rmsnorm_unfused
      tracemine rules test my_rules/
    """
    from tracemine.matching.catalogue import case_results

    results = case_results(*_asked(ids, rules))
    failed = [result for result in results if not result.passed]
    for result in failed:
        said = (f"{result.where}: {result.heading}: {problem}" for problem in result.problems)
        write("".join(f"{line(one, _LONGEST)}\n" for one in said))
    misses = sum(result.known_miss for result in results if result.passed)
    known = f", {count_text(misses, 'known miss')}" if misses else ""
    write(f"{count_text(len(results) - len(failed), 'case')} passed{known}, {len(failed):,} failed\n")
    return _FAILED if failed else 0


@app.command(short_help="Say why a rule does not match a trace.")
def why(
    rule: Annotated[str, argument("rules.rule", autocompletion=complete_rule)],
    trace: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, timeline or capture.")],
    execution_trace: ExecutionTraceOption = None,
    gpu: GPUOption = None,
    rules: RulesOption = None,
    quiet: QuietOption = False,
    no_color: NoColorOption = False,
) -> int:
    """Say why a rule does not match a trace: its nearest miss, and the condition that failed.

    A near miss is what the rule would match with one condition left out. Of matches it says what became.

    \b
    Examples:
      tracemine rules why rmsnorm_unfused trace.json.gz
      tracemine rules why my_rule trace.json.gz --rules my_rules/
    """
    from tracemine.matching.catalogue import chosen
    from tracemine.matching.nearest_miss import why as why_of
    from tracemine.pipeline import ScanOptions, mined
    from tracemine.report.rule_why import render

    if Path(rule).exists() and not Path(trace).exists():
        raise UsageError(f"ID: {rule!r} is a file", hint=f"tracemine rules why {trace} {rule}")
    known = rules_asked(rules)
    asked = chosen(known, [rule])[0]
    device = None if gpu is None else device_named(gpu)
    request = ScanRequest(options=ScanOptions(rules=known, device=device), quiet=quiet, execution_trace=execution_trace)
    analysis = analysed(one_trace(trace, quiet=quiet), request)
    found = why_of(asked, analysis.rows[asked.rows])
    scan = mined(analysis, request.options)
    alone = mined(analysis, ScanOptions(rules=(asked,), device=device))
    text = StringIO()
    render(found, scan, alone.dropped, text, options(sys.stdout, top=0, no_color=no_color))
    write(text.getvalue())
    return 0


def _asked(ids: list[str] | None, directories: list[Path] | None) -> tuple[tuple[Rule, ...], list[str]]:
    """Return the rules that are known, and which of them are asked for: those named, else those of the folders.

    A folder may be named in place of an id, as with --rules. No id is all.
    """
    known, ids = rules_asked(directories), ids or []
    ours = {rule.id for rule in known}
    folders = [one for one in ids if one not in ours and Path(one).is_dir()]
    known = rules_asked([*(directories or ()), *map(Path, folders)]) if folders else known
    named = [one for one in ids if one not in folders]
    shipped = {rule.id for rule in rules_asked(None)}
    theirs = [rule.id for rule in known if rule.id not in shipped and rule.id not in named]
    return known, [*named, *theirs] if folders or not named else named


def _draw(shown: RenderableType) -> None:
    """Write what rich lays out, in the terminal's width."""
    from tracemine.report.paragraphs import console_for

    text = StringIO()
    console_for(text, options(sys.stdout, top=0, no_color=False)).print(shown)
    write("".join(f"{one.rstrip()}\n" for one in text.getvalue().splitlines()))
