"""The operators' graph: who reads what, what of it is known, and what may be read by others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.flow.programs import ADD, COPY_, RELU, Program
from tracemine.flow import Evidence
from tracemine.matching.graph_match import find_in_graph
from tracemine.matching.graph_parse import parse_graph
from tracemine.matching.rule import ColumnTest
from tracemine.rows.graph import NodeGraph, graph_of
from tracemine.rows.table import Categories, Column, Numbers, Rows

SOFTMAX = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"


def graph(program: Program) -> NodeGraph:
    found = graph_of(program.flow())
    assert found is not None
    return found


def steps(step: Callable[[Program], None], count: int = 3) -> Program:
    """The same step again and again; what it keeps in storages it takes again, as a caching allocator does."""
    program = Program()
    for _ in range(count):
        program.step()
        step(program)
    return program


def test_an_edge_goes_from_who_reads_to_who_wrote_and_what_is_read_alike_is_one_value() -> None:
    program = Program()
    x, y, z = (program.tensor(name, 8) for name in "xyz")
    program.call(RELU, [x], [y])
    program.call(ADD, [y, x], [z])
    found = graph(program)
    assert (found.consumer.tolist(), found.producer.tolist()) == ([1], [0])
    assert found.evidence.tolist() == [Evidence.PROVEN]
    assert found.told.tolist() == [True, True]
    begin, buffer = found.read_begin.tolist(), found.read_buffer.tolist()
    assert buffer[begin[0]] in buffer[begin[1] : begin[2]], "both read x"


def test_what_the_next_step_makes_anew_is_not_live_out_and_what_is_never_taken_again_is() -> None:
    def step(program: Program) -> None:
        x, y, z = (program.tensor(name, 8) for name in "xyz")
        program.call(RELU, [x], [y])
        program.call(ADD, [y, x], [z])
        program.call(RELU, [z], [program.tensor(f"kept{program.now}", 8)])

    found = graph(steps(step))
    assert found.lifetimes_known
    assert found.live_out.tolist()[:3] == [False, False, True]


def test_a_cast_into_memory_from_empty_is_a_result_like_others() -> None:
    def step(program: Program) -> None:
        x, y, z = (program.tensor(name, 8) for name in "xyz")
        program.allocate(y)
        program.call(COPY_, [y, x], [y])
        program.call(RELU, [y], [z])
        program.call(RELU, [z], [program.tensor(f"kept{program.now}", 8)])

    found = graph(steps(step))
    assert found.live_out.tolist()[:3] == [False, False, True]


def test_while_an_unknown_operator_runs_what_is_there_may_be_read_by_it() -> None:
    def step(program: Program) -> None:
        x, y, z, w = (program.tensor(name, 8) for name in "xyzw")
        program.call(RELU, [x], [y])
        program.call("my::unknown", joined=False)
        program.call(RELU, [y], [z])
        program.call(RELU, [z], [w])
        program.call(RELU, [w], [program.tensor(f"kept{program.now}", 8)])

    found = graph(steps(step))
    assert not found.known[1]
    assert found.live_out.tolist()[0], "y is there while it runs"
    assert not found.live_out.tolist()[2], "z is made after it, and again before the next"


def unused_again(step_count: int = 3) -> Program:
    def step(program: Program) -> None:
        x = program.tensor("x", 8)
        y, z = (program.tensor(f"{name}{program.now}", 8) for name in "yz")
        program.call(RELU, [x], [y])
        program.call(RELU, [y], [z])

    return steps(step, step_count)


def test_where_memory_is_never_used_again_results_go_with_their_last_consumer_and_that_is_no_proof() -> None:
    found = graph(unused_again())
    assert not found.lifetimes_known
    assert found.live_out.tolist() == [False, True] * 3, "what nobody reads is kept"
    columns: dict[str, Column] = {
        "op": Categories(np.zeros(6, np.int32), ("relu",)),
        "stream": Numbers(np.zeros(6, np.int64)),
    }
    labels = {"relu": (ColumnTest("op", "is", ("relu",)),)}
    for clause, evidence in (("", Evidence.PROVEN), (" ONLY READER (a)", Evidence.CONSISTENT)):
        pattern = parse_graph(f"(a IS relu)<-[reads]-(b IS relu){clause}", ["relu"])
        matched = find_in_graph(pattern, labels, Rows("activities", 6, columns, found), ("stream",))
        assert matched.evidence.tolist() == [evidence] * 3


def test_in_a_single_step_whatever_is_there_at_its_end_may_be_live_out() -> None:
    assert graph(unused_again(1)).live_out.tolist() == [True, True]


@pytest.mark.parametrize(
    ("schema", "concrete", "shape", "axis"),
    [
        (SOFTMAX, ["", "-1", "False"], (4, 8), -1),
        (SOFTMAX, ["", "0", "False"], (4, 8), -2),
        (SOFTMAX, ["", "7", "False"], (4, 8), None),
        (RELU, [""], (4, 8), None),
    ],
)
def test_the_axis_counts_from_the_end(
    schema: str, concrete: list[str], shape: tuple[int, ...], axis: int | None
) -> None:
    program = Program()
    program.call(schema, [program.tensor("x", *shape)], [program.tensor("y", *shape)])
    op = program.trace.rows["ops"][0]
    op["input_shapes"] = str([list(shape), *([] for _ in concrete[1:])]).replace("'", '"')
    op["input_dtypes"] = '["float"' + ',"Scalar"' * (len(concrete) - 1) + "]"
    op["concrete_inputs"] = str(concrete).replace("'", '"')
    tensors = graph(program).tensors
    known = [int(value) for value in tensors.axis if value > -100]
    assert known == ([] if axis is None else [axis])
    entry = tensors.of["out"][0]
    assert (int(tensors.rank[entry]), tensors.shape[entry, -2:].tolist()) == (2, list(shape))
