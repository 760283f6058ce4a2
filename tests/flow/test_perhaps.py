"""Where it is a guess who reads what, every way that may be there counts as one."""

from __future__ import annotations

import json
from typing import Any

from tests.flow.test_inferred import FLOAT, LONG, SCALAR, Eager
from tracemine.flow import Evidence, Source
from tracemine.fusion import groups


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


def shifted_within_itself() -> Eager:
    """`x[:, 1:] = x[:, :-1].clone()` without strides: both slices and the copy look alike."""
    eager = Eager()
    whole, part = ([8, 64], FLOAT), ([8, 63], FLOAT)
    where: list[tuple[Any, str]] = [([], SCALAR)] * 4
    eager.call("aten::relu", whole)
    eager.call("aten::slice", whole, *where, kernels=0, values=["", "1", "0", "-1", "1"])
    eager.call("aten::clone", part)
    eager.call("aten::slice", whole, *where, kernels=0, values=["", "1", "1", "9223372036854775807", "1"])
    eager.call("aten::copy_", part, part)
    eager.call("aten::sigmoid", whole)
    return without_strides(eager)


def test_a_copy_into_a_slice_of_what_it_was_copied_from_writes_the_slice() -> None:
    """Nobody overwrites what was computed and has not been read."""
    reads = shifted_within_itself().reads()
    assert reads["copy_", 1][0] == {"clone"}
    assert reads["copy_", 1][2] == Evidence.ADJACENT, "which of two that look alike is written is a guess"
    assert "copy_" in reads["sigmoid", 0][0]


def test_two_slices_of_which_nobody_knows_where_they_begin_are_in_no_group_where_one_is_written() -> None:
    """One copy would read elements that the other has overwritten."""
    found = shifted_within_itself().flow()
    names = found.timeline.ops.column("name").to_pylist()
    grouped = groups(found)
    label = [names[row].removeprefix("aten::") for row in found.nodes.op_row.tolist()]
    members = [
        {label[found.activity_node[row]] for row in grouped.activity[begin:end].tolist()}
        for begin, end in zip(grouped.activity_begin[:-1].tolist(), grouped.activity_begin[1:].tolist(), strict=True)
    ]
    assert not any({"clone", "copy_"} <= each for each in members)


def test_a_tensor_written_whole_after_it_was_read_is_fused_without_strides_too() -> None:
    """Near miss: nothing is a part of anything."""
    eager = Eager()
    whole = ([8, 64], FLOAT)
    eager.call("aten::sigmoid", whole)
    eager.call("aten::relu", whole)
    eager.call("aten::exp_", whole)
    found = without_strides(eager).flow()
    grouped = groups(found)
    assert {found.activity_node[row] for row in grouped.activity.tolist()} == {0, 1, 2}
