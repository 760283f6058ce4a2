"""What is a guess is not rebuilt: kernel and eager would agree on calls that the model never made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.test_inferred import FLOAT, Eager
from tracemine.flow import flow
from tracemine.formats import open_trace
from tracemine.fusion import groups
from tracemine.verify.rebuild.rebuilder import GUESSED, NotRebuilt, Rebuilder, Rebuilt

KINETO = Path(__file__).parents[3] / "fixtures" / "kineto"
WIDE, ROW = ([64, 1024], FLOAT), ([64, 1], FLOAT)


def rebuilt(eager: Eager, kernels: list[int]) -> Rebuilt:
    found = eager.flow()
    return Rebuilder(found, groups(found)).rebuild(kernels, "chain")


def labels(found: Rebuilt) -> list[str]:
    return [call.label.removeprefix("aten::") for call in found.graph.calls]


@pytest.mark.parametrize("name", ["decoder_prefill", "decoder_decode"])
def test_a_norm_spelled_out_is_not_rebuilt_without_an_execution_trace(name: str) -> None:
    found = flow(open_trace(KINETO / f"{name}.json.gz"))
    names = found.timeline.ops.column("name").to_pylist()
    root = [names[row] for row in found.nodes.op_row.tolist()].index("aten::rsqrt")
    owned = found.nodes.activity[found.nodes.activity_begin[root] : found.nodes.activity_begin[root + 1]]
    with pytest.raises(NotRebuilt, match="is a guess"):
        Rebuilder(found, groups(found)).rebuild(owned.tolist(), "norm")


def test_a_product_of_a_tensor_or_of_its_square_is_not_rebuilt() -> None:
    eager = Eager()
    eager.call("aten::relu", WIDE)
    eager.call("aten::pow", WIDE, ([], "Scalar"), values=["", "2"])
    eager.call("aten::mean", WIDE, ([], "ScalarList"), ([], "Scalar"), ([], ""), values=["", "[-1]", "True", ""])
    eager.call("aten::rsqrt", ROW)
    eager.call("aten::mul", WIDE, ROW)  # of relu's or of pow's
    with pytest.raises(NotRebuilt) as reason:
        rebuilt(eager, [0, 1, 2, 3, 4])
    assert reason.value.message == GUESSED


def test_where_each_tensor_is_the_only_one_the_chain_is_rebuilt() -> None:
    eager = Eager()
    eager.call("aten::relu", WIDE)
    eager.call("aten::exp", WIDE)
    eager.call("aten::tanh", WIDE)
    eager.call("aten::mm", WIDE, ([1024, 8], FLOAT))
    found = rebuilt(eager, [0, 1, 2])
    assert labels(found) == ["relu", "exp", "tanh"]
    assert found.evidence == "consistent"
    assert len(found.graph.live) == 1


def test_a_result_that_a_guess_outside_may_read_is_given_back() -> None:
    eager = Eager()
    eager.call("aten::relu", WIDE)
    eager.call("aten::exp", WIDE)
    eager.call("aten::tanh", WIDE)
    eager.call("aten::mm", WIDE, ([1024, 1024], FLOAT))
    eager.call("aten::mm", WIDE, ([1024, 1024], FLOAT))  # of the product before it
    eager.call("aten::sort", WIDE, values=[""])  # of that
    eager.call("aten::cumsum", WIDE, ([], "Scalar"), ([], ""), values=["", "0", ""])  # of any that was read
    found = rebuilt(eager, [0, 1, 2])
    assert labels(found) == ["relu", "exp", "tanh"]
    assert len(found.graph.live) > 1


def test_two_tensors_from_outside_that_look_alike_are_two_inputs() -> None:
    eager = Eager()
    eager.call("aten::mul", WIDE, WIDE)  # of two tensors, or of one with itself: right for both
    eager.call("aten::exp", WIDE)
    eager.call("aten::mm", WIDE, ([1024, 8], FLOAT))
    found = rebuilt(eager, [0, 1])
    assert labels(found) == ["mul.Tensor", "exp"]
    assert len(found.graph.inputs) == 2
