"""A result that reaches its reader as an object of no operator: it may be any that was made before."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.formats.nsys.make import Export, timeline
from tracemine.flow import flow
from tracemine.fusion import REFUSALS, Refusal, groups

NONE = "(0,-1)"


def fused(folder: Path, *calls: tuple[str, str, str]) -> tuple[list[tuple[str, ...]], set[Refusal]]:
    """The operators of each group, and why others are none. calls: name, sizes, makers."""
    export = Export()
    for number, (name, sizes, makers) in enumerate(calls, 1):
        export.op(number, f"aten::{name}", 100 * number, f"[{sizes}]", f"[{makers}]")
    t = timeline(folder, export)
    dataflow = flow(t)
    found, names = groups(dataflow), t.ops["name"].to_pylist()
    members = [found.node[begin:end].tolist() for begin, end in pairwise(found.begin.tolist())]
    named = [tuple(names[dataflow.nodes.op_row[node]].removeprefix("aten::") for node in one) for one in members]
    return named, {REFUSALS[code] for code in found.refusals.reason.tolist()}


def test_a_product_of_what_nobody_made_may_read_what_was_made_before(tmp_path: Path) -> None:
    """The product reads what `neg` gave, by an object that has no maker."""
    found, why = fused(
        tmp_path,
        ("neg", "[64, 32]", NONE),
        ("mm", "[64, 32], [32, 32]", f"{NONE}, {NONE}"),
        ("add", "[64, 32], [64, 32], []", f"(1,0), (2,0), {NONE}"),
    )
    assert found == []
    assert Refusal.BARRIER in why


@pytest.mark.parametrize("taken", ["[64, 48], [48, 32]", "[64, 20], [20, 32]"])
def test_a_product_of_matrices_of_which_nothing_as_large_was_made_takes_weights_and_inputs(
    tmp_path: Path, taken: str
) -> None:
    found, _ = fused(
        tmp_path,
        ("neg", "[64, 32]", NONE),
        ("mm", taken, f"{NONE}, {NONE}"),
        ("add", "[64, 32], [64, 32], []", f"(1,0), (2,0), {NONE}"),
    )
    assert found == [("neg", "add")]


def test_what_reads_a_product_by_an_object_without_maker_is_in_no_group_with_what_the_product_read(
    tmp_path: Path,
) -> None:
    def program(maker: str, factor: str) -> list[tuple[str, ...]]:
        return fused(
            tmp_path,
            ("neg", "[64, 32]", NONE),
            ("mm", "[64, 32], [32, 32]", f"(1,0), {NONE}"),
            ("mul", f"{factor}, [64, 32]", f"{NONE}, {maker}"),
            ("add", "[64, 32], [64, 32], []", f"(1,0), (3,0), {NONE}"),
        )[0]

    assert program("(2,0)", "[32]") == [("mul", "add")]
    assert program(NONE, "[32]") == [("mul", "add")]


def test_the_weight_of_a_norm_that_is_spelled_out_stays_in_its_group(tmp_path: Path) -> None:
    norm = (
        ("neg", "[64, 32]", NONE),
        ("mean", "[64, 32], [], [], []", f"(1,0), {NONE}, {NONE}, {NONE}"),
        ("mul", "[64, 32], [64, 1]", "(1,0), (2,0)"),
        ("mul", "[32], [64, 32]", f"{NONE}, (3,0)"),
    )
    assert fused(tmp_path, *norm)[0] == [("neg", "mean", "mul", "mul")]


def test_what_is_looked_up_in_a_tensor_without_maker_may_be_what_another_gave(tmp_path: Path) -> None:
    """A gather takes any row of a table: it is in one kernel with nothing that may have written that table."""
    found, _ = fused(
        tmp_path,
        ("neg", "[64, 32]", NONE),
        ("gather", "[64, 32], [], [64, 32], []", f"{NONE}, {NONE}, {NONE}, {NONE}"),
        ("add", "[64, 32], [64, 32], []", f"(1,0), (2,0), {NONE}"),
    )
    assert ("neg", "gather", "add") not in found


def test_what_is_read_element_by_element_may_be(tmp_path: Path) -> None:
    found, _ = fused(tmp_path, ("neg", "[64, 32]", NONE), ("mul", "[64, 32], [64, 32]", f"{NONE}, (1,0)"))
    assert found == [("neg", "mul")]
