"""Axes of reductions whose arguments were not recorded: what tells them, and when nothing does."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify.traces import event, launched
from tracemine.codegen.graph import LiteralArg
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.verify.rebuild.call_facts import axes_between
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt

NODE = "autograd::engine::evaluate_function: AddmmBackward0"
VIEW = ("aten::view", [[1, 512], []])
STRIDED = "aten::as_strided"


def over(shape: list[int], axes: tuple[int, ...], *, keeps: bool) -> list[int]:
    return [1 if d in axes else n for d, n in enumerate(shape) if keeps or d not in axes]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.booleans(), st.data())
def test_axes_that_are_found_are_those_that_were_reduced_and_no_others_would_give_that_shape(
    shape: list[int], keeps: bool, data: st.DataObject
) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1))))
    result = over(shape, axes, keeps=keeps)
    found = axes_between(shape, result, keeps=keeps)
    every = [a for n in range(1, len(shape) + 1) for a in combinations(range(len(shape)), n)]
    fitting = {
        tuple(d for d in a if shape[d] > 1)  # an axis of one element may be summed or not: it is the same
        for a in every
        if over(shape, a, keeps=keeps) == result
    }
    if len(fitting) > 1:
        assert found is None
    else:
        assert found is not None
        assert over(shape, found, keeps=keeps) == result
        assert {tuple(d for d in found if shape[d] > 1)} == fitting


@pytest.mark.parametrize(
    ("source", "result", "keeps"),
    [
        ((4, 4), (4,), False),  # either
        ((4, 4, 8), (4, 8), False),
        ((16, 512), (256,), False),  # none
        ((16, 512), (512, 1), True),
        ((16, 512), (16, 512), False),  # nothing is reduced
        ((16, 512), (16, 512), True),
        ((), (), False),
        ((0, 0), (0,), False),  # sums of nothing differ in nothing, but it cannot be told
    ],
)
def test_shapes_that_tell_no_axes_or_several(source: tuple[int, ...], result: tuple[int, ...], keeps: bool) -> None:
    assert axes_between(source, result, keeps=keeps) is None


# --- whole traces ---------------------------------------------------------------------------------------------------


def recorded(
    folder: Path,
    *,
    shape: list[int],
    operator: str = "aten::sum",
    inside: tuple[str, list[Any]] | None = None,
    after: tuple[str, list[Any]] | None = None,
    around: str = NODE,
) -> Rebuilt:
    """The chain of a product and a reduction of it, as an older profiler records them: no values, no strides."""
    types = ["float", "GenericList", "Bool", ""][: 4 if operator in ("aten::sum", "aten::mean") else 3]
    events = [
        event("aten::mul", 0, 10, [shape, shape], ["float", "float"]),
        *launched(1, 5, "multiply"),
        event(around, 20, 90, None, []),
        event(operator, 30, 50, [shape, *[[] for _ in types[1:]]], types),
        *launched(2, 45, "reduce"),
    ]
    if inside is not None:
        events.append(event(inside[0], 35, 40, inside[1], ["float", *[""] * (len(inside[1]) - 1)]))
    if after is not None:
        events.append(event(after[0], 60, 70, after[1], ["float", *[""] * (len(after[1]) - 1)]))
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = flow(open_trace(path))
    return Rebuilder(found, groups(found), guesses=True).rebuild([0, 1], "chain")


def arguments(found: Rebuilt) -> tuple[object, ...]:
    """Axes, and whether they are kept."""
    axes, keeps = found.graph.calls[-1].arguments[1:3]
    assert isinstance(axes, LiteralArg)
    assert isinstance(keeps, LiteralArg)
    return axes.value, keeps.value


def test_a_gradient_is_summed_to_the_view_that_comes_after_it_and_that_is_said(tmp_path: Path) -> None:
    found = recorded(tmp_path, shape=[16, 512], after=VIEW)
    assert [call.label for call in found.graph.calls] == ["aten::mul.Tensor", "aten::sum.dim_IntList"]
    assert arguments(found) == ((0,), True)
    assert found.graph.specs[found.graph.live[-1]].shape == (
        1,
        512,
    )  # the sum is live, though nobody is seen to read it
    (said,) = [text for text in found.assumptions if "axes of aten::sum" in text]
    assert "the view that comes after it" in said


@pytest.mark.parametrize("operator", ["aten::sum", "aten::mean", "aten::amax", "aten::amin"])
def test_a_result_that_is_viewed_inside_tells_its_shape(tmp_path: Path, operator: str) -> None:
    found = recorded(tmp_path, shape=[4, 8, 3], operator=operator, inside=(STRIDED, [[8], [], [], []]), around="block")
    assert arguments(found) == ((0, 2), False)
    assert found.graph.specs[found.graph.live[-1]].shape == (8,)


def test_pooling_to_one_element_is_a_mean_over_the_last_axes(tmp_path: Path) -> None:
    found = recorded(tmp_path, shape=[2, 8, 7, 7], operator="aten::mean", around="aten::adaptive_avg_pool2d")
    assert arguments(found) == ((2, 3), True)


@pytest.mark.parametrize(
    "case",
    [
        {"shape": [16, 512]},  # nothing tells
        {"shape": [8, 8], "inside": (STRIDED, [[8], [], [], []])},  # either axis
        {"shape": [16, 512], "after": VIEW, "around": "block"},  # no node of autograd sums it
        {"shape": [16, 512], "after": ("aten::add", [[1, 512], [1, 512], []])},  # no view
        {"shape": [16, 512], "after": ("aten::view", [[512, 512], []])},  # of another tensor
        {"shape": [16, 512], "after": ("aten::view", [[16, 512], []])},
        {"shape": [16, 512], "inside": (STRIDED, [[1, 512], [], [], []])},  # no axes of it are kept
        {"shape": [16, 512], "operator": "aten::mean", "after": VIEW},  # autograd sums
        {"shape": [7, 7], "operator": "aten::mean", "around": "aten::adaptive_avg_pool2d"},  # as 1.4 did it: of a view
        {"shape": [2, 8, 7, 7], "operator": "aten::amax", "around": "aten::adaptive_avg_pool2d"},
    ],
)
def test_where_nothing_tells_the_axes_it_is_refused(tmp_path: Path, case: dict[str, Any]) -> None:
    with pytest.raises(NotRebuilt, match=r"the value of (dim|keepdim) is not recorded"):
        recorded(tmp_path, **case)
