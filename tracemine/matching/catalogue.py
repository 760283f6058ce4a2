"""The rules as a catalogue: what `tracemine rules list|show|lint|test` print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import cleandoc
from typing import Final

from tracemine.errors import UsageError
from tracemine.matching.advice import PLACEHOLDER, Advice, when_text
from tracemine.matching.cases import CaseResult, read_cases, run_cases
from tracemine.matching.graph_pattern import GraphPattern
from tracemine.matching.lint import Problem, lint
from tracemine.matching.nearest import RULE_NAMES, nearest
from tracemine.matching.rule import CALLS, Measure, Rule
from tracemine.tables import table_beside
from tracemine.timeline import PRODUCERS

_TABLE = table_beside(__file__, "savings.toml")
SAVING_TEXT: Final = _TABLE["saving_text"]


def show_rule(rules: Sequence[Rule], rule_id: str, written: Callable[[str], str] = str) -> str:
    """Return everything a rule says as Markdown, its cases too. Raises UsageError for an id that is not there.

    written: as in `rule_text`.
    """
    rule = chosen(rules, [rule_id])[0]
    text, cases = rule_text(rule, written), _bullets([written(case.heading) for case in read_cases(rule)])
    return f"{text}\n**Cases.**\n\n{cases}\n" if cases else text


def lint_rules(rules: Sequence[Rule], ids: Sequence[str] = ()) -> tuple[Problem, ...]:
    """Return the problems of the rules named; of all where none is named."""
    return tuple(problem for rule in chosen(rules, ids) for problem in lint(rule))


def case_results(rules: Sequence[Rule], ids: Sequence[str] = ()) -> tuple[CaseResult, ...]:
    """Return the cases of the rules named; of all where none is named."""
    return tuple(result for rule in chosen(rules, ids) for result in run_cases(rule))


def chosen(rules: Sequence[Rule], ids: Sequence[str]) -> tuple[Rule, ...]:
    """Return the rules with these ids, in that order; all where none is given. Raises UsageError."""
    by_id = {rule.id: rule for rule in rules}
    for rule_id in ids:
        if rule_id not in by_id:
            raise UsageError(f"there is no rule {rule_id!r}", hint=nearest(rule_id, by_id, RULE_NAMES))
    return tuple(by_id[rule_id] for rule_id in ids) if ids else tuple(rules)


# --- documentation ---------------------------------------------------------------------------------------------------


def rule_text(rule: Rule, written: Callable[[str], str] = str) -> str:
    """Return one rule as Markdown, from a second-level heading on; ends with a newline.

    written: what becomes of each text of the rule, which may be a stranger's.
    """
    parts = [f"## {rule.id}", f"**{written(rule.title)}** ({rule.status})", written(rule.what)]
    parts += [
        f"**Why.** {written(rule.why)}",
        f"**Fix.** {written(rule.fix.replace(PLACEHOLDER, ''))}",
        *(_advice_text(one, written) for one in rule.advice),
        f"**Saves** {SAVING_TEXT[rule.saving]}.{_called(rule)}{_left(rule)}",
    ]
    for title, texts in (("Limits", rule.limits), ("False positives", rule.false_positives)):
        if texts:
            parts.append(f"**{title}.**\n\n{_bullets([written(text) for text in texts])}")
    if rule.producers != ("torch",):
        parts.append(f"**Holds for** {', '.join(PRODUCERS[one] for one in rule.producers)}.")
    if rule.needs:
        parts.append(f"**Needs** {', '.join(f'`{need}`' for need in rule.needs)} in the trace.")
    parts.append(_matched(rule))
    if rule.references:
        parts.append(f"**References.**\n\n{_bullets([written(f'<{reference}>') for reference in rule.references])}")
    return "\n\n".join(parts) + "\n"


def _advice_text(one: Advice, written: Callable[[str], str]) -> str:
    title = "" if one.title is None else f" “{written(one.title)}”:"
    return f"**Fix where {when_text(one.when)}.**{title} {written(one.text.replace(PLACEHOLDER, ''))}"


def _left(rule: Rule) -> str:
    """Return how much of the work a rule expects to stay."""
    if rule.left is None:
        return ""
    low, mid, high = rule.left
    what = "Of it" if rule.saving == "remove" else "Where one kernel saves less than that, of it"
    return f" {what} {mid:.0%} are expected to stay ({low:.0%} to {high:.0%})."


def _called(rule: Rule) -> str:
    """Return what its fix calls, which decides what is left of the host's work."""
    return f" The fix calls {CALLS[rule.call]}." if rule.saving in ("fuse", "one_pass") else ""


def _matched(rule: Rule) -> str:
    partition = ", ".join(rule.partition_by) or "nothing"
    lines = [f"{'' if n else 'match':9} {text}" for match in rule.match for n, text in _lines(match)]
    if rule.stays:
        lines.append(f"stays     {', '.join(rule.stays)}")
    if rule.pattern is not None:
        lines.append(f"pattern   {rule.pattern.text}")
    width = max(len(variable) for variable in rule.define)
    for variable, tests in rule.define.items():
        lines.append(f"  {variable:{width}}  {' and '.join(map(str, tests)) or 'any row'}")
    lines += [f"  {measure_text(measure)}" for measure in rule.measures]
    lines.append(f"over      {rule.rows}, partitioned by {partition}, ordered by {', '.join(rule.order_by)}")
    lines.append(f"after     {rule.after_match}")
    lines.append(f"grouped   {', '.join(rule.group_by) or 'all matches together'}")
    lines.append(f"priority  {rule.priority}")
    return "```text\n" + "\n".join("".join(map(_seen, line)) for line in lines) + "\n```"


def _lines(match: GraphPattern) -> Iterable[tuple[int, str]]:
    """Return a graph pattern's lines, without what stands before all of them."""
    return enumerate(cleandoc(match.text).splitlines())


def _seen(c: str) -> str:
    """Return a character of a pattern or a value, escaped where it is not seen."""
    return c if c.isprintable() else ascii(c)[1:-1]


def measure_text(measure: Measure) -> str:
    """Return a measure as a rule file writes it.

    >>> measure_text(Measure("removable_ns", "sum", ("bias", "act"), "dur_ns"))
    'removable_ns = sum(bias.dur_ns, act.dur_ns)'
    """
    column = "" if measure.column is None else f".{measure.column}"
    return f"{measure.name} = {measure.function}({', '.join(variable + column for variable in measure.variables)})"


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
