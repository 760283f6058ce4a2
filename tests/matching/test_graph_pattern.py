"""The graph pattern language: what is read, and what is refused with its place and reason."""

# ruff: noqa: E501 — one refusal a line: the list is read as a table

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.matching.conftest import DOCS, HEAD, RuleMaker
from tracemine.errors import RuleError
from tracemine.matching import find
from tracemine.matching.cases import read_cases, run_cases
from tracemine.matching.catalogue import rule_text
from tracemine.matching.graph_parse import parse_graph
from tracemine.matching.graph_pattern import Comparison, Group, Operand, SameInput, Segment
from tracemine.matching.lint import lint
from tracemine.matching.load import load_rule
from tracemine.matching.pattern import PatternError

LABELS = ("product", "softmax", "pointwise", "cast")


def test_paths_groups_tests_and_only_reader_are_read() -> None:
    pattern = parse_graph(
        """
        (qk IS product)<-[reads]-{0,6}(between IS pointwise|cast)<-[reads]-(softmax),
        (softmax)<-[reads]-{0,2}(:cast)<-[reads]-(pv IS product)
        WHERE qk.out_shape[-1] = pv.in0_shape[-1] AND SAME INPUT (qk, pv) AND qk.out_dtype <> 'float64'
        ONLY READER (qk, between)
        """,
        LABELS,
    )
    assert pattern.vertices == {"qk": ("product",), "softmax": ("softmax",), "pv": ("product",)}
    between = Group("between", ("pointwise", "cast"), False, 0, 6)
    casts = Group(None, ("cast",), False, 0, 2)
    assert pattern.segments == (Segment("qk", (between,), False, "softmax"), Segment("softmax", (casts,), False, "pv"))
    last = [Operand("qk", "out_shape", -1, None), Operand("pv", "in0_shape", -1, None)]
    dtype = Comparison(Operand("qk", "out_dtype", None, None), "<>", Operand(None, "", None, "float64"))
    assert pattern.where == (Comparison(last[0], "=", last[1]), SameInput("qk", "pv"), dtype)
    assert pattern.only_reader == ("qk", "between")
    assert pattern.variables == ("qk", "softmax", "pv", "between", "cast")
    assert pattern.labels == ("product", "softmax", "pointwise", "cast")


def test_an_edge_reads_from_left_to_right_or_from_right_to_left() -> None:
    one = parse_graph("(softmax)-[reads]->(cast)", LABELS).segments
    other = parse_graph("(softmax)<-[reads]-(cast)", LABELS).segments
    assert (one[0].reads, other[0].reads) == (True, False)


def test_what_follows_the_last_node_may_be_left_out() -> None:
    (segment,) = parse_graph("(softmax)<-[reads]-{0,2}(cast)", LABELS).segments
    assert segment == Segment("softmax", (Group("cast", ("cast",), False, 0, 2),), True, None)
    assert list(segment.ways()) == [(2,), (1,), (0,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(softmax)", "one node alone is no graph pattern"),
        ("(softmax)-[reads]->", "column 20: the end stands where '(' of a node is expected"),
        ("(softmax)-[writes]->(cast)", "column 10: there is no edge 'writes'"),
        ("(softmax)-[]->(cast)", "column 10: this edge has no label"),
        ("(softmax)-->(cast)", "column 10: '-' means nothing in a graph pattern"),
        ("(softmax)-[reads]-(cast)", "column 10: '-' means nothing in a graph pattern"),
        ("(softmax)-[reads]->*(cast)", "column 20: '*' means nothing in a graph pattern"),
        ("(softmax)-[reads]->{2,}(cast)", "column 20: '{2,}' has no bound"),
        ("(softmax)-[reads]->{3,1}(cast)", "column 20: '{3,1}' allows no node"),
        ("(softmax)-[reads]->{0,0}(cast)", "column 20: '{0,0}' allows no node"),
        ("(softmax)-[reads]->{0,9}(cast)", "column 20: '{0,9}' counts beyond 8"),
        ("(softmax)-[reads]->{x}(cast)", "column 20: '{x}' is not a count"),
        ("(softmax)-[reads]->(a IS norm)", "column 26: define does not name 'norm'"),
        ("(softmax)-[reads]->(a)", "column 21: what 'a' is, is not said"),
        ("(softmax)-[reads]->(:cast)", "column 21: ':' stands where a variable is expected"),
        ("(softmax)-[reads]->(softmax IS cast)", "column 21: the labels of 'softmax' are said twice"),
        ("(softmax)-[reads]->{1,2}(cast)-[reads]->(cast)", "column 42: 'cast' is bound to several nodes already"),
        ("(softmax)-[reads]->{1,2}(softmax)", "column 26: 'softmax' is another node already"),
        ("(softmax)-[reads]->(cast), (a IS product)-[reads]->(b IS product)", "no path leads from 'softmax' to 'a': each could be anywhere"),
        ("(softmax)-[reads]->(cast) WHERE x.out_rank = 4", "column 33: no node is called 'x'"),
        ("(softmax)-[reads]->(cast) WHERE cast.rows = 4", "column 33: a node has no column 'rows'"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_rank", "column 46: the end stands where a comparison is expected"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_rank = '4'", "column 33: cast.out_rank is a number and '4' a text"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_dtype < 'a'", "column 33: cast.out_dtype has no order: '<' does not compare it"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_dtype[0] = 1", "column 33: out_dtype is one value, without an index"),
        ("(softmax)-[reads]->(cast) WHERE 1 = 1", "column 33: this test asks nothing of a node"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_dtype = 'x", "column 50: this text does not end"),
        ("(softmax)-[reads]->(cast) WHERE cast.out_rank = 4 OR cast.out_rank = 3", "column 51: 'OR' stands where ',', WHERE, AND, ONLY READER or the end is expected"),
        ("(softmax)-[reads]->(cast) WHERE NOT cast.out_rank = 4", "column 33: no node is called 'NOT'"),
        ("(softmax)-[reads]->{0,2}(cast) WHERE cast.out_rank = 4", "column 38: 'cast' may be several nodes, or none: a test asks of one"),
        ("(softmax)-[reads]->(cast) ONLY READER (x)", "column 40: no node is called 'x'"),
        ("(softmax)-[reads]->(cast) ONLY READER", "column 38: the end stands where '(' before variables is expected"),
        ("MATCH (softmax)-[reads]->(cast)", "column 1: 'MATCH' stands where '(' of a node is expected"),
        ("(softmax)-[reads]->{0,8}(:cast)-[reads]->{0,8}(:product)", "the counts behind 'softmax' make 81 ways; at most 64 are offered"),
        ("\n  (softmax)-[reads]->(cast)\n  WHERE cast.out_rank == 4", "column 23"),
    ],
)  # fmt: skip
def test_what_the_language_has_not_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PatternError) as error:
        parse_graph(text, LABELS)
    if message.startswith("column 23"):
        assert error.value.message == "line 3, column 24: '=' stands where a variable is expected"
    else:
        assert error.value.message == message


def test_a_match_of_more_nodes_than_are_offered_is_refused() -> None:
    text = "(softmax)" + "".join(f"-[reads]->{{0,8}}(:cast)-[reads]->(v{i} IS cast)" for i in range(4))
    with pytest.raises(PatternError, match="a match could have 37 nodes; at most 32 are offered"):
        parse_graph(text, LABELS)


RULE = """match = "(mm)<-[reads]-(act), (act)<-[reads]-{0,1}(:copy)"
[define]
mm = { op = "gemm" }
act = { op = ["gelu", "silu"] }
copy = { op = "copy" }
[measures]
kernels = "count(mm, act, copy)"
"""

CASES = """## The activation reads the product

| node | reads | op   | expect |
|------|-------|------|--------|
| y    | x, w  | gemm | mm     |
| z    | x, w  | gemm |        |
| a    | y     | gelu | act    |
| c    | a     | copy | copy   |

## Near miss: it reads something else

| node | reads | op   | expect |
|------|-------|------|--------|
| y    | x, w  | gemm |        |
| a    | x     | gelu |        |

## Near miss: in a table of rows nobody reads anything

| op   | expect |
|------|--------|
| gemm |        |
| gelu |        |
"""


def test_cases_with_a_column_reads_are_graphs(rule: RuleMaker) -> None:
    loaded = rule(RULE)
    (loaded.folder / "cases.md").write_text(CASES, "utf-8")
    assert [(result.heading, result.problems) for result in run_cases(loaded)] == [
        ("The activation reads the product", ()),
        ("Near miss: it reads something else", ()),
        ("Near miss: in a table of rows nobody reads anything", ()),
    ]
    assert [problem.message for problem in lint(loaded)] == []
    case = read_cases(loaded)[0]
    assert find(loaded, case.rows).measures["kernels"].tolist() == [3]


def test_a_wrong_expectation_fails(rule: RuleMaker) -> None:
    loaded = rule(RULE)
    (loaded.folder / "cases.md").write_text(CASES.replace("| mm     |", "|        |"), "utf-8")
    assert run_cases(loaded)[0].problems == ("row 1: expected nothing, found mm",)


def test_lint_asks_for_a_case_of_every_variable(rule: RuleMaker) -> None:
    loaded = rule(RULE)
    (loaded.folder / "cases.md").write_text(
        CASES.replace("| copy   |\n\n", "|        |\n\n").replace("copy", "mul"), "utf-8"
    )
    assert "no case expects 'copy'" in [problem.message for problem in lint(loaded)]


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("|node|reads|op|expect|\n|-|-|-|-|\n|a|b|gemm||\n|b|a|gemm||", ":4: reads: 'b' does not stand above\n  hint: operators are in order of time"),
        ("|node|reads|op|expect|\n|-|-|-|-|\n|a|x|gemm||\n|a|x|gemm||", ":5: node: 'a' is there twice"),
        ("|node|reads|out_shape|expect|\n|-|-|-|-|\n|a|x|8x8||", ":4: out_shape: '8x8' is no shape\n  hint: write [8,64,64]"),
        ("|node|reads|out_layout|expect|\n|-|-|-|-|\n|a|x|nhwc||", ":4: out_layout: 'nhwc' is no layout\n  hint: there are: contiguous, channels_last, strided, heads_inside"),
        ("|node|reads|kept|expect|\n|-|-|-|-|\n|a|x|yes||", ":4: kept: 'yes' is neither true nor false"),
        ("|node|reads|axis|expect|\n|-|-|-|-|\n|a|x|1||", ":4: axis: '1' is no axis\n  hint: axes are counted from the end: -1 is the last"),
        ("|node|reads|kernel|expect|\n|-|-|-|-|\n|a|x|1||", None),
    ],
)  # fmt: skip
def test_a_broken_graph_is_said_with_its_line(rule: RuleMaker, tmp_path: Path, table: str, text: str | None) -> None:
    loaded = rule(RULE)
    (loaded.folder / "cases.md").write_text(f"## x\n{table}\n", "utf-8")
    with pytest.raises(RuleError) as error:
        read_cases(loaded)
    if text is None:
        assert "the rows have no column 'kernel'" in str(error.value)
    else:
        assert str(error.value) == f"{tmp_path}/epilogue/cases.md{text}"


WHERE = [
    ("a.out_shape = b.in0_shape", True),
    ("a.out_shape <> b.in0_shape", False),
    ("a.out_shape = b.in1_shape", False),
    ("a.out_shape <> b.in1_shape", True),
    ("a.out_shape = b.out_shape", False),
    ("a.out_shape <> b.out_shape", False),  # not known
    ("a.out_shape[0] = 2", True),
    ("a.out_shape[-1] = 5", True),
    ("a.out_shape[-5] = 2", False),
    ("a.out_shape[4] <> 2", False),
    ("a.out_shape[-1] < b.in1_shape[-1]", True),
    ("a.out_shape[-1] >= 6", False),
    ("a.out_rank = 4", True),
    ("a.out_rank > 4", False),
    ("b.out_rank < 9", False),
    ("a.out_dtype = 'float16'", True),
    ("a.out_dtype <> 'float16'", False),
    ("a.out_dtype = b.in1_dtype", False),
    ("b.out_dtype <> 'float16'", False),
    ("a.out_layout = 'channels_last'", True),
    ("b.in1_layout = 'strided'", True),
    ("b.in1_layout = 'contiguous'", False),
    ("a.out_memory[-1] = 3", True),  # channels innermost
    ("a.out_memory = b.in0_memory", True),
    ("a.out_memory <> a.out_shape", True),
    ("a.out_memory[4] <> 2", False),
    ("c.out_memory = c.out_shape", True),
    ("b.in1_memory = b.in1_shape", False),  # there are gaps
    ("b.in1_memory <> b.in1_shape", False),
    ("b.out_memory <> a.out_memory", False),  # not known
    ("b.axis = -1", True),
    ("a.axis = -1", False),
    ("SAME INPUT (a, b)", False),
    ("SAME INPUT (c, b)", True),
]


@pytest.mark.parametrize(("test", "holds"), WHERE, ids=[test for test, _ in WHERE])
def test_where_compares_shapes_dtypes_layouts_and_axes_and_what_is_not_known_does_not_hold(
    rule: RuleMaker, test: str, holds: bool
) -> None:
    loaded = rule(
        f'match = "(b IS gelu)-[reads]->(a IS mm), (b)-[reads]->(c IS add) WHERE {test}"\n'
        '[define]\nmm = { op = "gemm" }\ngelu = { op = "gelu" }\nadd = { op = "add" }\n'
    )
    (loaded.folder / "cases.md").write_text(
        "## x\n"
        "|node|reads  |op  |out_shape|out_dtype|out_layout   |in1_shape|in1_dtype|in1_layout|axis|expect|\n"
        "|----|-------|----|---------|---------|-------------|---------|---------|----------|----|------|\n"
        "|a   |x      |gemm|[2,3,4,5]|float16  |channels_last|         |         |          |    |      |\n"
        "|c   |w      |add |[4,6]    |float32  |             |         |         |          |    |      |\n"
        "|b   |a, c, w|gelu|         |         |             |[4,6]    |float32  |strided   |-1  |      |\n",
        "utf-8",
    )
    (case,) = read_cases(loaded)
    assert len(find(loaded, case.rows)) == holds


STAYS = """
match = "(act)-[reads]->{0,2}(add)-[reads]->(mm)"
stays = ["mm", "add"]
[define]
mm = { op = "gemm" }
add = { op = "add" }
act = { op = "gelu" }
"""


def test_what_stays_is_needed_for_a_match_and_is_not_found(rule: RuleMaker) -> None:
    loaded = rule(STAYS)
    lines = "## x\n|node|reads|op|expect|\n|-|-|-|-|\n|a|x|{0}||\n|b|a|add||\n|c|b|gelu|{1}|\n"
    for op, matched in (("gemm", True), ("relu", False)):
        (loaded.folder / "cases.md").write_text(lines.format(op, "act" if matched else ""), "utf-8")
        (result,) = run_cases(loaded)
        assert not result.problems
        (case,) = read_cases(loaded)
        assert find(loaded, case.rows).rows.tolist() == ([2] if matched else [])


def test_a_match_of_which_all_stays_is_none(rule: RuleMaker) -> None:
    loaded = rule(STAYS.replace('act = { op = "gelu" }', "act = {}"))
    (loaded.folder / "cases.md").write_text(
        "## x\n|node|reads|op|expect|\n|-|-|-|-|\n|a|x|gemm||\n|b|a|add||\n|c|x|gemm||\n|d|c|gelu|act|\n", "utf-8"
    )
    (case,) = read_cases(loaded)
    found = find(loaded, case.rows)
    assert found.evidence is not None
    assert (found.rows.tolist(), found.offsets.tolist(), len(found.evidence)) == ([3], [0, 1], 1)


def test_a_rule_of_which_all_stays_is_refused(rule: RuleMaker) -> None:
    with pytest.raises(RuleError) as error:
        rule(STAYS.replace('["mm", "add"]', '["mm", "add", "act"]'))
    assert "nothing is left of a match" in str(error.value)
    with pytest.raises(RuleError) as error:
        rule(STAYS.replace('["mm", "add"]', '["softmax"]'))
    assert "'softmax' is none of its values" in str(error.value)


def test_of_a_rule_with_both_the_row_pattern_counts_only_where_reads_are_unknown_or_guessed(rule: RuleMaker) -> None:
    loaded = rule(
        'match = "(mm)<-[reads]-(act)"\npattern = "mm act"\n[define]\nmm = { op = "gemm" }\nact = { op = "gelu" }\n'
    )
    lines = "## x\n|node|reads|op|guessed|unknown|expect|\n|-|-|-|-|-|-|\n|a|x|gemm|||{0}|\n|b|{2}|gelu|{3}|{4}|{1}|\n"
    for reads, guessed, unknown, matched, evidence in (
        ("a", "", "", True, [2]),
        ("a", "true", "", True, [0]),
        ("x", "true", "", True, [-1]),
        ("x", "", "true", True, [-1]),
        ("x", "", "", False, []),
    ):
        expected = ("mm", "act") if matched else ("", "")
        (loaded.folder / "cases.md").write_text(lines.format(*expected, reads, guessed, unknown), "utf-8")
        assert run_cases(loaded)[0].problems == ()
        found = find(loaded, read_cases(loaded)[0].rows)
        assert found.evidence is not None
        assert found.evidence.tolist() == evidence


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('match = "(mm)-[reads]->(act)"\n[define]\nmm = { op = "x" }\n', "match: column 16: what 'act' is, is not said"),
        ('match = "(mm)-[reads]->(a IS mm)"\n[define]\nmm = { op = "x" }\nact = { op = "y" }\n', "define.act: the pattern does not use 'act'"),
        ('match = "(mm)-[reads]->(a IS mm)"\nafter_match = "skip to next row"\n[define]\nmm = { op = "x" }\n', "after_match: matches of a graph pattern do not overlap"),
        ('rows = "gaps"\nmatch = "(mm)-[reads]->(a IS mm)"\n[define]\nmm = { cause = "x" }\n', "match: the rows are gaps: only operators read what others wrote"),
        ('match = "(mm)-[reads]->(a IS mm)"\n[define]\nmm = { op = "x" }\n[measures]\nn = "count(act)"\n', "measures.n: 'act' is not defined"),
    ],
)  # fmt: skip
def test_a_rule_whose_graph_pattern_cannot_be_used_is_refused_at_its_key(tmp_path: Path, body: str, text: str) -> None:
    folder = tmp_path / "epilogue"
    folder.mkdir()
    (folder / "rule.toml").write_text(HEAD + body, "utf-8")
    with pytest.raises(RuleError) as error:
        load_rule(folder, DOCS)
    assert text in str(error.value)


def test_a_rules_page_shows_its_graph_pattern_line_by_line(rule: RuleMaker) -> None:
    loaded = rule(
        RULE.replace(
            '"(mm)<-[reads]-(act), (act)<-[reads]-{0,1}(:copy)"',
            '"""\n  (mm)<-[reads]-(act),\n  (act)<-[reads]-{0,1}(:copy)\n"""',
        )
    )
    text = rule_text(loaded)
    assert "match     (mm)<-[reads]-(act),\n          (act)<-[reads]-{0,1}(:copy)\n  mm    op is gemm\n" in text


def test_the_example_on_the_rules_page_is_a_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "rules.md").read_text("utf-8")
    example = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    pattern = parse_graph(example["match"], tuple(example["define"]))
    assert set(pattern.labels) == set(example["define"])
