"""Dataflow where nothing recorded it: what is told, what is only guessed, and what must not be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timelines import Trace
from tracemine.flow import Evidence, Flow, Source, activity_edges, flow

FLOAT, LONG, HALF = "float", "long int", "c10::Half"
SCALAR, LIST = "Scalar", "TensorList"


@dataclass
class Eager:
    """Operators as Kineto alone records them: shapes, dtypes, strides and values, no names of tensors."""

    trace: Trace = field(default_factory=Trace)
    now: int = 0
    stack: list[dict[str, Any]] = field(default_factory=list)

    def call(
        self,
        name: str,
        *inputs: tuple[Any, str],
        values: Sequence[str] = (),
        kernels: int = 1,
        tid: int = 1,
        inside: Sequence[tuple[Any, ...]] = (),
        **columns: Any,
    ) -> None:
        """One operator; inputs as (shape, dtype), those of lists as (shapes, "TensorList")."""
        self.now += 10
        op = self.trace.op(
            name,
            self.now,
            0,
            tid=tid,
            shapes=[shape for shape, _ in inputs],
            dtypes=[dtype for _, dtype in inputs],
            strides=[_strides(shape, dtype) for shape, dtype in inputs],
            concrete=[*values, *[""] * (len(inputs) - len(values))],
            parent_row=self.stack[-1] if self.stack else None,
            **columns,
        )
        self.stack.append(op)
        for child, *arguments in inside:
            keywords = arguments.pop() if isinstance(arguments[-1], dict) else {}
            self.call(child, *arguments, tid=tid, **keywords)
        self.stack.pop()
        for _ in range(kernels):
            self.now += 10
            self.trace.kernel(name, self.now, 5, op=op)
        self.now += 10
        op["dur_ns"] = self.now - op["start_ns"]

    def flow(self) -> Flow:
        return flow(self.trace.timeline())

    def reads(self) -> dict[tuple[str, int], tuple[set[str], Source, Evidence]]:
        """(operator, position) → operators that wrote it, where it is from, and how sure that is."""
        found = self.flow()
        names = found.timeline.ops.column("name").to_pylist()
        position = found.timeline.tensors.column("position").to_pylist()
        label = [names[row].removeprefix("aten::") for row in found.nodes.op_row.tolist()]
        label = [f"{name}#{label[:at].count(name)}" if name in label[:at] else name for at, name in enumerate(label)]
        return {
            (label[node], position[row]): (
                {label[p] for p, read in zip(found.edges.producer, found.edges.read, strict=True) if read == at},
                Source(int(source)),
                Evidence(int(evidence)),
            )
            for at, (node, row, source, evidence) in enumerate(
                zip(
                    found.reads.node.tolist(),
                    found.reads.tensor_row.tolist(),
                    found.reads.source,
                    found.reads.evidence,
                    strict=True,
                )
            )
        }


def _strides(shape: Any, dtype: str) -> Any:
    if dtype == LIST:
        return [_strides(member, FLOAT) for member in shape]
    steps = [1]
    for size in reversed(shape[1:]):
        steps.insert(0, steps[0] * size)
    return steps if shape else []


def test_the_only_tensor_that_looks_so_is_consistent() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", ([8, 4], FLOAT))
    assert eager.reads()["exp", 0] == ({"relu"}, Source.WRITTEN, Evidence.CONSISTENT)
    assert eager.reads()["relu", 0] == (set(), Source.OUTSIDE, Evidence.CONSISTENT)


def test_where_no_strides_were_recorded_results_are_told_without_them() -> None:
    trace = Trace()
    for at, (name, shapes) in enumerate((("aten::mm", [[8, 4], [4, 16]]), ("aten::relu", [[8, 16]]))):
        op = trace.op(name, at * 10, 8, shapes=shapes, dtypes=[FLOAT] * len(shapes))
        trace.kernel("k", at * 10 + 5, 4, op=op)
    found = flow(trace.timeline())
    assert list(zip(found.edges.producer.tolist(), found.edges.consumer.tolist(), strict=True)) == [(0, 1)]


@pytest.mark.parametrize("other", [([4, 8], FLOAT), ([8, 4], HALF)])
def test_another_shape_or_dtype_is_another_tensor(other: tuple[Any, str]) -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", other)
    assert eager.reads()["exp", 0][:2] == (set(), Source.OUTSIDE)


def test_parameters_come_from_outside_though_a_tensor_looks_like_one() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 8], FLOAT))
    eager.call("aten::linear", ([8, 8], FLOAT), ([8, 8], FLOAT), ([8], FLOAT))
    reads = eager.reads()
    assert reads["linear", 0][0] == {"relu"}
    assert reads["linear", 2] == (set(), Source.OUTSIDE, Evidence.CONSISTENT)


def test_a_parameter_that_was_made_right_before_is_taken_and_an_older_one_is_a_guess() -> None:
    weight = ([16, 8], HALF)
    for since, evidence in ((0, Evidence.CONSISTENT), (4, Evidence.ADJACENT)):
        eager = Eager()
        eager.call("aten::relu", ([4, 8], HALF))
        eager.call("aten::mul", weight, ([16, 1], HALF))
        for _ in range(since):
            eager.call("aten::relu", ([4, 8], HALF))
        eager.call("aten::linear", ([4, 8], HALF), weight, ([], ""))
        assert eager.reads()["linear", 1][2] is evidence


def test_a_parameter_that_looks_like_the_input_may_be_another() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 8], FLOAT))
    eager.call("aten::mul", ([8, 8], FLOAT), ([8, 1], FLOAT))
    eager.call("aten::linear", ([8, 8], FLOAT), ([8, 8], FLOAT), ([], ""))
    assert eager.reads()["linear", 1][2] is Evidence.ADJACENT


def test_several_products_of_one_tensor_take_that_tensor() -> None:
    """q, k and v: what was made last is another product, which nobody multiplies at once by a matrix."""
    eager = Eager()
    eager.call("aten::relu", ([8, 8], FLOAT))
    for _ in range(3):
        eager.call("aten::linear", ([8, 8], FLOAT), ([8, 8], FLOAT), ([], ""))
    reads = eager.reads()
    assert [reads[name, 0][0] for name in ("linear", "linear#1", "linear#2")] == [{"relu"}] * 3


def test_of_several_that_wait_one_is_a_guess() -> None:
    eager = Eager()
    for _ in range(3):
        eager.call("aten::relu", ([8, 4], FLOAT))
        eager.call("aten::mean", ([8, 4], FLOAT), ([], ""))
        eager.call("aten::exp", ([8, 4], FLOAT))
        eager.call("aten::sin", ([8, 4], FLOAT))
    assert Evidence.ADJACENT in {evidence for _, _, evidence in eager.reads().values()}


def test_two_inputs_that_look_alike_are_two_tensors() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::mm", ([8, 2], FLOAT), ([2, 4], FLOAT))
    eager.call("aten::mul", ([8, 4], FLOAT), ([8, 4], FLOAT))
    reads = eager.reads()
    assert reads["mul", 0][0] != reads["mul", 1][0]


@pytest.mark.parametrize("inside", [(), [("aten::resize_", ([2, 2], FLOAT))]])
def test_what_an_unknown_operator_may_have_made_is_no_bridge_to_what_was_there_before(inside: Any) -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("my::convolution", ([2, 2], FLOAT), inside=inside)
    eager.call("aten::exp", ([8, 4], FLOAT))
    eager.call("aten::neg", ([8, 4], FLOAT))
    reads = eager.reads()
    assert reads["exp", 0][0] == set()
    assert reads["neg", 0] == ({"exp"}, Source.WRITTEN, Evidence.ADJACENT)


def test_the_newest_is_no_evidence_where_one_like_it_is_read_again_soon() -> None:
    """`0.5·x` waits while `x` is taken to its third power: what looks like a chain is not one."""
    eager = Eager()
    eager.call("aten::sigmoid", ([8, 4], FLOAT))
    eager.call("aten::mul", ([8, 4], FLOAT), ([], "double"))
    eager.call("aten::pow", ([8, 4], FLOAT), ([], SCALAR), values=["", "3"])
    assert eager.reads()["pow", 0] == ({"mul"}, Source.WRITTEN, Evidence.CONSISTENT)
    eager.call("aten::mul", ([8, 4], FLOAT), ([8, 4], FLOAT))
    assert eager.reads()["pow", 0][2] is Evidence.ADJACENT


def test_behind_a_view_that_was_guessed_nothing_is_sure() -> None:
    run = Eager()
    run.call("aten::relu", ([4, 8], FLOAT))
    run.call("aten::exp", ([4, 8], FLOAT))
    run.call("aten::add", ([4, 8], FLOAT), ([4, 8], FLOAT), ([], SCALAR))
    run.call("aten::sum", ([4, 8], FLOAT), ([], ""))
    run.call("aten::view", ([4, 8], FLOAT), ([], "ScalarList"), values=["", "[4, 8]"], kernels=0)  # of one of three
    run.call("aten::cos", ([4, 8], FLOAT))
    assert run.reads()["cos", 0][2] is Evidence.ADJACENT


def test_a_product_need_not_take_the_newest_where_that_is_read_again() -> None:
    """Two layers side by side, of which the first's gate waits for the second: sigmoid(a(x)) * tanh(b(x))."""
    x, weight = ([4, 8], FLOAT), ([8, 8], FLOAT)

    def run(*, again: bool) -> Evidence:
        eager = Eager()
        eager.call("aten::relu", x)
        eager.call("aten::mm", x, weight)
        eager.call("aten::sigmoid", x)
        eager.call("aten::mm", x, weight)
        if again:
            eager.call("aten::tanh", x)
            eager.call("aten::mul", x, x)
        return eager.reads()["mm#1", 0][2]

    assert (run(again=False), run(again=True)) == (Evidence.CONSISTENT, Evidence.ADJACENT)


def test_what_waits_since_another_step_is_no_evidence() -> None:
    eager = Eager()
    eager.call("aten::exp", ([8, 4], FLOAT))
    eager.trace.step(0, eager.now + 5)
    eager.trace.step(eager.now + 5, 1000)
    eager.call("aten::sin", ([8, 4], FLOAT))
    eager.call("aten::neg", ([8, 4], FLOAT))
    reads = eager.reads()
    assert reads["sin", 0][2] is Evidence.ADJACENT
    assert reads["neg", 0] == ({"sin"}, Source.WRITTEN, Evidence.CONSISTENT)


@pytest.mark.parametrize(("width", "evidence"), [(8, Evidence.CONSISTENT), (16, Evidence.ADJACENT)])
def test_a_product_of_another_width_need_not_take_what_the_last_one_took(width: int, evidence: Evidence) -> None:
    eager = Eager()
    eager.call("aten::relu", ([4, 8], FLOAT))
    eager.call("aten::linear", ([4, 8], FLOAT), ([8, 8], FLOAT), ([], ""))
    eager.call("aten::linear", ([4, 8], FLOAT), ([width, 8], FLOAT), ([], ""))
    assert eager.reads()["linear#1", 0] == ({"relu"}, Source.WRITTEN, evidence)


def test_what_an_operator_inside_writes_into_may_be_what_it_takes() -> None:
    """`where(mask, 0, x, out=x)`: only what was allocated to be written is told apart from what is read."""
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    softmax: tuple[Any, ...] = ("aten::softmax", ([8, 4], FLOAT), ([], "Scalar"), ([], ""))
    where: tuple[Any, ...] = ("aten::where", ([8, 1], "bool"), ([], FLOAT), ([8, 4], FLOAT), ([8, 4], FLOAT))
    eager.call("aten::_safe_softmax", ([8, 4], FLOAT), ([], "Scalar"), ([], ""), kernels=0, inside=[softmax, where])
    assert eager.reads()["where", 2][2] is Evidence.ADJACENT


@pytest.mark.parametrize("after", [[6, 4], [6, 5]])
def test_what_indexing_gives_is_shaped_as_the_view_inside(after: list[int]) -> None:
    """Shapes of index tensors are not recorded; how the source is viewed for the kernel is."""
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    sizes: tuple[Any, str] = ([], "ScalarList")
    as_recorded: dict[str, Any] = {"values": ["", "[6, 4]", "[0, 1]", ""], "kernels": 0}
    view: tuple[Any, ...] = ("aten::as_strided", ([8, 4], FLOAT), sizes, sizes, ([], ""), as_recorded)
    eager.call("aten::index", ([8, 4], FLOAT), ([], ""), inside=[view])
    eager.call("aten::exp", (after, FLOAT))
    producers, _, evidence = eager.reads()["exp", 0]
    assert producers == ({"index"} if after == [6, 4] else set())
    assert evidence is Evidence.CONSISTENT


def test_a_dropout_that_does_nothing_gives_what_it_takes() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::dropout", ([8, 4], FLOAT), ([], SCALAR), ([], SCALAR), values=["", "0.1", "False"], kernels=0)
    eager.call("aten::exp", ([8, 4], FLOAT))
    assert eager.reads()["exp", 0] == ({"relu"}, Source.WRITTEN, Evidence.CONSISTENT)


def test_a_view_shares_its_storage() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::view", ([8, 4], FLOAT), ([], "ScalarList"), values=["", "[32]"], kernels=0)
    eager.call("aten::exp", ([32], FLOAT))
    assert eager.reads()["exp", 0] == ({"relu"}, Source.WRITTEN, Evidence.CONSISTENT)


def test_what_is_written_in_place_has_a_new_writer() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::add_", ([8, 4], FLOAT), ([4], FLOAT), ([], SCALAR), values=["", "", "1"])
    eager.call("aten::exp", ([8, 4], FLOAT))
    reads = eager.reads()
    assert reads["add_", 0][0] == {"relu"}
    assert reads["exp", 0][0] == {"add_"}


def test_what_is_inside_an_operator_is_wired_by_what_it_took() -> None:
    """The copy inside writes what was allocated for it, though both look the same."""
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    empty: tuple[Any, ...] = ("aten::empty_like", ([8, 4], FLOAT), ([], ""), ([], ""), ([], ""), ([], ""), ([], ""))
    copy: tuple[Any, ...] = ("aten::copy_", ([8, 4], FLOAT), ([8, 4], FLOAT), ([], SCALAR))
    eager.call("aten::clone", ([8, 4], FLOAT), ([], ""), kernels=0, inside=[empty, copy])
    assert ("copy_", 1) in eager.reads()
    assert eager.reads()["copy_", 1][0] == {"relu"}


def test_python_numbers_are_no_tensors() -> None:
    eager = Eager()
    eager.call("aten::mul", ([8, 4], FLOAT), ([], "double"))
    assert set(eager.reads()) == {("mul", 0)}


def test_behind_an_operator_without_output_rule_nothing_older_is_the_only_one() -> None:
    """It may have given what is read; so nothing goes through it, and what was there before is a guess."""
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("custom::rotate", ([8, 4], FLOAT))
    eager.call("aten::exp", ([8, 4], FLOAT))
    producers, _, evidence = eager.reads()["exp", 0]
    assert "custom::rotate" not in producers
    assert evidence is Evidence.ADJACENT
    eager.call("aten::sin", ([2, 2], FLOAT))
    assert eager.reads()["sin", 0][2] is Evidence.ADJACENT  # it too may be what the unknown one gave


def test_after_a_list_that_was_not_recorded_was_written_no_parameter_is_known() -> None:
    """Kineto cuts long lists to nothing: an optimizer's step may have written every parameter."""
    eager = Eager()
    eager.call("aten::linear", ([8, 8], FLOAT), ([8, 8], FLOAT), ([], ""))
    eager.call("aten::_foreach_add_", ([], LIST), ([], LIST), ([], SCALAR), values=["", "", "1"])
    eager.call("aten::linear", ([8, 8], FLOAT), ([8, 8], FLOAT), ([], ""))
    reads = eager.reads()
    assert reads["linear", 1][2] is Evidence.CONSISTENT
    assert reads["linear#1", 1][2] is Evidence.ADJACENT


def test_a_gradient_takes_what_its_forward_operator_took() -> None:
    """Both wait and look alike; the sequence number tells which the backward pass has kept."""
    eager = Eager()
    eager.call("aten::exp", ([8, 4], FLOAT))
    eager.call("aten::gelu", ([8, 4], FLOAT), ([], ""), sequence_number=5, forward_thread_id=0)
    eager.call("aten::sin", ([8, 4], FLOAT), sequence_number=6, forward_thread_id=0)
    eager.call("aten::ones_like", ([8, 4], FLOAT), ([], ""), ([], ""), ([], ""), ([], ""), ([], ""))
    node = "autograd::engine::evaluate_function: GeluBackward0"
    backward: tuple[Any, ...] = ("aten::gelu_backward", ([8, 4], FLOAT), ([8, 4], FLOAT), ([], ""))
    eager.now += 10
    outer = eager.trace.op(node, eager.now, 0, tid=2, sequence_number=5, forward_thread_id=1)
    eager.stack.append(outer)
    eager.call(
        "GeluBackward0", ([8, 4], FLOAT), kernels=0, tid=2, inside=[backward], sequence_number=5, forward_thread_id=1
    )
    eager.stack.pop()
    outer["dur_ns"] = eager.now - outer["start_ns"]
    assert eager.reads()["gelu_backward", 1] == ({"exp"}, Source.WRITTEN, Evidence.CONSISTENT)
    assert eager.reads()["gelu_backward", 0][0] == {"ones_like"}


def test_the_same_operator_takes_another_tensor_from_outside_each_time() -> None:
    """Caches of layers look alike; what reads two of them shares nothing."""
    eager = Eager()
    for _ in range(2):
        eager.call("aten::sum", ([8, 4], FLOAT))
    eager.call("aten::max", ([8, 4], FLOAT))
    found = eager.flow()
    assert found.reads.source.tolist() == [Source.OUTSIDE] * 3
    first, second, third = found.reads.buffer.tolist()
    assert first != second == third


def test_an_optimizer_that_takes_a_parameter_at_a_time_joins_no_two() -> None:
    eager = Eager()
    eager.call("aten::ones_like", ([8, 4], FLOAT), ([], ""), ([], ""), ([], ""), ([], ""), ([], ""))
    node = "autograd::engine::evaluate_function: NegBackward0"
    eager.now += 10
    eager.stack.append(eager.trace.op(node, eager.now, 40, sequence_number=5))
    eager.call("aten::neg", ([8, 4], FLOAT))
    eager.stack.pop()
    for _ in range(2):
        eager.call("aten::mul_", ([8, 4], FLOAT), ([], SCALAR))
        eager.call("aten::sqrt", ([8, 4], FLOAT))
    reads = eager.reads()
    assert reads["sqrt", 0][0] == {"mul_"}
    assert reads["sqrt#1", 0][0] == {"mul_#1"}
    assert not reads["mul_#1", 0][0] & {"mul_", "sqrt"}


def test_what_was_read_for_the_last_time_is_gone_and_what_nobody_read_stays() -> None:
    eager = Eager()
    eager.trace.step(0, 1000)
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", ([8, 4], FLOAT))
    eager.call("aten::mm", ([2, 2], FLOAT), ([2, 2], FLOAT))
    found = eager.flow()
    assert found.writes.live_out.tolist() == [False, True, True]


def test_edges_of_inferred_tensors_name_their_evidence_and_no_stored_row() -> None:
    eager = Eager()
    eager.call("aten::relu", ([8, 4], FLOAT))
    eager.call("aten::exp", ([8, 4], FLOAT))
    (edge,) = activity_edges(eager.flow()).to_pylist()
    assert (edge["evidence"], edge["bytes"], edge["read_row"], edge["written_row"]) == ("consistent", 128, None, None)


def test_without_shapes_there_are_no_nodes() -> None:
    eager = Eager()
    op = eager.trace.op("aten::relu", 10, 20)
    eager.trace.kernel("relu", 15, 5, op=op)
    assert len(eager.flow().nodes) == 0


_NAMES = [
    *("aten::add", "aten::add_", "aten::mm", "aten::view", "aten::linear", "aten::cat", "aten::chunk", "aten::copy_"),
    *("aten::empty", "aten::_foreach_add_", "aten::native_layer_norm", "aten::slice", "aten::to", "custom::op"),
    *("aten::mul", "aten::mul_", "aten::_foreach_mul_", "aten::t", "aten::mm", "MulBackward0", "MmBackward0"),
    *(f"autograd::engine::evaluate_function: {name}" for name in ("AddBackward0", "MulBackward0", "MmBackward0")),
    *("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad"),
    *("Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad", "ProfilerStep#1"),
]
_VALUES = st.one_of(
    st.none(), st.integers(-3, 1 << 60), st.text(max_size=3), st.lists(st.integers(-2, 5), max_size=3), st.booleans()
)
_CALLS = st.tuples(
    st.sampled_from(_NAMES),
    st.lists(_VALUES, max_size=4),
    st.lists(st.sampled_from([FLOAT, HALF, LONG, LIST, SCALAR, "", "double", "nonsense"]), max_size=4),
    st.lists(_VALUES, max_size=4),
    st.lists(st.sampled_from(["", "1", "-1", "[2, 2]", "inf", "x" * 9]), max_size=4),
    st.integers(0, 2),  # so many of those before stay open around it
    st.booleans(),
    st.one_of(st.none(), st.integers(0, 3)),
    st.integers(1, 2),
)


_BLOCKS = st.tuples(st.integers(0, 900), st.sampled_from([-512, 0, 512, 1 << 62]), st.integers(0, 2))


@settings(max_examples=100)
@given(st.lists(_CALLS, max_size=12), st.lists(_BLOCKS, max_size=6))
def test_damaged_records_give_less_and_no_error(calls: list[Any], blocks: list[Any]) -> None:
    trace = Trace()
    stack: list[dict[str, Any]] = []
    for at, (name, shapes, dtypes, strides, concrete, deep, launches, sequence, tid) in enumerate(calls):
        del stack[deep:]
        op = trace.op(name, 100 * at, 1000, tid=tid, parent_row=stack[-1] if stack else None)
        for column, value in zip(
            ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs"),
            (shapes, dtypes, strides, concrete),
            strict=True,
        ):
            op[column] = json.dumps(value)
        op["sequence_number"], op["forward_thread_id"] = sequence, 0
        if name.startswith(("Optimizer", "ProfilerStep")):
            op["kind"] = "annotation"
        if name.startswith("ProfilerStep"):
            trace.step(op["start_ns"], 100)
        stack.append(op)
        if launches:
            trace.kernel("k", 100 * at + 50, 5, op=op)
    ops = sorted(trace.rows["ops"], key=lambda op: (op["start_ns"], -op["dur_ns"]))
    for at, size, address in blocks:
        owner = ops[at % len(ops)] if ops else None
        trace.add("memory", start_ns=at, bytes=size, address=address, device="cuda:0", pid=1, tid=1, op_row=owner)
    found = flow(trace.timeline())
    assert (found.reads.evidence < Evidence.PROVEN).all()
    assert (found.edges.producer < found.edges.consumer).all()
    assert np.isin(found.reads.node, np.arange(len(found.nodes))).all()
