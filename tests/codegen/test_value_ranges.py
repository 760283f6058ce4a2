"""Ranges of a chain's values hold for every input that it may have, and unrecorded numbers are chosen by them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from tracemine.codegen.graph import Graph, Ref, Scalar
from tracemine.codegen.graph_builder import GraphBuilder
from tracemine.codegen.value_ranges import in_tables, ranges
from tracemine.validate import reference

NUMBERS = st.integers(-5, 5)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("add", "sub", "mul", "neg", "abs", "clamp", "cumsum", "sum", "where", "div", "cat", "mod")),
        st.integers(0, 30),
        st.integers(0, 30),
        NUMBERS,
    ),
    min_size=1,
    max_size=8,
)


def _call(b: GraphBuilder, name: str, x: Ref, y: Ref, n: int, seen: Ref) -> Ref:
    calls: dict[str, Callable[[], Ref]] = {
        "add": lambda: b.call("aten::add.Tensor", x, y),
        "sub": lambda: b.call("aten::sub.Tensor", x, n),
        "mul": lambda: b.call("aten::mul.Tensor", x, y),
        "neg": lambda: b.call("aten::neg", x),
        "abs": lambda: b.call("aten::abs", x),
        "clamp": lambda: b.call("aten::clamp", x, n, n + 3),
        "cumsum": lambda: b.call("aten::cumsum", x, 1),
        "sum": lambda: b.call("aten::expand", b.call("aten::sum.dim_IntList", x, [1], True), [3, 4]),
        "where": lambda: b.call("aten::where.self", seen, x, y),
        "div": lambda: b.call("aten::floor_divide", x, b.call("aten::full", [], n or 2, dtype="int64")),
        "cat": lambda: b.call("aten::slice.Tensor", b.call("aten::cat", [x, y], 0), 0, 1, 4, 1),
        "mod": lambda: b.call("aten::remainder.Scalar", x, abs(n) + 1),
    }
    return calls[name]()


def chain_of(steps: list[tuple[str, int, int, int]]) -> Graph:
    b = GraphBuilder("chain")
    values: list[Ref] = [b.input("x", (3, 4), "int64", below=5), b.input("y", (3, 4), "int64", below=2)]
    seen = b.input("seen", (3, 4), "bool")
    for name, first, second, number in steps:
        x, y = values[first % len(values)], values[second % len(values)]
        values.append(_call(b, name, x, y, number, seen))
    return b.done(*values[2:])


@settings(max_examples=60)
@given(STEPS, st.integers(0, 1000))
def test_no_value_lies_outside_its_range(steps: list[tuple[str, int, int, int]], seed: int) -> None:
    chain = chain_of(steps)
    known = ranges(chain)
    torch.manual_seed(seed)
    inputs = [torch.randint(0, 5, (3, 4)), torch.randint(0, 2, (3, 4)), torch.rand(3, 4) < 0.5]
    found = reference.run(chain, inputs, {s.name: s.value for s in chain.scalars}, {})
    told = 0
    for value, tensor in zip(chain.live, found.live, strict=True):
        if (bounds := known[value]) is not None:
            told += 1
            assert bounds[0] <= tensor.min() <= tensor.max() <= bounds[1]
    assert told == len(chain.live)


def looked_up(recorded: bool) -> Graph:
    """As position embeddings: a table of 8 rows, and places from 0 to 7 with a number added."""
    b = GraphBuilder("positions")
    table = b.input("table", (8, 4), "float32")
    places = b.call("aten::arange.start_step", 0, 8, 1, dtype="int64")
    chain = b.done(b.call("aten::embedding", table, b.call("aten::add.Tensor", places, 2)))
    calls = [
        msgspec.structs.replace(
            call,
            arguments=tuple(Scalar(v.name, v.value, recorded) if isinstance(v, Scalar) else v for v in call.arguments),
        )
        for call in chain.calls
    ]
    return msgspec.structs.replace(chain, calls=tuple(calls))


def test_a_number_that_was_not_recorded_is_one_for_which_places_are_in_their_table() -> None:
    chain, inside = in_tables(looked_up(recorded=False))
    assert inside
    assert [s.value for s in chain.scalars] == [0]


def test_a_recorded_number_is_kept_even_where_places_lie_outside() -> None:
    chain, inside = in_tables(looked_up(recorded=True))
    assert not inside
    assert [s.value for s in chain.scalars] == [2]


def test_of_what_views_hold_after_a_write_nothing_is_said() -> None:
    b = GraphBuilder("written")
    x = b.input("x", (4, 4), "int64", below=3)
    part = b.call("aten::select.int", x, 0, 0)
    b.call("aten::add_.Tensor", x, 100)
    chain = b.done(b.call("aten::neg", part))
    assert ranges(chain)[-1] is None
