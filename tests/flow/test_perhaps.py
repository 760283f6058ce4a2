"""Where it is a guess who reads what, every way that may be there counts as one."""

from __future__ import annotations

import json
from typing import Any

from tests.flow.test_inferred import FLOAT, LONG, Eager
from tracemine.flow import Evidence, Source


def without_strides(eager: Eager) -> Eager:
    for op in eager.trace.rows["ops"]:
        op["input_strides"] = None
    return eager


def perhaps(eager: Eager) -> set[tuple[str, str]]:
    """Operators of which the first may have to run before the second, though no read says so."""
    found = eager.flow()
    names = found.timeline.ops.column("name").to_pylist()
    label = [names[row].removeprefix("aten::") for row in found.nodes.op_row.tolist()]
    known = set(zip(found.edges.producer.tolist(), found.edges.consumer.tolist(), strict=True))
    pairs = set(zip(found.perhaps_before.tolist(), found.perhaps_after.tolist(), strict=True))
    return {(label[before], label[after]) for before, after in pairs - known}


def test_each_tensor_that_looks_right_may_be_the_one_that_is_read() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", ([2, 4], FLOAT))
    eager.call("aten::sigmoid", ([8, 4], FLOAT))  # of what relu made
    eager.call("aten::tanh", ([8, 4], FLOAT))  # of sigmoid's, relu's or another one
    eager.call("aten::cos", ([8, 4], FLOAT))
    eager.call("aten::mul", ([8, 4], FLOAT), ([8, 4], FLOAT))
    assert ("tanh", "mul") in perhaps(eager) or ("sigmoid", "mul") in perhaps(eager)
    assert not any(before == "exp" for before, _ in perhaps(eager))


def test_a_tensor_whose_indices_were_not_recorded_may_have_been_looked_up_by_anything_before() -> None:
    eager = Eager()
    eager.call("aten::bitwise_not", ([64], LONG))
    eager.call("aten::index", ([100, 8], FLOAT), ([], ""))
    assert ("bitwise_not", "index") in perhaps(eager)


def test_a_number_may_be_a_tensor_of_one_element_that_a_kernel_made() -> None:
    eager = Eager()
    eager.call("aten::sum", ([64], LONG), ([], ""))
    eager.call("aten::div", ([64, 8], FLOAT), ([], LONG))
    eager.call("aten::mul", ([64, 8], FLOAT), ([], "double"))
    assert ("sum", "div") in perhaps(eager)
    assert ("sum", "mul") not in perhaps(eager)


def test_what_the_host_reads_is_a_tensor_and_no_number() -> None:
    eager = Eager()
    eager.call("aten::sum", ([64], LONG), ([], ""))
    eager.call("aten::_local_scalar_dense", ([], LONG))
    assert eager.reads()["_local_scalar_dense", 0][0] == {"sum"}


def test_without_strides_a_result_is_what_the_next_operator_takes() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 8], FLOAT))
    eager.call("aten::addmm", ([8], FLOAT), ([8, 8], FLOAT), ([8, 8], FLOAT))
    eager.call("aten::gelu", ([8, 8], FLOAT))
    reads = without_strides(eager).reads()
    assert reads["addmm", 1][0] == {"relu"}
    assert reads["gelu", 0][0] == {"addmm"}


def test_what_fits_in_other_strides_alone_is_not_known_to_come_from_outside() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", ([8, 4], FLOAT))
    ops: list[dict[str, Any]] = eager.trace.rows["ops"]
    ops[-1]["input_strides"] = json.dumps([[1, 8]])
    assert eager.reads()["exp", 0][2] == Evidence.ADJACENT
    assert ("relu", "exp") in perhaps(eager)


def a_view_that_may_lie_on_the_host(*, on_host: bool) -> Eager:
    """A kernel's result, perhaps one like it on the host, a transposed view of one of them, and who reads such a view.

    Another view of that look came from outside, and has been read.
    """
    eager = Eager()
    transposed = ([16, 8], FLOAT)
    eager.call("aten::sum", transposed, ([], ""))
    eager.call("aten::relu", ([8, 16], FLOAT))
    if on_host:
        eager.call("aten::tanh", ([8, 16], FLOAT), kernels=0)
    eager.call("aten::t", ([8, 16], FLOAT), kernels=0)
    eager.call("aten::sin", transposed)
    for op in eager.trace.rows["ops"]:
        if op["name"] in ("aten::sum", "aten::sin"):
            op["input_strides"] = json.dumps([[1, 16], []][: 2 if op["name"] == "aten::sum" else 1])
    return eager


def test_a_view_that_was_guessed_to_lie_on_the_host_may_be_of_what_a_kernel_made() -> None:
    eager = a_view_that_may_lie_on_the_host(on_host=True)
    assert eager.reads()["sin", 0][2] == Evidence.ADJACENT
    assert ("relu", "sin") in perhaps(eager)


def test_a_view_of_the_only_tensor_that_looks_so_is_no_guess() -> None:
    eager = a_view_that_may_lie_on_the_host(on_host=False)
    assert eager.reads()["sin", 0] == ({"relu"}, Source.WRITTEN, Evidence.CONSISTENT)


def copies(*shapes: int) -> Eager:
    """Copies into tensors from outside, as a broadcast of buffers does, and who reads one of 64 elements."""
    eager = Eager()
    for size in shapes:
        eager.call("aten::copy_", ([size], FLOAT), ([size], FLOAT), ([], "Bool"), values=["", "", "False"])
    eager.call("aten::sin", ([64], FLOAT))
    return eager


def test_of_copies_that_look_alike_nobody_says_which_wrote_what_is_read() -> None:
    for eager in (copies(64, 64), copies(64, 64, 64), copies(64, 32, 64, 32)):
        reads = eager.reads()
        assert not any(reads[key][0] for key in reads)
        assert ("copy_", "sin") in perhaps(eager)
        assert reads["sin", 0][2] == Evidence.ADJACENT


def test_what_one_copy_wrote_is_read() -> None:
    assert copies(64).reads()["sin", 0][0] == {"copy_"}
    assert copies(32, 64).reads()["sin", 0][0] == {"copy_#1"}
