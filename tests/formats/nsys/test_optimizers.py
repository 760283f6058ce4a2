"""Optimizers under NVTX, whose texts name no maker of a parameter, of a state, nor of a list's member."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.formats.nsys.make import Export, timeline
from tracemine.flow import Evidence, Flow, flow
from tracemine.fusion import REFUSALS, Refusal, groups

# What AdamW of lists does, and how many lists each operator takes; what a square root gives, an operator inside made.
ADAMW = (
    *(("mul_", 1), ("lerp_", 2), ("mul_", 1), ("addcmul_", 3)),
    *(("sqrt", 1), ("div_", 1), ("add_", 1), ("addcdiv_", 3)),
)
STEP = "Optimizer.step#AdamW.step, op_id = 10"
SHAPES = ("[64, 8]", "[64]", "[8]")


def adamw(
    export: Export, *, shapes: tuple[str, ...] = SHAPES, around: str = STEP, gradients: dict[str, str] | None = None
) -> Export:
    """One update of parameters of these shapes, in a range of this text; gradients: by operator, who made them."""
    export.range(around, 1000, 1900)
    for turn, (name, lists) in enumerate(ADAMW):
        sizes = ", ".join([*shapes] * lists + ["[]"] * (name != "sqrt"))
        gradient = (gradients or {}).get(name, "(0,-1)")
        lists_of = [*["(0,-1)"] * len(shapes), *[gradient] * len(shapes) * (lists - 1)]
        makers = ", ".join(lists_of + ["(0,-1)"] * (name != "sqrt"))
        export.op(20 + turn, f"aten::_foreach_{name}", 1010 + 100 * turn, f"[{sizes}]", f"[{makers}]")
    return export


def fused(found: Flow) -> list[list[str]]:
    """The operators of each group."""
    names, made = found.timeline.ops["name"].to_pylist(), groups(found)
    of = [[names[found.nodes.op_row[node]] for node in made.node[a:b]] for a, b in pairwise(made.begin.tolist())]
    return [[name.removeprefix("aten::") for name in group] for group in of]


def unknown(found: Flow) -> list[str]:
    names = found.timeline.ops["name"].to_pylist()
    return [names[row].removeprefix("aten::_foreach_") for row in found.nodes.op_row[~found.nodes.known].tolist()]


WHOLE = [[f"_foreach_{name}" for name, _ in ADAMW]]
TAKE_SEVERAL = [name for name, lists in ADAMW if lists > 1]


def test_an_update_of_lists_is_one_group(tmp_path: Path) -> None:
    found = flow(timeline(tmp_path, adamw(Export())))
    assert fused(found) == WHOLE
    assert unknown(found) == []


def test_what_a_sequence_of_operators_tells_is_not_proven(tmp_path: Path) -> None:
    found = flow(timeline(tmp_path, adamw(Export())))
    assert set(found.reads.evidence[found.edges.read].tolist()) == {Evidence.CONSISTENT}
    assert groups(found).evidence.tolist() == [Evidence.CONSISTENT]


def test_each_member_of_a_list_is_a_tensor_of_its_own(tmp_path: Path) -> None:
    found = flow(timeline(tmp_path, adamw(Export(), shapes=("[64, 8]", "[64, 8]"))))
    assert fused(found) == WHOLE
    # Parameters, gradients, both moments, and what is divided by: five a member.
    assert len(set(found.timeline.tensors["storage_id"].to_pylist())) == 10


@pytest.mark.parametrize("around", ["update", "Optimizer.zero_grad#AdamW.zero_grad, op_id = 10"])
def test_the_same_operators_outside_an_optimizers_step_tell_nothing(tmp_path: Path, around: str) -> None:
    found = flow(timeline(tmp_path, adamw(Export(), around=around)))
    assert fused(found) == []
    assert set(TAKE_SEVERAL) <= set(unknown(found))


def test_another_operator_among_them_may_be_anything_and_nothing_is_told(tmp_path: Path) -> None:
    export = adamw(Export()).op(40, "aten::neg", 1895, "[[64, 8]]", "[(0,-1)]")
    assert set(TAKE_SEVERAL) <= set(unknown(flow(timeline(tmp_path, export))))


def test_an_operator_after_the_step_is_none_among_them(tmp_path: Path) -> None:
    export = adamw(Export()).op(40, "aten::neg", 1905, "[[64, 8]]", "[(0,-1)]")
    assert fused(flow(timeline(tmp_path, export))) == WHOLE


def test_lists_that_are_not_alike_tell_nothing(tmp_path: Path) -> None:
    export = Export().range(STEP, 1000, 1900)
    for turn, (name, lists) in enumerate(ADAMW):
        members = ["[64]", "[9]" if name == "addcmul_" else "[8]"] * lists + ["[]"] * (name != "sqrt")
        makers = ", ".join(["(0,-1)"] * len(members))
        export.op(20 + turn, f"aten::_foreach_{name}", 1010 + 100 * turn, f"[{', '.join(members)}]", f"[{makers}]")
    assert set(TAKE_SEVERAL) <= set(unknown(flow(timeline(tmp_path, export))))


@pytest.mark.parametrize(("second", "told"), [("(1,0)", True), ("(0,-1)", True), ("(2,0)", False)])
def test_a_gradient_that_is_named_twice_must_be_one(tmp_path: Path, second: str, told: bool) -> None:
    export = Export().op(1, "aten::neg", 100, "[[8]]", "[(0,-1)]").op(2, "aten::neg", 200, "[[8]]", "[(0,-1)]")
    adamw(export, shapes=("[8]",), gradients={"lerp_": "(1,0)", "addcmul_": second})
    found = flow(timeline(tmp_path, export))
    assert (unknown(found) == []) == told
    assert (WHOLE[0] in fused(found)) == told


def test_nothing_is_moved_across_an_optimizer_that_may_write_what_it_reads(tmp_path: Path) -> None:
    def around(between: bool) -> Flow:
        export = Export().op(1, "aten::neg", 100, "[[64, 8]]", "[(0,-1)]")
        if between:
            adamw(export)
        export.op(50, "aten::exp", 3000, "[[64, 8]]", "[(1,0)]")
        return flow(timeline(tmp_path, export))

    assert fused(around(between=False)) == [["neg", "exp"]]
    found = around(between=True)
    assert fused(found) == WHOLE
    assert Refusal.BARRIER in {REFUSALS[code] for code in groups(found).refusals.reason.tolist()}


def test_an_update_of_one_parameter_at_a_time_whose_first_write_is_of_a_tensor_that_others_read(tmp_path: Path) -> None:
    export = Export().op(1, "aten::relu", 100, "[[8]]", "[(0,-1)]")
    export.range("Optimizer.step#SGD.step, op_id = 10", 1000, 1900)
    export.op(21, "aten::mul_", 1200, "[[8], []]", "[(0,-1), (0,-1)]")
    export.op(22, "aten::add_", 1300, "[[8], [8], []]", "[(21,0), (1,0), (0,-1)]")
    export.op(23, "aten::add_", 1400, "[[8], [8], []]", "[(0,-1), (22,0), (0,-1)]")
    found = flow(timeline(tmp_path, export))
    assert unknown(found) == []
    assert fused(found) == [["mul_", "add_", "add_"]]
