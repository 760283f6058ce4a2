"""The nearest miss is a match but for one condition, and says what was there instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracemine.causes import load_rule, load_rules
from tracemine.matching import Rule
from tracemine.matching.cases import read_cases
from tracemine.matching.nearest_miss import why

HEAD = """
title = "One after the other"
status = "experimental"
what = "Two."
why = "Slow."
fix = "Fuse."
saving = "fuse"
"""
ROWS = """
pattern = "mm act"
[define]
mm = { op = "gemm" }
act = { op = "gelu", gap_ns.lt = 20_000 }
"""
GRAPH = """
partition_by = []
match = "(act)-[reads]->(mm) WHERE act.out_rank = 2"
[define]
mm = { operation = "mm" }
act = { operation = "gelu" }
"""


def said(tmp_path: Path, body: str, table: str) -> list[tuple[str, int, tuple[str, ...]]]:
    """What would match with which condition left out."""
    folder = tmp_path / "a_rule"
    folder.mkdir()
    (folder / "rule.toml").write_text(HEAD + body)
    (folder / "cases.md").write_text(f"## Rows\n\n{table}")
    rule = load_rule(folder)
    found = why(rule, read_cases(rule)[0].rows)
    assert not found.matches
    return [(miss.condition, miss.matches, miss.values) for miss in found.misses]


def table(*rows: str) -> str:
    return "\n".join(["| op | gap_ns | expect |", "|---|---|---|", *(f"| {row} | |" for row in rows)]) + "\n"


@pytest.mark.parametrize(
    ("rows", "misses"),
    [
        (("gemm | 900", "gelu | 45000"), [("act.gap_ns < 20000", 1, ("45000",))]),
        (("gemm | 900", "silu | 900", "gemm | 9", "relu | 9"), [("act.op is gelu", 2, ("silu",))]),
        (("gemm | 900", "gelu |"), [("act.gap_ns < 20000", 1, ("null",))]),
        (("conv | 900", "gelu | 900"), [("mm.op is gemm", 1, ("conv",))]),
        (("conv | 900", "silu | 45000"), []),  # nothing is one condition away
    ],
)
def test_each_condition_is_left_out_alone(
    tmp_path: Path, rows: tuple[str, ...], misses: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    assert said(tmp_path, ROWS, table(*rows)) == misses


def test_a_rule_that_matches_has_no_nearest_miss() -> None:
    rule = next(rule for rule in load_rules() if rule.id == "rmsnorm_unfused")
    case = next(case for case in read_cases(rule) if case.matching and not case.known_miss)
    found = why(rule, case.rows)
    assert found.matches
    assert found.misses == ()


def test_in_a_graph_a_test_of_where_is_left_out_too(tmp_path: Path) -> None:
    lines = ["| node | reads | operation | out_shape | expect |", "|---|---|---|---|---|"]
    lines += ["| a | x | mm | [4,4] | |", "| b | a | gelu | [4,4,4] | |"]
    assert said(tmp_path, GRAPH, "\n".join(lines) + "\n") == [("WHERE act.out_rank = 2", 1, ())]


def test_in_a_graph_a_test_of_a_label_is_left_out(tmp_path: Path) -> None:
    lines = ["| node | reads | operation | out_shape | expect |", "|---|---|---|---|---|"]
    lines += ["| a | x | bmm | [4,4] | |", "| b | a | gelu | [4,4] | |"]
    assert said(tmp_path, GRAPH, "\n".join(lines) + "\n") == [("mm.operation is mm", 1, ("bmm",))]


def test_rows_of_two_partitions_miss_by_that(tmp_path: Path) -> None:
    lines = ["| stream | op | gap_ns | expect |", "|---|---|---|---|", "| 7 | gemm | 9 | |", "| 8 | gelu | 9 | |"]
    assert said(tmp_path, ROWS, "\n".join(lines) + "\n") == [("all rows of one stream", 1, ())]


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.id)
def test_near_misses_of_every_rule_are_explained_and_no_match_is_called_one(rule: Rule) -> None:
    """In the cases that come with it: those that match have none, the others have one or are further away."""
    explained, cases = 0, read_cases(rule)
    for case in cases:
        found = why(rule, case.rows)
        assert bool(found.matches) == (case.matching and not case.known_miss) or case.known_miss
        explained += bool(found.misses)
        assert not (found.matches and found.misses)
    assert explained or not any(not case.matching for case in cases) or rule.id in FURTHER


# Rules whose near misses are two conditions away, or have too few rows in a row: counts are not left out.
FURTHER = {"small_products_apart", "eager_island", "input_projection_in_loop"}
