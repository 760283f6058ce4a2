"""Every way a rule.toml can be wrong, with the message word for word: file, line, key, and what would be right."""

# ruff: noqa: E501 — one error a line: ERRORS is read as a table

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.matching.conftest import DOCS, HEAD, RuleMaker
from tracemine.causes import VOCABULARY
from tracemine.errors import RuleError, UsageError
from tracemine.matching.advice import Facts, advised
from tracemine.matching.load import load_rule, load_rules, rules_directory
from tracemine.matching.rule_file import key_line

GOOD = """pattern = "mm bias? act"
[define]
mm = { op = "gemm" }
bias = { op = "add", gap_ns.lt = 20_000 }
act = { op = ["gelu", "silu"], gap_ns = { gte = 0, lt = 20_000 } }
[measures]
kernels_removed = "count(bias, act)"
removable_ns = "sum(bias.dur_ns, act.dur_ns)"
"""


def test_a_rule_is_read_with_its_defaults(rule: RuleMaker) -> None:
    loaded = rule(GOOD)
    assert (loaded.id, loaded.rows, loaded.priority, loaded.after_match) == (
        "epilogue",
        "activities",
        100,
        "skip past last row",
    )
    assert loaded.partition_by == ("device", "stream")
    assert loaded.order_by == ("start_ns",)
    assert loaded.group_by == ("ops", "shapes", "dtype", "module")
    assert [str(test) for test in loaded.define["act"]] == ["op is gelu or silu", "gap_ns ≥ 0", "gap_ns < 20000"]
    assert loaded.columns == ("device", "stream", "start_ns", "op", "gap_ns", "dur_ns")


def test_gaps_are_partitioned_by_device_because_they_have_no_stream(rule: RuleMaker) -> None:
    loaded = rule('rows = "gaps"\npattern = "gap"\ndefine.gap = { cause = "unknown" }\n')
    assert loaded.partition_by == ("device",)


# One line of GOOD replaced (or added before it), and the error: line, key, message, hint.
ERRORS = [
    ('pattern = "mm bias? act"', 'pattern = "mm bais? act"', "7: pattern", "the pattern uses 'bais', which define does not name", "define names: mm, bias, act"),
    ('pattern = "mm bias? act"', 'pattern = "mm act"', "10: define.bias", "the pattern does not use 'bias'", "the pattern uses: mm, act"),
    ('pattern = "mm bias? act"', 'pattern = "mm? bias? act?"', "7: pattern", "the pattern can match no row at all", "make one variable mandatory"),
    ('pattern = "mm bias? act"', 'pattern = "mm (bias act"', "7: pattern", "column 4: '(' is never closed", None),
    ('pattern = "mm bias? act"', 'pattern = "mm bias) act"', "7: pattern", "column 8: ')' closes a group that was never opened", None),
    ('pattern = "mm bias? act"', 'pattern = "mm (bias | act)+"', "7: pattern", "column 16: '+' follows a group; only a variable can be repeated", "define one variable for the choice and repeat that; (a |) says that a may be left out"),
    ('pattern = "mm bias? act"', 'pattern = "mm bias?+ act"', "7: pattern", "column 9: '+' follows '?'; only a variable can be repeated", None),
    ('pattern = "mm bias? act"', 'pattern = "* mm bias act"', "7: pattern", "column 1: '*' follows nothing; only a variable can be repeated", None),
    ('pattern = "mm bias? act"', 'pattern = "mm  bias, act"', "7: pattern", "column 9: ',' means nothing in a pattern", "a pattern has variables, ( ) and |, and ? * + {n} {n,} {n,m} after a variable"),
    ('pattern = "mm bias? act"', 'pattern = "mm bias{x} act"', "7: pattern", "column 8: '{x}' is not a count", "write {n}, {n,} or {n,m} with integers"),
    ('pattern = "mm bias? act"', 'pattern = "mm bias{3,2} act"', "7: pattern", "column 8: '{3,2}' allows no row", "write {n,m} with n ≤ m and m ≥ 1"),
    ('pattern = "mm bias? act"', 'pattern = "mm bias{0} act"', "7: pattern", "column 8: '{0}' allows no row", "write {n,m} with n ≤ m and m ≥ 1"),
    ('pattern = "mm bias? act"', 'pattern = "mm bias{1,1001} act"', "7: pattern", "column 8: '{1,1001}' counts beyond 1000", "write {n,} for any number"),
    ('pattern = "mm bias? act"', 'pattern = 3', "7: pattern", "this is an integer; it must be a string", None),
    ('pattern = "mm bias? act"', 'pattern = " "', "7: pattern", "this is empty", "say it in a sentence"),
    ('pattern = "mm bias? act"', 'patern = "mm bias? act"', "7: patern", "a rule has no such key", "did you mean pattern?"),
    ('pattern = "mm bias? act"', "", "", "the key 'pattern' is missing", "it is a string"),
    ('mm = { op = "gemm" }', 'mm = "gemm"', "9: define.mm", "this is a string; it must be a table of tests, { column = value }", None),
    ('mm = { op = "gemm" }', 'mm = { opp = "gemm" }', "9: define.mm.opp", "the rows have no column 'opp'", "did you mean op?"),
    ('mm = { op = "gemm" }', 'mm = { op.like = "gemm" }', "9: define.mm.op.like", "there is no test 'like'", "the tests are: is, contains, re, lt, lte, gt, gte"),
    ('mm = { op = "gemm" }', 'mm = { op.lt = "gemm" }', "9: define.mm.op.lt", "'lt' cannot test op, which holds categories", "use is or contains or re"),
    ('mm = { op = "gemm" }', 'mm = { dur_ns.contains = "1" }', "9: define.mm.dur_ns.contains", "'contains' cannot test dur_ns, which holds numbers", "use is or lt or lte or gt or gte"),
    ('mm = { op = "gemm" }', "mm = { op = 7 }", "9: define.mm.op", "this is an integer; op is compared with a string, or a list of them", None),
    ('mm = { op = "gemm" }', "mm = { op = [] }", "9: define.mm.op", "this list is empty: nothing would pass", None),
    ('mm = { op = "gemm" }', "mm = { op = {} }", "9: define.mm.op", "this table has no test", "the tests are: is, contains, re, lt, lte, gt, gte"),
    ('mm = { op = "gemm" }', 'mm = { dur_ns.lt = "9" }', "9: define.mm.dur_ns.lt", "this is a string; dur_ns is compared with a number", None),
    ('mm = { op = "gemm" }', "mm = { dur_ns.lt = true }", "9: define.mm.dur_ns.lt", "this is a boolean; dur_ns is compared with a number", None),
    ('mm = { op = "gemm" }', "mm = { dur_ns.lt = [1, 2] }", "9: define.mm.dur_ns.lt", "this is a list; it must be one value", None),
    ('mm = { op = "gemm" }', "mm = { dur_ns.lt = nan }", "9: define.mm.dur_ns.lt", "nothing compares with nan", None),
    ('mm = { op = "gemm" }', 'mm = { graph = "yes" }', "9: define.mm.graph", "this is a string; graph is compared with true or false", None),
    ('mm = { op = "gemm" }', "mm = { dur_ns.lt = 5, dur_ns.gt = 5 }", "9: define.mm.dur_ns", "no value passes all of these tests", None),
    ('mm = { op = "gemm" }', 'mm = { op.is = "gemm", op.contains = "conv" }', "9: define.mm.op", "no value passes all of these tests", None),
    ('mm = { op = "gemm" }', 'mm = { name.contains = "" }', "9: define.mm.name.contains", "every text contains the empty one", None),
    ('mm = { op = "gemm" }', 'mm = { name.re = "(" }', "9: define.mm.name.re", "it is not a regular expression: missing ), unterminated subpattern at position 0", None),
    ('mm = { op = "gemm" }', 'mm = { name.re = "(a+)+b" }', "9: define.mm.name.re", "a group is repeated by '+', which can take exponential time", None),
    ('mm = { op = "gemm" }', 'mm = { name.re = "a.*b.*c" }', "9: define.mm.name.re", "2 unbounded repetitions in it can take the third power of the text's length; one is allowed, or two after a leading ^", None),
    ('mm = { op = "gemm" }', "mm = { name.re = '(a)\\1' }", "9: define.mm.name.re", "'\\\\1' refers back to a group", None),
    ('mm = { op = "gemm" }', "mm = { name.re = '(?=a)b' }", "9: define.mm.name.re", "'(?=a' is not offered: only ( ) and (?: )", None),
    ('mm = { op = "gemm" }', "mm = { name.re = '(a|b)?(c|d)?x{0,15}y{0,15}' }", "9: define.mm.name.re", "its choices multiply to 4,096; at most 1,000 are tried", None),
    ("[define]", '[define]\n"m m" = {}', "9: define.m m", "'m m' is no variable's name", "a name is letters, digits and _"),
    ('kernels_removed = "count(bias, act)"', 'kernels_removed = "len(bias)"', "13: measures.kernels_removed", "there is no measure 'len'", "there are: count, sum, min, max, first, last"),
    ('kernels_removed = "count(bias, act)"', 'kernels_removed = "count(bias) + 1"', "13: measures.kernels_removed", "'count(bias) + 1' is no measure", 'write "count(a, b)" or "sum(a.dur_ns, b.dur_ns)"'),
    ('kernels_removed = "count(bias, act)"', "kernels_removed = 2", "13: measures.kernels_removed", 'this is an integer; it must be a string such as "sum(a.dur_ns)"', None),
    ('kernels_removed = "count(bias, act)"', 'kernels_removed = "count(bais)"', "13: measures.kernels_removed", "'bais' is not defined", "define names: mm, bias, act"),
    ('kernels_removed = "count(bias, act)"', 'kernels_removed = "count(bias.dur_ns)"', "13: measures.kernels_removed", "count takes variables, not 'bias.dur_ns'", "write count(bias)"),
    ('kernels_removed = "count(bias, act)"', 'kernels_removed = "count(bias, bias)"', "13: measures.kernels_removed", "it names a variable twice", None),
    ('removable_ns = "sum(bias.dur_ns, act.dur_ns)"', 'removable_ns = "sum(bias)"', "14: measures.removable_ns", "sum takes a column of 'bias'", "write sum(bias.dur_ns)"),
    ('removable_ns = "sum(bias.dur_ns, act.dur_ns)"', 'removable_ns = "sum(bias.durns)"', "14: measures.removable_ns", "the rows have no column 'durns'", "did you mean dur_ns?"),
    ('removable_ns = "sum(bias.dur_ns, act.dur_ns)"', 'removable_ns = "sum(bias.op)"', "14: measures.removable_ns", "'op' holds categories; a measure needs numbers", None),
    ('removable_ns = "sum(bias.dur_ns, act.dur_ns)"', 'removable_ns = "sum(bias.dur_ns, act.bytes)"', "14: measures.removable_ns", "it reads 2 columns; a measure reads one", "write one measure a column"),
    ("[define]", 'rows = "kernels"\n[define]', "8: rows", "'kernels' is none of its values", "there are: activities, gaps"),
    ("[define]", 'after_match = "skip to last row"\n[define]', "8: after_match", "'skip to last row' is none of its values", "there are: skip past last row, skip to next row"),
    ("[define]", 'group_by = ["ops", "shape"]\n[define]', "8: group_by", "'shape' is none of its values", "there are: ops, shapes, dtype, module, source, line"),
    ("[define]", 'group_by = "ops"\n[define]', "8: group_by", "this is a string; it must be a list of strings", None),
    ("[define]", 'partition_by = ["strem"]\n[define]', "8: partition_by", "'strem' is none of its values", "did you mean stream?"),
    ("[define]", 'partition_by = ["stream", "stream"]\n[define]', "8: partition_by", "'stream' is in the list twice", None),
    ("[define]", 'order_by = ["op"]\n[define]', "8: order_by", "'op' holds categories, which have no order", None),
    ("[define]", "order_by = []\n[define]", "8: order_by", "this list is empty: a pattern needs an order", None),
    ("[define]", 'limits = ["a", 1]\n[define]', "8: limits", "this list has an integer in it; it must be a list of strings", None),
    ("[define]", "priority = true\n[define]", "8: priority", "this is a boolean; it must be an integer", None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "place", "message", "hint"), ERRORS, ids=[error[3] for error in ERRORS])
def test_what_is_wrong_is_said_with_file_line_and_key(
    rule: RuleMaker, tmp_path: Path, old: str, new: str, place: str | None, message: str, hint: str | None
) -> None:
    with pytest.raises(RuleError) as error:
        rule(GOOD.replace(old, new, 1))
    start = f"{tmp_path}/epilogue/rule.toml:" + (f"{place}: " if place else " ")
    assert str(error.value) == start + message + (f"\n  hint: {hint}" if hint else "")


@pytest.mark.parametrize(
    ("advice", "message", "hint"),
    [
        ('when = { amd = true }', "an advice has a text", 'text = "…"'),
        ('text = "a"', "an advice says when it fits", "when = { compiled = true }"),
        ('text = "a"\nwhen = { amd = true }\ncall = "steps"', "'steps' is none of its values", "did you mean step?"),
        ('text = "a"\nwhen = { optimiser = true }', "a rule has no such key", "did you mean optimizer?"),
        ('text = "a"\nwhen = { engine = "vlm" }', "'vlm' is none of its values", "there are: vllm, sglang"),
        ('text = "a"\nwhen = { amd = "yes" }', "this is a string; it must be true or false", None),
        ('text = "a"\nwhen = { engine = 3 }', "this is an integer; it must be true, false, a string, or a list of strings", None),
        ('text = "a"\nwhen = { amd = true }\nwhy = "b"', "a rule has no such key", None),
        ('text = "a"\nwhen = { amd = true }\ntitle = " "', "this is no title", 'title = "…"'),
        ('text = "a"\nwhen = { amd = true }\ntitle = 3', "this is no title", 'title = "…"'),
    ],
)  # fmt: skip
def test_an_advice_that_cannot_be_used_is_said(rule: RuleMaker, advice: str, message: str, hint: str | None) -> None:
    with pytest.raises(RuleError) as error:
        rule(GOOD + f"\n[[advice]]\n{advice}\n")
    assert message in str(error.value)
    assert hint is None or hint in str(error.value)


def test_the_first_advice_that_fits_counts_and_else_the_fix(rule: RuleMaker) -> None:
    found = rule(
        GOOD + '\n[[advice]]\nwhen = { amd = true, engine = "vllm" }\ntext = "both"\n'
        '[[advice]]\nwhen = { engine = ["vllm", "sglang"] }\ntext = "engine {blockers}"\n'
    )
    told: tuple[tuple[Facts, str], ...] = (
        ({"amd": True, "engine": "vllm"}, "both"),
        ({"amd": False, "engine": "vllm"}, "engine (x)"),
        ({"engine": "sglang", "amd": True}, "engine (x)"),
        ({"amd": True}, found.fix),
        ({}, found.fix),
    )
    for facts, text in told:
        assert advised(found.advice, found.fix, facts, "(x)") == text


def test_an_advice_may_have_a_title_of_its_own(rule: RuleMaker) -> None:
    found = rule(
        GOOD + '\n[[advice]]\nwhen = { amd = true }\ntext = "a"\ntitle = " Of HIP "\n'
        '[[advice]]\nwhen = { replayed = true }\ntext = "b"\n'
    )
    assert [each.title for each in found.advice] == ["Of HIP", None]


def test_what_is_removed_leaves_the_share_that_the_rule_states_and_calls_nothing(rule: RuleMaker) -> None:
    found = rule(GOOD, head=HEAD.replace('saving = "fuse"', 'saving = "remove"\nleft = [0, 0.1, 0.5]', 1))
    assert (found.left, found.call) == ((0.0, 0.1, 0.5), "nothing")


def test_a_fusion_may_say_what_stays_of_what_nothing_else_is_fused_with(rule: RuleMaker) -> None:
    found = rule(GOOD, head=HEAD.replace('saving = "fuse"', 'saving = "fuse"\nleft = [0, 0.9, 1]', 1))
    assert (found.left, found.call) == ((0.0, 0.9, 1.0), "compiled")
    assert rule(GOOD).left is None


@pytest.mark.parametrize("left", ["[0.5, 0.1, 0.2]", "[0.1, 0.2]", "[0, 0.1, 1.5]", '[0, 0.1, "1"]', "[0, false, 1]"])
def test_what_stays_of_removed_work_is_three_rising_shares(rule: RuleMaker, left: str) -> None:
    with pytest.raises(RuleError, match=r"left: these are no three rising shares from 0 to 1"):
        rule(GOOD, head=HEAD.replace('saving = "fuse"', f'saving = "remove"\nleft = {left}', 1))


def test_what_is_removed_says_how_much_of_it_stays(rule: RuleMaker) -> None:
    with pytest.raises(RuleError, match="the key 'left' is missing"):
        rule(GOOD, head=HEAD.replace('saving = "fuse"', 'saving = "remove"', 1))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('saving = "fuse"', 'saving = "fus"', ":6: saving: 'fus' is none of its values\n  hint: did you mean fuse?"),
        ('status = "experimental"', 'status = "test"', ":2: status: 'test' is none of its values\n  hint: there are: experimental, stable, deprecated"),
        ('status = "experimental"', "status = 1", ':2: status: this is an integer; it must be one of "experimental", "stable", "deprecated"'),
        ('saving = "fuse"\n', "", ": the key 'saving' is missing\n  hint: it is one of \"fuse\", \"attention\", \"one_pass\", \"close_gap\", \"launch_less\", \"close_break\", \"pin_memory\", \"hide\", \"overlap\", \"remove\", \"reach_rate\", \"batch\", \"norm\", \"rebuild\""),
        ('fix = "Use', 'fix = "" # "Use', ":5: fix: this is empty\n  hint: say it in a sentence"),
        ('saving = "fuse"', 'saving = "fuse', ":6: this is not TOML, column 15: Illegal character '\\n'"),
    ],
    ids=["saving", "status", "status type", "no saving", "empty fix", "syntax"],
)  # fmt: skip
def test_what_is_wrong_in_the_head_is_said(rule: RuleMaker, tmp_path: Path, old: str, new: str, text: str) -> None:
    with pytest.raises(RuleError) as error:
        rule(GOOD, head=HEAD.replace(old, new, 1))
    assert str(error.value) == f"{tmp_path}/epilogue/rule.toml{text}"


def test_a_file_that_ends_too_soon_is_named_with_its_last_line(rule: RuleMaker, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="^" + re.escape(f"{tmp_path}/epilogue/rule.toml:8: this is not TOML: ")):
        rule('pattern = "mm"\n[define', head=HEAD)


def test_a_file_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    folder = tmp_path / "latin"
    folder.mkdir()
    (folder / "rule.toml").write_bytes(b'title = "a"\nwhat = "\xff"\n')
    with pytest.raises(RuleError) as error:
        load_rule(folder, DOCS)
    assert str(error.value) == f"{folder}/rule.toml:2: the file is not UTF-8"


def test_an_id_with_capitals_is_refused(rule: RuleMaker) -> None:
    with pytest.raises(RuleError, match="the folder's name 'Epilogue' is no id\n  hint: an id is small letters"):
        rule(GOOD, folder="Epilogue")


def test_an_id_that_is_there_twice_names_both_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("one", "two"):
        folder = tmp_path / place / "epilogue"
        folder.mkdir(parents=True)
        (folder / "rule.toml").write_text(HEAD + GOOD)
    monkeypatch.setattr("tracemine.matching.load.rules_directory", lambda: tmp_path / "one")
    assert [rule.id for rule in load_rules(vocabulary=DOCS)] == ["epilogue"]
    with pytest.raises(RuleError) as error:
        load_rules(tmp_path / "two", vocabulary=DOCS)
    assert str(error.value) == (
        f"{tmp_path}/two/epilogue/rule.toml: a rule named 'epilogue' is already in {tmp_path}/one/epilogue\n"
        "  hint: rename the folder: an id names one rule"
    )


def test_rules_claim_by_priority_and_then_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, priority in (("b", 100), ("a", 100), ("z", 5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rule.toml").write_text(HEAD + f"priority = {priority}\n" + GOOD)
    monkeypatch.setattr("tracemine.matching.load.rules_directory", lambda: tmp_path)
    assert [rule.id for rule in load_rules(vocabulary=DOCS)] == ["z", "a", "b"]


def test_what_comes_with_tracemine_is_read_once_and_again_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (rules_directory() / "rmsnorm_unfused" / "rule.toml").read_text()
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "rule.toml"
    path.write_text(text)
    monkeypatch.setattr("tracemine.matching.load.rules_directory", lambda: tmp_path)
    (before,) = load_rules(vocabulary=VOCABULARY)
    assert load_rules(vocabulary=VOCABULARY)[0] is before
    path.write_text(f"{text}\n# so many bytes more")
    (after,) = load_rules(vocabulary=VOCABULARY)
    assert after is not before
    path.write_text("title = 1")
    with pytest.raises(RuleError):
        load_rules(vocabulary=VOCABULARY)


def test_a_single_rule_folder_is_a_directory_of_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rule.toml").write_text(HEAD + GOOD)
    monkeypatch.setattr("tracemine.matching.load.rules_directory", lambda: tmp_path / "none")
    assert [rule.id for rule in load_rules(tmp_path / "a", vocabulary=DOCS)] == ["a"]


def test_a_directory_that_is_not_there_or_empty_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such directory"):
        load_rules(tmp_path / "absent", vocabulary=DOCS)
    with pytest.raises(UsageError, match=r"the directory holds no rule\n  hint: a rule is DIR/<id>/rule\.toml"):
        load_rules(tmp_path, vocabulary=DOCS)


def test_the_built_in_rules_are_beside_the_package_in_a_checkout() -> None:
    assert rules_directory() == Path(__file__).parents[2] / "rules"


def test_a_key_is_found_in_every_way_toml_writes_it() -> None:
    content = (
        'what = """\npattern = 1\n"""\npattern = "a"\n[define.a]\nop = "x"\n[define]\nb.op = "y"\n"c" = {op = "z"}\n'
    )
    places = {"pattern": 4, "define.a.op": 6, "define.a": 5, "define.b.op": 8, "define.c.op": 9, "absent": None}
    assert {key: key_line(content, key) for key in places} == places
