"""Partitions, nulls, both ways to go on after a match, bindings and measures, on rows written out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.matching.conftest import HEAD, RuleMaker, make_rows
from tracemine.errors import RuleError
from tracemine.matching import Matches, find, mine
from tracemine.matching.shared import arrange
from tracemine.rows.table import Categories, Column, Flags, Numbers, Rows

EPILOGUE = """pattern = "mm bias? act"
[define]
mm = { op = "gemm" }
bias = { op = "add", gap_ns.lt = 20 }
act = { op = ["gelu", "silu"], gap_ns.lt = 20 }
[measures]
kernels = "count(bias, act)"
removable_ns = "sum(bias.dur_ns, act.dur_ns)"
shortest_ns = "min(mm.dur_ns, act.dur_ns)"
longest_ns = "max(mm.dur_ns, act.dur_ns)"
first_bytes = "first(bias.bytes, act.bytes)"
last_bytes = "last(bias.bytes, act.bytes)"
bias_ns = "max(bias.dur_ns)"
bias_sum_ns = "sum(bias.dur_ns)"
all_bytes = "sum(mm.bytes, bias.bytes, act.bytes)"
least_bytes = "min(mm.bytes, bias.bytes, act.bytes)"
"""


def found(matches: Matches) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    return [(match.rows, match.variables) for match in matches]


def test_a_match_stays_on_its_stream(rule: RuleMaker) -> None:
    rows = make_rows(op=["gemm", "gemm", "add", "gelu", "gelu"], gap_ns=[0] * 5, stream=[7, 8, 7, 8, 7])
    assert found(find(rule(EPILOGUE.split("[measures]")[0]), rows)) == [
        ((0, 2, 4), ("mm", "bias", "act")),
        ((1, 3), ("mm", "act")),
    ]


def test_measures_are_null_where_a_value_they_need_is_not_recorded(rule: RuleMaker) -> None:
    rows = make_rows(
        op=["gemm", "add", "gelu", "gemm", "silu"],
        gap_ns=[0] * 5,
        dur_ns=[100, 10, 20, 50, 70],
        bytes=[1, None, 3, 4, 5],
    )
    matches = find(rule(EPILOGUE), rows)
    measures = {name: values.tolist() for name, values in matches.measures.items()}
    unknown = {name: values.tolist() for name, values in matches.unknown.items()}
    assert measures == {
        "kernels": [2, 1],
        "removable_ns": [30, 70],
        "shortest_ns": [20, 50],
        "longest_ns": [100, 70],
        "first_bytes": [0, 5],
        "last_bytes": [3, 5],
        "bias_ns": [10, 0],
        "bias_sum_ns": [10, 0],
        "all_bytes": [0, 9],
        "least_bytes": [1, 4],
    }
    assert unknown == {"first_bytes": [True, False], "bias_ns": [False, True], "all_bytes": [True, False]}
    assert all(values.dtype == np.int64 for values in matches.measures.values())


def test_a_test_on_a_null_never_holds(rule: RuleMaker) -> None:
    rows = make_rows(op=["gemm", "gelu", None, "gelu"], gap_ns=[None, None, 0, 0])
    assert found(find(rule(EPILOGUE.split("[measures]")[0]), rows)) == []


@pytest.mark.parametrize(
    ("after_match", "expected"),
    [("skip past last row", [(0, 1), (2, 3)]), ("skip to next row", [(0, 1), (1, 2), (2, 3), (3, 4)])],
)
def test_the_search_goes_on_where_after_match_says(
    rule: RuleMaker, after_match: str, expected: list[tuple[int, ...]]
) -> None:
    loaded = rule(
        f'after_match = "{after_match}"\npattern = "a b"\n[define]\na = {{ op = "x" }}\nb = {{ dur_ns = 1 }}\n'
    )
    rows = make_rows(op=["x"] * 5, dur_ns=[1] * 5)
    assert [match.rows for match in find(loaded, rows)] == expected


def test_rows_of_unknown_stream_are_left_out_and_counted(rule: RuleMaker) -> None:
    rows = make_rows(op=["gemm", "gelu", "gemm", "gelu"], gap_ns=[0] * 4, stream=[None, 7, 7, 7])
    matches = find(rule(EPILOGUE.split("[measures]")[0]), rows)
    assert found(matches) == [((2, 3), ("mm", "act"))]
    assert matches.left_out == 1


def test_rows_that_stand_in_another_order_are_sorted_by_order_by(rule: RuleMaker) -> None:
    rows = make_rows(op=["gelu", "gemm", "add"], gap_ns=[0] * 3, start_ns=[30, 10, 20])
    assert found(find(rule(EPILOGUE.split("[measures]")[0]), rows)) == [((1, 2, 0), ("mm", "bias", "act"))]


def test_rows_in_order_are_not_sorted_again() -> None:
    rows = make_rows(op=["x"] * 4, stream=[5, 5, 9, 9], start_ns=[3, 4, 1, 2])
    arrangement = arrange(rows, ["stream"], ["start_ns"])
    assert arrangement.order is None
    assert arrangement.bounds.tolist() == [0, 2, 4]


def test_partitions_may_have_any_numbers_and_names() -> None:
    big = 1 << 62
    rows = make_rows(op=["b", "a", "b", "a"], stream=[big, -big, big, 3], start_ns=[4, 3, 2, 1])
    arrangement = arrange(rows, ["op", "stream"], ["start_ns"])
    assert arrangement.order is not None
    assert arrangement.order.tolist() == [2, 0, 1, 3]
    assert arrangement.bounds.tolist() == [0, 2, 3, 4]


def test_many_partitions_are_kept_apart(rule: RuleMaker) -> None:
    count = 70_000  # more than 16 bits can number
    streams = np.repeat(np.arange(count), 2).tolist()
    rows = make_rows(op=["gemm", "gelu"] * count, gap_ns=[0] * (2 * count), stream=streams)
    matches = find(rule(EPILOGUE.split("[measures]")[0]), rows)
    assert len(matches) == count
    assert matches.rows.tolist() == list(range(2 * count))
    shifted = make_rows(op=["gelu", "gemm"] * count, gap_ns=[0] * (2 * count), stream=streams)
    assert len(find(rule(EPILOGUE.split("[measures]")[0]), shifted)) == 0


def test_more_than_eight_variables_are_distinguished(rule: RuleMaker) -> None:
    names = [f"v{number}" for number in range(20)]
    body = f'pattern = "{" ".join(names)}"\n[define]\n' + "".join(
        f'{n} = {{ op = "{n}", dur_ns = 1 }}\n' for n in names
    )
    rows = make_rows(op=["v3", *names, *names[1:]], dur_ns=[1] * 40)
    assert found(find(rule(body), rows)) == [(tuple(range(1, 21)), tuple(names))]


def test_overlapping_variables_beyond_eight_bind_by_preference(rule: RuleMaker) -> None:
    names = [f"v{number}" for number in range(10)]
    define = "".join(f"{name} = {{ dur_ns.gte = {number} }}\n" for number, name in enumerate(names))
    body = f'pattern = "v9? v0{{1,3}} ({" | ".join(names[1:9])})"\n[define]\n{define}'
    rows = make_rows(dur_ns=[9, 0, 0, 5])
    assert found(find(rule(body), rows)) == [((0, 1, 2, 3), ("v9", "v0", "v0", "v1"))]


def test_more_sets_of_variables_than_a_byte_can_name_are_an_error(rule: RuleMaker) -> None:
    define = "".join(f"v{at} = {{ {('dur_ns', 'gap_ns')[at % 2]}.gte = {at} }}\n" for at in range(40))
    values = np.array(np.meshgrid(*[np.arange(40)] * 2)).reshape(2, -1)
    rows = make_rows(dur_ns=values[0].tolist(), gap_ns=values[1].tolist())
    pattern = " ".join(f"v{at}" for at in range(40))
    with pytest.raises(RuleError) as error:
        find(rule(f'pattern = "{pattern}"\n[define]\n{define}'), rows)
    assert str(error.value).endswith(
        "define: the rows satisfy more than 255 different sets of its 40 variables; no more can be distinguished\n"
        "  hint: define fewer variables, or variables that no row satisfies two of"
    )


def test_flags_numbers_and_texts_are_tested_by_every_relation(rule: RuleMaker) -> None:
    body = """pattern = "a b c d"
[define]
a = { graph = true, dur_ns = [1, 2] }
b = { graph = false, name.contains = ["norm", "soft"] }
c = { name.re = "^void .*<float>$" }
d = { dur_ns.gt = 3, gap_ns.lte = 4, bytes.gte = 5 }
"""
    rows = make_rows(
        graph=[True, False, True, False],
        dur_ns=[2, 0, 0, 4],
        gap_ns=[0, 0, 0, 4],
        bytes=[0, 0, 0, 5],
        name=["x", "layer_norm", "void f<float>", "x"],
    )
    assert found(find(rule(body), rows)) == [((0, 1, 2, 3), ("a", "b", "c", "d"))]


def test_a_variable_without_tests_is_any_row(rule: RuleMaker) -> None:
    rows = make_rows(op=["gemm", None, "gemm"])
    loaded = rule('pattern = "mm any mm"\n[define]\nmm = { op = "gemm" }\nany = {}\n')
    assert found(find(loaded, rows)) == [((0, 1, 2), ("mm", "any", "mm"))]


def test_no_rows_have_no_matches(rule: RuleMaker) -> None:
    matches = find(rule(EPILOGUE), _empty())
    assert len(matches) == 0
    assert matches.offsets.tolist() == [0]
    assert {name: values.tolist() for name, values in matches.measures.items()} == {n: [] for n in matches.measures}
    assert list(matches) == []


def _empty() -> Rows:
    rows = make_rows(op=["x"], gap_ns=[0], dur_ns=[0], bytes=[0])
    return Rows("activities", 0, {name: _first_none(column) for name, column in rows.columns.items()})


def _first_none(column: Column) -> Column:
    if isinstance(column, Categories):
        return Categories(column.codes[:0], ())
    return Flags(column.values[:0]) if isinstance(column, Flags) else Numbers(column.values[:0])


def test_mining_goes_by_priority_and_passes_deprecated_rules_over(rule: RuleMaker) -> None:
    first = rule("priority = 5\n" + EPILOGUE, folder="z")
    second = rule(EPILOGUE, folder="a")
    gone = rule(EPILOGUE, folder="b", head=HEAD.replace("experimental", "deprecated"))
    rows = make_rows(op=["gemm", "gelu"], gap_ns=[0, 0], dur_ns=[1, 1], bytes=[1, 1])
    assert [(matches.rule.id, len(matches)) for matches in mine({"activities": rows}, [gone, second, first])] == [
        ("z", 1),
        ("a", 1),
    ]


def test_a_row_set_or_column_that_is_not_there_is_an_error(rule: RuleMaker) -> None:
    loaded = rule(EPILOGUE)
    with pytest.raises(RuleError, match="rows: there are no rows of 'activities' here\n  hint: there are: gaps"):
        mine({"gaps": make_rows(op=["x"])}, [loaded])
    with pytest.raises(RuleError, match="the activities rows have no column 'gap_ns'"):
        find(loaded, make_rows(op=["gemm"]))


def test_matches_read_like_a_sequence(rule: RuleMaker) -> None:
    rows = make_rows(op=["gemm", "gelu"], gap_ns=[0, 0])
    matches = find(rule(EPILOGUE.split("[measures]")[0]), rows)
    assert matches[0] == matches[-1] == next(iter(matches))
    with pytest.raises(IndexError, match="match 1 of 1"):
        matches[1]


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
def test_matches_do_not_depend_on_the_block_size(rule: RuleMaker, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("tracemine.matching.match.BLOCK_ROWS", block)
    ops = ["gemm", "add", "gelu", "copy", "gemm", "gelu", "gemm", "add", "gemm", "silu"] * 3
    rows = make_rows(op=ops, gap_ns=[0] * 30)
    matches = find(rule(EPILOGUE.split("[measures]")[0]), rows)
    assert [match.rows for match in matches] == [
        rows_ for at in (0, 10, 20) for rows_ in ((at, at + 1, at + 2), (at + 4, at + 5), (at + 8, at + 9))
    ]
