"""What `tracemine rules` and docs/reference/rules.md say of a rule."""

from __future__ import annotations

import pytest

from docs.pages_rules import rules_page
from tests.matching.conftest import RuleMaker
from tracemine.errors import UsageError
from tracemine.matching import Rule
from tracemine.matching.catalogue import case_results, lint_rules, rule_text, show_rule

RULE = """limits = ["Needs shapes."]
false_positives = ["The input is saved | for backward."]
references = ["https://docs.nvidia.com/cutlass/"]
needs = ["shapes"]
pattern = "mm bias{0,2}"
[define]
mm = { op = ["gemm", "addmm"], dur_ns.gte = 5 }
bias = {}
[measures]
removable_ns = "sum(bias.dur_ns)"
"""


@pytest.fixture
def loaded(rule: RuleMaker) -> Rule:
    made = rule(RULE)
    (made.folder / "cases.md").write_text("## Found\n\n|op|dur_ns|expect|\n|-|-|-|\n|gemm|5|mm|\n|add|1|bias|\n")
    return made


def test_a_rule_is_shown_with_everything_it_says(loaded: Rule) -> None:
    assert (
        show_rule([loaded], "epilogue")
        == """## epilogue

**Bias and activation run apart from their GEMM** (experimental)

A GEMM is followed by a bias add and an activation.

**Why.** Each kernel reads and writes the whole output once more.

**Fix.** Use a fused epilogue.

**Saves** device time: one kernel in place of several moves each tensor once. \
The fix calls a compiled function, or a kernel of one's own: the host spends more on it than on an operator.

**Limits.**

- Needs shapes.

**False positives.**

- The input is saved | for backward.

**Needs** `shapes` in the trace.

```text
pattern   mm bias{0,2}
  mm    op is gemm or addmm and dur_ns ≥ 5
  bias  any row
  removable_ns = sum(bias.dur_ns)
over      activities, partitioned by device, stream, ordered by start_ns
after     skip past last row
grouped   ops, shapes, dtype, module
priority  100
```

**References.**

- <https://docs.nvidia.com/cutlass/>

**Cases.**

- Found
"""
    )


def test_the_page_lists_every_rule_and_then_shows_it(loaded: Rule) -> None:
    page = rules_page([loaded])
    assert (
        "| [epilogue](#epilogue) | Bias and activation run apart from their GEMM | activities | experimental |" in page
    )
    assert page.endswith(rule_text(loaded))


def test_lint_and_cases_can_be_asked_of_one_rule(loaded: Rule) -> None:
    assert [problem.check for problem in lint_rules([loaded], ["epilogue"])] == ["a_case_is_a_near_miss"]
    assert [result.passed for result in case_results([loaded])] == [True]


def test_a_rule_that_is_not_there_is_named_with_those_that_are(loaded: Rule) -> None:
    with pytest.raises(UsageError) as error:
        show_rule([loaded], "epilog")
    assert str(error.value) == "there is no rule 'epilog'\n  hint: there are: epilogue"
