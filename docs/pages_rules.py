"""docs/reference/rules.md, from the folders in rules/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracemine.causes import VOCABULARY
from tracemine.matching.advice import PLACEHOLDER
from tracemine.matching.catalogue import rule_text
from tracemine.matching.graph_match import WAYS
from tracemine.matching.graph_parse import MOST_REPEATED
from tracemine.matching.graph_pattern import COLUMN_SAYS
from tracemine.matching.rule import Rule

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
step, or is there while something with unknown inputs runs, may be read by others. Where dataflow was inferred, what
another may read by a guess and leads back into the match is read by others too. Where the recorded memory does not tell
how long results are there they go with their last reader, and the match is `consistent` at best.
Anything else is refused.

A node is in a match once, and all nodes of a match agree in the `partition_by` columns. Matches of one rule do not
overlap: the one whose first node is earliest is taken, of several the one with the most nodes, then the one whose
nodes are earlier. From one node at most {WAYS} partial matches are followed; where there are more, none is. The
evidence of a match is that of its weakest edge: `proven`, `consistent` or `adjacent`. Where it is not known who reads
what, nothing matches. Of a rule with both the `pattern` counts there, and where what one of its rows reads is a
guess; else the graph has decided. `match` may be a list of patterns: what an earlier one has taken is taken. `stays`
names labels or variables: what has one of them is needed for a match, and is not what is found.

In cases.md a table with a column `reads` is a graph, a line an operator in order of time: `node` names it, `reads`
names nodes above it, in the order of its arguments, or tensors from outside. Beside the rows' columns there are those
below, and the flags `kept` (the result is wanted later), `guessed` (what it reads is a guess) and `unknown` (what
it reads and writes is not known).

| column | says |
|---|---|
"""


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
    lines = []
    for name, fact in VOCABULARY.facts.items():
        of = "" if fact.values is None else f": {', '.join(f'`{each}`' for each in fact.values)}"
        lines.append(f"| `{name}` | {'text' if fact.text else 'flag'} | {fact.says}{of} |")
    return (
        "\nA rule has one fix, and may have others where the trace or the finding's place asks for them: `[[advice]]` "
        "tables with `when` and `text`, of which the first that fits counts. `when` asks for facts: a flag holds or "
        f"does not, a text is one of several; what is not known does not hold. `{PLACEHOLDER}` in a text stands for "
        "what would break the capture of a CUDA graph. A table may have a `title` as well."
        "\n\n| fact | kind | says |\n|---|---|---|\n" + "\n".join(lines) + "\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
