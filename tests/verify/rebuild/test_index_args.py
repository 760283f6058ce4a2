"""Tensors that an `index` takes, where the list's members were not recorded: what tells them, and when nothing does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify.traces import event, launched
from tracemine.codegen.graph import GraphCall, LiteralArg, Ref, Refs, Value
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.codegen.index_inputs import within
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.ops.infer import TensorSpec
from tracemine.ops.infer.tensor import contiguous
from tracemine.verify.rebuild.assemble import OUTSIDE
from tracemine.verify.rebuild.draft import Draft
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder, Rebuilt
from tracemine.verify.rebuild.recorded import first_axis


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.lists(st.integers(1, 4), max_size=3), st.data())
def test_the_axes_that_are_found_are_those_that_were_indexed(
    shape: list[int], places: list[int], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(1, len(shape) - first))
    strides = list(contiguous(shape))
    after = first + count
    restrided = ([*shape[:first], *places, *shape[after:]], [*strides[:first], *[0] * len(places), *strides[after:]])
    found = first_axis((shape, strides), restrided, count)
    assert found == first or (found is None and not places)  # of a single place several axes may be gone


SHAPE, STEPS = [6, 8, 4], [32, 4, 1]
STRIDED = ("aten::as_strided", [SHAPE, [], [], []], ["float", "ScalarList", "ScalarList", ""], [STEPS, [], [], []])
RESULT = ["", "[6, 5, 4]", "[32, 0, 1]", ""]
READ = ("aten::reshape", [[5], []], ["long int", "ScalarList"], [[1], []], ["", "[1, 5, 1]"])


def recorded(folder: Path, *inside: tuple[Any, ...]) -> Rebuilt:
    """The chain of an `index` and a product of what it gives, as profilers record them."""
    wanted = [6, 5, 4]
    steps = list(contiguous(wanted))
    events = [
        event("aten::index", 0, 50, [SHAPE, []], ["float", ""], [STEPS, []], ["", ""]),
        *(event(name, 2 + 4 * k, 4 + 4 * k, *told) for k, (name, *told) in enumerate(inside)),
        *launched(1, 45, "gather"),
        event("aten::mul", 60, 80, [wanted, wanted], ["float", "float"], [steps, steps], ["", ""]),
        *launched(2, 70, "multiply"),
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    found = flow(open_trace(path))
    return Rebuilder(found, groups(found), guesses=True).rebuild([0], "chain")


def test_an_index_is_what_the_calls_inside_read_and_it_stays_within_its_axis(tmp_path: Path) -> None:
    found = recorded(tmp_path, (*STRIDED, RESULT), READ)
    call = found.graph.calls[0]
    assert call.label == "aten::index.Tensor"
    assert call.arguments[1] == Refs((None, 1))  # the second axis
    table, index = found.graph.inputs[:2]
    assert (table.spec.shape, index.spec.shape, index.spec.dtype, index.below) == ((6, 8, 4), (5,), "int64", 8)
    assert OUTSIDE in found.assumptions


@pytest.mark.parametrize(
    "inside",
    [
        (),
        ((*STRIDED, RESULT),),  # no index is read
        (READ,),  # nothing tells of which axis
        ((*STRIDED, ["", "[6, 5, 4]", "[32, 4, 1]", ""]), READ),  # all axes are stepped over
        ((*STRIDED, ["", "[6, 5, 4", "[32, x, 1]", ""]), READ),  # damaged
        ((*STRIDED, ["", "[6, 5, 4]", "[32, 0]", ""]), READ),
        ((*STRIDED, ["", "[5, 4]", "[0, 1]", ""]), READ),  # two axes for one index
        ((*STRIDED, RESULT), READ, ("aten::nonzero", [[8]], ["bool"], [[1]], [""])),  # a mask
        ((*STRIDED, RESULT), (*READ[:2], ["", ""], *READ[3:])),
    ],
)
def test_where_nothing_tells_the_indices_it_is_refused(tmp_path: Path, inside: tuple[Any, ...]) -> None:
    with pytest.raises(NotRebuilt, match="not recorded"):
        recorded(tmp_path, *inside)


def test_what_is_copied_twice_before_it_is_an_index_stays_within_its_axis_too() -> None:
    b = GraphBuilder("copies")
    first, second, third = (b.input(name, (5,), "int64", below=99) for name in ("first", "second", "third"))
    table = b.input("table", (3, 4), "float32")
    b.call("aten::copy_", second, first)
    b.call("aten::copy_", third, second)
    graph = b.done(b.call("aten::index_select", table, 0, third))
    assert [entry.below for entry in within(graph).inputs[:3]] == [3, 3, 3]


def test_what_a_copied_index_is_computed_of_is_kept_small() -> None:
    making = Draft("joined")
    one, other, index = (
        making.input(name, TensorSpec((n,), "int64", (1,))) for name, n in zip("abc", (2, 3, 5), strict=True)
    )
    table = making.input("table", TensorSpec((3, 4), "float32", (4, 1)))

    def call(operator: str, *arguments: Value) -> int:
        made = GraphCall(f"aten::{operator}", "", arguments, ())
        return making.call(made, making.inferred(made))[0]

    joined = call("cat", Refs((one, other)), LiteralArg(0))
    call("copy_", Ref(index), Ref(joined), None)
    call("index_select", Ref(table), LiteralArg(0), Ref(index))
    assert [making.inputs[value][1] for value in (one, other, index)] == [2, 2, 3]
