"""Why a rule did or did not match a trace, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from rich.text import Text

from tracemine.documents.words import left_out_text
from tracemine.report.escape import line, shorten
from tracemine.report.paragraphs import LABEL, console_for, labelled, print_rows
from tracemine.units import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracemine.findings.record import Finding, Scan
    from tracemine.matching.nearest_miss import NearMiss, Why
    from tracemine.report import Drawing

_MOST_MISSES, _MOST_VALUES, _MOST_VARIABLES = 5, 4, 6
_LONGEST_VALUE = 60
_OF_NO_MATCH = "path_not_known"  # counts pairs of kernels
_NEEDS = {"ops": "operators", "shapes": "shapes"}


def render(why: Why, scan: Scan, alone: Mapping[str, int], out: TextIO, options: Drawing) -> None:
    """Write how far a rule comes in a trace.

    scan: by all rules. alone: what a scan by this rule alone left out, by reason.
    """
    console = console_for(out, options)
    console.print(Text(line(f"{why.rule.id}: {why.rule.title}"), "bold"))
    console.print(Text(line(scan.trace.path), LABEL))
    console.print()
    found = [finding for finding in scan.findings if finding.rule == why.rule.id]
    facts = (
        ("matches", [Text(f"{why.matches:,} in {count_text(why.rows, 'row')} of {line(why.rule.rows)}")]),
        ("findings", list(_findings(found)) if why.matches else []),
        ("left out", list(_left_out(why, found, alone))),
        ("lacks", list(_lacking(why, scan))),
        ("nearest", list(_misses(why))),
        ("no row is", list(_unsatisfied(why))),
    )
    print_rows(console, (row for label, values in facts for row in labelled(label, *values)))


def _findings(found: list[Finding]) -> Iterator[Text]:
    for finding in found:
        shown = "" if finding.reported else ", not shown: it saves too little"
        yield Text(line(f"{finding.fingerprint} · {count_text(finding.occurrences, 'occurrence')}{shown}"))
    if not found:
        yield Text("none")


def _left_out(why: Why, found: list[Finding], alone: Mapping[str, int]) -> Iterator[Text]:
    """Say what became of matches that are no findings: by this rule alone, and along with the others."""
    for reason, count in sorted(alone.items(), key=lambda item: -item[1]):
        if reason == _OF_NO_MATCH:
            continue
        yield Text(line(f"{count_text(count, 'match')} {left_out_text(reason)}"))
    rest = why.matches - sum(finding.occurrences for finding in found) - sum(alone.values())
    if rest > 0:
        yield Text(
            f"{rest:,} more: other rules claim them (scan --rule shows this one alone), or several are one occurrence"
        )


def _lacking(why: Why, scan: Scan) -> Iterator[Text]:
    """Say what the rule needs that was not recorded."""
    recorded = scan.recorded
    if recorded is not None:
        has = {"ops": bool(recorded.operators), "shapes": recorded.shapes}
        for need in why.rule.needs:
            if not has.get(need, True):
                yield Text(f"the trace has no {_NEEDS[need]}, which the rule needs")
    if why.rule.match and not why.graph_known:
        yield Text("dataflow is not known: the rule is looked for by name and order, or not at all")


def _misses(why: Why) -> Iterator[Text]:
    if why.matches:
        return
    for miss in why.misses[:_MOST_MISSES]:
        yield _miss_text(miss)
    if not why.misses:
        yield Text("nothing matches with any one condition left out: two or more are in the way, or rows are too few")
    elif len(why.misses) > _MOST_MISSES:
        yield Text(f"{len(why.misses) - _MOST_MISSES:,} more", LABEL)


def _miss_text(miss: NearMiss) -> Text:
    would = f"{count_text(miss.matches, 'match')} but for "
    instead = ", ".join(shorten(line(value), _LONGEST_VALUE) for value in miss.values[:_MOST_VALUES])
    more = ", …" if len(miss.values) > _MOST_VALUES else ""
    column = miss.condition.partition(" ")[0]
    is_ = f": there {line(column)} is {instead}{more}" if miss.values else ""
    rows = f" (row {miss.first.rows[0]:,} and on)" if len(miss.first.rows) > 1 else f" (row {miss.first.rows[0]:,})"
    return Text.assemble(would, (line(miss.condition), "bold"), is_, (rows, LABEL))


def _unsatisfied(why: Why) -> Iterator[Text]:
    """Name the variables that no row can be, with all that is asked of them."""
    if why.matches:
        return
    names = [name for name, count in why.satisfied.items() if not count]
    for name in names[:_MOST_VARIABLES]:
        yield Text(line(f"{name}: {' and '.join(map(str, why.rule.define[name]))}", 400))
    if len(names) > _MOST_VARIABLES:
        yield Text(f"{len(names) - _MOST_VARIABLES:,} more", LABEL)
