"""The rules as a catalogue: what `tracemine rules list|show|lint|test` print, and the page docs/reference/rules.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Final

from tracemine.errors import UsageError
from tracemine.matching.advice import FLAGS, PLACEHOLDER, TEXTS, Advice, when_text
from tracemine.matching.cases import CaseResult, read_cases, run_cases
from tracemine.matching.graph_match import WAYS
from tracemine.matching.graph_parse import MOST_REPEATED
from tracemine.matching.graph_pattern import COLUMN_SAYS, GraphPattern
from tracemine.matching.lint import Problem, lint
from tracemine.matching.load import RowDocs
from tracemine.matching.nearest import nearest
from tracemine.matching.rule import CALLS, Measure, Rule
from tracemine.rows import ROW_DOCS

SAVING_TEXT: Final = {
    "fuse": "device time: one kernel in place of several moves each tensor once",
    "one_pass": "device time and launches: one pass over lists of tensors in place of many small kernels",
    "attention": "device time: one attention kernel in place of products and a softmax",
    "close_gap": "idle time of the device",
    "close_break": "idle time of the device while the host is between two compiled graphs",
    "pin_memory": "device time of copies that pageable memory slows down",
    "remove": "device time of work that is not done any more",
    "reach_rate": "device time of a library's call that is far below what the device reaches",
    "batch": "device time and launches: one call of each operator for all turns of a loop",
}


_GRAPH_TEXT: Final = f"""
A rule has a `pattern` over rows in order (SQL:2016's row patterns), or a `match` over dataflow (SQL:2023's
property graph patterns), or both:

```toml
match = \"\"\"
(softmax)-[reads]->{{0,6}}(between IS scaled|added)-[reads]->(scores IS product),
(softmax)<-[reads]-{{0,2}}(:cast)<-[reads]-(values IS product)
WHERE scores.out_shape[-1] = values.in0_shape[-1]
ONLY READER (scores, between)\"\"\"

[define]
product = {{ op_class = "gemm" }}
softmax = {{ op_class = "softmax" }}
scaled = {{ operation = ["mul", "div"] }}
added = {{ operation = "add" }}
cast = {{ op_class = "copy" }}
```

A node is an operator with all that it launched; a view launches nothing, and is looked through. `(a IS x|y)` is a
node that has one of the labels, which are tests in `define`: one of its kernels passes all tests of the label. `(a)`
is short for `(a IS a)`, or is the node that was named before. `(a)-[reads]->(b)`: a reads what b wrote;
`(a)<-[reads]-(b)`: b reads what a wrote. `-[reads]->{{n,m}}(between IS x|y)`: n to m such edges in a row (at most
{MOST_REPEATED}), each to a node of which every kernel passes; where there are none the next edge begins at the node
before, and where nothing follows it is left out if it is not there. Paths are joined by variables that both name.
`WHERE` joins by `AND` comparisons (`= <> < <= > >=`) of the columns below with each other, an integer or a
`'text'`, and `SAME INPUT (a, b)`: both read one value, or parts of it that lie over each other. What is not known
does not hold. `ONLY READER (a, …)`: nothing but the match reads what these wrote; a result that is wanted after its
step, or is there while something with unknown inputs runs, may be read by others. Where the recorded
memory does not tell how long results are there they go with their last reader, and the match is `consistent` at best.
Anything else is refused.

A node is in a match once, and all nodes of a match agree in the `partition_by` columns. Matches of one rule do not
overlap: the one whose first node is earliest is taken, of several the one with the most nodes, then the one whose
nodes are earlier. From one node at most {WAYS} partial matches are followed; where there are more, none is. The
evidence of a match is that of its weakest edge: `proven`, `consistent` or `adjacent`. Where it is not known who reads
what, nothing matches. Of a rule with both the `pattern` counts there, and where what one of its rows reads is a
guess; else the graph has decided. `match` may be a list of patterns: what an earlier one has taken is taken. `stays`
names labels: what has one of them is needed for a match, and is not what is found.

In cases.md a table with a column `reads` is a graph, a line an operator in order of time: `node` names it, `reads`
names nodes above it, in the order of its arguments, or tensors from outside. Beside the rows' columns there are those
below, and the flags `kept` (the result is wanted later), `guessed` (what it reads is a guess) and `unknown` (what
it reads and writes is not known).

| column | says |
|---|---|
"""


@dataclass(frozen=True, slots=True)
class RuleLine:
    """One line of `rules list`."""

    id: str
    title: str
    status: str
    rows: str
    pattern: str


@dataclass(frozen=True, slots=True)
class RulePage:
    """What `rules show` has: the rule, its documentation in Markdown, and the headings of its cases."""

    rule: Rule
    text: str
    cases: tuple[str, ...]


def list_rules(rules: Sequence[Rule]) -> tuple[RuleLine, ...]:
    """A line a rule, in the order in which they claim."""
    return tuple(RuleLine(rule.id, rule.title, rule.status, rule.rows, _pattern_text(rule)) for rule in rules)


def _pattern_text(rule: Rule) -> str:
    return "\n".join(pattern.text for pattern in (*rule.match, rule.pattern) if pattern is not None)


def show_rule(
    rules: Sequence[Rule], rule_id: str, docs: RowDocs = ROW_DOCS, written: Callable[[str], str] = str
) -> RulePage:
    """Everything a rule says. Raises UsageError for an id that is not there.

    written: as in `rule_text`.
    """
    rule = chosen(rules, [rule_id])[0]
    return RulePage(rule, rule_text(rule, written), tuple(case.heading for case in read_cases(rule, docs)))


def lint_rules(rules: Sequence[Rule], ids: Sequence[str] = (), docs: RowDocs = ROW_DOCS) -> tuple[Problem, ...]:
    """The problems of the rules named; of all where none is named."""
    return tuple(problem for rule in chosen(rules, ids) for problem in lint(rule, docs))


def case_results(rules: Sequence[Rule], ids: Sequence[str] = (), docs: RowDocs = ROW_DOCS) -> tuple[CaseResult, ...]:
    """The cases of the rules named; of all where none is named."""
    return tuple(result for rule in chosen(rules, ids) for result in run_cases(rule, docs))


def chosen(rules: Sequence[Rule], ids: Sequence[str]) -> tuple[Rule, ...]:
    """The rules with these ids, in that order; all where none is given. Raises UsageError."""
    by_id = {rule.id: rule for rule in rules}
    for rule_id in ids:
        if rule_id not in by_id:
            raise UsageError(f"there is no rule {rule_id!r}", hint=nearest(rule_id, by_id))
    return tuple(by_id[rule_id] for rule_id in ids) if ids else tuple(rules)


# --- documentation ---------------------------------------------------------------------------------------------------


def rule_text(rule: Rule, written: Callable[[str], str] = str) -> str:
    """One rule as Markdown, from a second-level heading on; ends with a newline.

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
    """How much of the work a rule expects to stay."""
    if rule.left is None:
        return ""
    low, mid, high = rule.left
    what = "Of it" if rule.saving == "remove" else "Where one kernel saves less than that, of it"
    return f" {what} {mid:.0%} are expected to stay ({low:.0%} to {high:.0%})."


def _called(rule: Rule) -> str:
    """What its fix calls, which decides what is left of the host's work."""
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
    return "```text\n" + "\n".join("".join(map(_seen, one)) for one in lines) + "\n```"


def _lines(match: GraphPattern) -> Iterable[tuple[int, str]]:
    """A graph pattern's lines, without what stands before all of them."""
    return enumerate(cleandoc(match.text).splitlines())


def _seen(c: str) -> str:
    """A character of a pattern or a value, escaped where it is not seen."""
    return c if c.isprintable() else ascii(c)[1:-1]


def measure_text(measure: Measure) -> str:
    """A measure as a rule file writes it.

    >>> measure_text(Measure("removable_ns", "sum", ("bias", "act"), "dur_ns"))
    'removable_ns = sum(bias.dur_ns, act.dur_ns)'
    """
    column = "" if measure.column is None else f".{measure.column}"
    return f"{measure.name} = {measure.function}({', '.join(variable + column for variable in measure.variables)})"


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def rules_page(rules: Sequence[Rule]) -> str:
    """docs/reference/rules.md: a table of all rules, then each rule.

    >>> rules_page(()).splitlines()[0]
    '# Rules'
    """
    head = (
        "# Rules\n\nGenerated from the folders in rules/. Rules claim activities and gaps in this order: what one has "
        "claimed no later one reports.\n\n| rule | finds | over | status |\n|---|---|---|---|\n"
    )
    table = "".join(f"| [{r.id}](#{r.id}) | {_cell(r.title)} | {r.rows} | {r.status} |\n" for r in rules)
    return head + table + _graph_text() + _facts_text() + "".join("\n" + rule_text(rule) for rule in rules)


def _graph_text() -> str:
    """What `match` means, with an example."""
    lines = [f"| `{name}` | {says} |" for name, says in COLUMN_SAYS.items()]
    return _GRAPH_TEXT + "\n".join(lines) + "\n"


def _facts_text() -> str:
    """What an advice may ask of a trace and of a finding's place."""
    lines = [f"| `{name}` | {says} |" for name, says in FLAGS.items()]
    for name, (says, known) in TEXTS.items():
        of = "" if known is None else f": {', '.join(f'`{each}`' for each in known)}"
        lines.append(f"| `{name}` | {says}{of} |")
    return (
        "\nA rule has one fix, and may have others where the trace or the finding's place asks for them: `[[advice]]` "
        "tables with `when` and `text`, of which the first that fits counts. `when` asks for facts: those below "
        f"`{list(FLAGS)[-1]}` have texts, the others hold or do not; what is not known does not hold. `{PLACEHOLDER}` "
        "in a text stands for what would break the capture of a CUDA graph. A table may have a `title` as well."
        "\n\n| fact | says |\n|---|---|\n" + "\n".join(lines) + "\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
