"""Dataflow of training steps where nothing recorded it: backward passes, optimizers, steps, allocations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.flow.test_inferred import FLOAT, LIST, SCALAR, Eager
from tracemine.flow import Evidence, Source
from tracemine.flow.inferred.nodes import programs

Input = tuple[list[int], str]  # shape and dtype
X, ROW = ([8, 4], FLOAT), ([8, 1], FLOAT)
SIZES: Input = ([], "ScalarList")
NONE: Input = ([], "")
ONES = ("aten::ones_like", X, NONE, NONE, NONE, NONE, NONE)
RELU_BACKWARD: tuple[Any, ...] = ("aten::threshold_backward", X, X, ([], SCALAR))
SUM: tuple[Any, ...] = ("aten::add", X, X, ([], SCALAR), {"values": ["", "", "1"]})
SURE, GUESS, WRITTEN, OUTSIDE = Evidence.CONSISTENT, Evidence.ADJACENT, Source.WRITTEN, Source.OUTSIDE


class Training(Eager):
    """Forward operators with the sequence number of their node, nodes of autograd, marks, and allocations."""

    def forward(self, sequence: int, name: str, *inputs: tuple[Any, str], **more: Any) -> None:
        self.call(name, *inputs, sequence_number=sequence, forward_thread_id=0, **more)

    def node(
        self,
        sequence: int | None,
        name: str,
        *calls: tuple[Any, ...],
        given: Sequence[tuple[Any, str]] = (X,),
        behind: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        """A node with the operators inside it, and those behind it that reduce and sum gradients."""
        numbers: dict[str, Any] = {} if sequence is None else {"sequence_number": sequence, "forward_thread_id": 1}
        self.now += 10
        outer = self.trace.op(f"autograd::engine::evaluate_function: {name}", self.now, 0, tid=2, **numbers)
        self.stack.append(outer)
        self.call(name, *given, kernels=0, tid=2, inside=calls, **numbers)
        for op, *arguments in behind:
            keywords = arguments.pop() if isinstance(arguments[-1], dict) else {}
            self.call(op, *arguments, tid=2, **keywords)
        self.stack.pop()
        self.now += 10
        outer["dur_ns"] = self.now - outer["start_ns"]

    def marked(self, name: str, *calls: tuple[Any, ...]) -> None:
        """Operators under a mark, as those of optimizers are."""
        self.now += 10
        mark = self.trace.op(name, self.now, 0)
        mark["kind"] = "annotation"
        for op, *arguments in calls:
            self.call(op, *arguments)
        self.now += 10
        mark["dur_ns"] = self.now - mark["start_ns"]

    def memory(self, address: int, size: int) -> None:
        """The last operator has allocated so much; or what is there is freed now."""
        op = self.trace.rows["ops"][-1] if size > 0 else None
        self.now += op is None
        at = self.now if op is None else op["start_ns"] + 1
        self.trace.add("memory", start_ns=at, bytes=size, address=address, device="cuda:0", pid=1, tid=1, op_row=op)


def test_each_product_of_a_products_gradient_takes_the_other_factor() -> None:
    run = Training()
    run.call("aten::sin", X)
    run.forward(1, "aten::exp", X)
    run.call("aten::cos", X)
    run.forward(2, "aten::relu", X)
    run.forward(3, "aten::mul", X, X)
    run.call(*ONES)
    run.node(3, "MulBackward0", ("aten::mul", X, X), ("aten::mul", X, X))
    reads = run.reads()
    assert reads["mul#1", 0] == reads["mul#2", 0] == ({"ones_like"}, WRITTEN, SURE)
    assert {*reads["mul#1", 1][0], *reads["mul#2", 1][0]} == {*reads["mul", 0][0], *reads["mul", 1][0]}
    # Of factors that look alike nothing says which is the first one.
    assert reads["mul#1", 1][2] is reads["mul#2", 1][2] is GUESS


def test_of_a_product_of_one_tensor_with_itself_there_is_no_order() -> None:
    run = Training()
    run.forward(1, "aten::exp", X)
    run.forward(2, "aten::mul", X, ROW)
    run.call(*ONES)
    reduce: tuple[Any, ...] = ("aten::sum", X, SIZES, ([], SCALAR), NONE, {"values": ["", "[1]", "True", ""]})
    run.node(2, "MulBackward0", ("aten::mul", X, X), ("aten::mul", X, ROW), behind=[reduce])
    assert run.reads()["mul#1", 1] == ({"exp"}, WRITTEN, SURE)


def test_a_gradient_goes_to_the_node_whose_operator_made_the_tensor() -> None:
    """Of two products of one look the first belongs to the second factor, which broadcasting has made larger."""
    run = Training()
    run.forward(2, "aten::relu", X)
    run.forward(3, "aten::tanh", ROW)
    run.forward(4, "aten::mul", X, ROW)
    run.call(*ONES)
    reduce: tuple[Any, ...] = ("aten::sum", X, SIZES, ([], SCALAR), NONE, {"values": ["", "[1]", "True", ""]})
    run.node(4, "MulBackward0", ("aten::mul", X, X), ("aten::mul", X, ROW), behind=[reduce])
    run.node(2, "ReluBackward0", RELU_BACKWARD)
    reads = run.reads()
    assert reads["sum", 0] == ({"mul#1"}, WRITTEN, SURE)
    assert reads["threshold_backward", 0] == ({"mul#2"}, WRITTEN, SURE)
    assert reads["threshold_backward", 1] == ({"relu"}, WRITTEN, SURE)


def _product_of_old_and_new() -> Training:
    """y * neg(sin(y)), y = exp(x): nothing of the forward pass tells whether the product takes y or sin(y)."""
    run = Training()
    run.call("aten::add", ROW, ([1, 4], FLOAT), ([], SCALAR), values=["", "", "1"])
    run.forward(1, "aten::exp", X)
    run.forward(2, "aten::sin", X)
    run.forward(3, "aten::neg", X)
    for _ in range(5):  # so long after the others that these are not doubted for it
        run.call("aten::tanh", ([2, 2], FLOAT))
    run.forward(4, "aten::mul", X, X)
    return run


def _backward(run: Training, *, summed: bool) -> None:
    run.call(*ONES)
    run.node(4, "MulBackward0", ("aten::mul", X, X), ("aten::mul", X, X))
    run.node(3, "NegBackward0", ("aten::neg", X))
    run.node(2, "SinBackward0", ("aten::cos", X), ("aten::mul", X, X), behind=[SUM] if summed else [])
    run.node(1, "ExpBackward0", ("aten::mul", X, X))


def _factors(run: Training) -> tuple[set[str], set[Evidence]]:
    reads = run.reads()
    both = [reads["mul", at] for at in (0, 1)]
    return {name for names, _, _ in both for name in names}, {evidence for _, _, evidence in both}


def test_that_a_gradient_was_summed_tells_what_the_forward_pass_read() -> None:
    run = _product_of_old_and_new()
    assert GUESS in _factors(run)[1]
    _backward(run, summed=True)
    assert _factors(run) == ({"exp", "neg"}, {SURE})
    reads = run.reads()
    # The sum takes what was there first, the gradient that the product gave, and then the new one.
    assert reads["add#1", 0][0] < {"mul#1", "mul#2"}
    assert reads["add#1", 1] == ({"mul#3"}, WRITTEN, SURE)
    assert reads["mul#4", 0][0] == {"add#1"}


def test_without_that_sum_it_is_not_called_sure_that_the_older_one_was_read() -> None:
    run = _product_of_old_and_new()
    _backward(run, summed=False)
    names, evidence = _factors(run)
    assert names != {"exp", "neg"} or evidence != {SURE}


@pytest.mark.parametrize(
    ("kind", "names", "arguments", "found"),
    [
        ("Mul", ["mul", "mul"], ["self", "other"], [["other", "self"]]),
        ("Add", [], ["self", "other"], [["other", "self"]]),
        ("Mm", ["t", "mm", "t", "t", "mm"], ["self", "mat2"], [["mat2", "self"]]),
        ("Mul", ["div"], ["self", "other"], []),
        ("Unheard", ["mul"], ["self"], []),
    ],
)
def test_a_node_follows_a_formula_if_its_operators_do(
    kind: str, names: list[str], arguments: list[str], found: list[list[str]]
) -> None:
    programs_of = [[part[0] for part, _ in one] for one in programs(kind, names, dict.fromkeys(arguments))]
    assert sorted({*map(tuple, programs_of)}) == [tuple(one) for one in found]


# --- optimizers ------------------------------------------------------------------------------------------------------

WEIGHT = ([4, 4], FLOAT)


def _step(run: Training, *updates: tuple[Any, ...], number: int) -> None:
    begin = run.now
    run.forward(10 * number, "aten::mm", X, WEIGHT)
    run.call(*ONES)
    transposed = ("aten::t", X, {"kernels": 0})
    run.node(10 * number, "MmBackward0", transposed, ("aten::mm", ([4, 8], FLOAT), X))
    run.node(None, "torch::autograd::AccumulateGrad", ("aten::detach", WEIGHT, {"kernels": 0}), given=[WEIGHT])
    run.marked("Optimizer.step#SGD.step", *updates)
    run.trace.step(begin + 1, run.now - begin)


def test_an_optimizer_reads_its_state_as_it_left_it_and_the_parameters_gradient() -> None:
    run = Training()
    momentum: tuple[tuple[Any, ...], ...] = (
        ("aten::mul_", WEIGHT, ([], SCALAR)),
        ("aten::add_", WEIGHT, WEIGHT),
        ("aten::add_", WEIGHT, WEIGHT),
    )
    for number in (1, 2):
        _step(run, *momentum, number=number)
    reads = run.reads()
    assert reads["mul_", 0] == (set(), OUTSIDE, SURE)
    assert reads["add_", 0] == ({"mul_"}, WRITTEN, SURE)
    assert reads["add_", 1] == ({"mm#1"}, WRITTEN, SURE)
    assert reads["add_#1", 0] == (set(), OUTSIDE, SURE)  # the parameter
    assert reads["add_#1", 1] == ({"add_"}, WRITTEN, SURE)
    assert reads["mul_#1", 0] == ({"add_"}, WRITTEN, SURE)
    assert reads["add_#3", 0] == ({"add_#1"}, WRITTEN, SURE)


def test_the_next_step_reads_the_parameters_that_the_optimizer_wrote() -> None:
    run = Training()
    for number in (1, 2):
        _step(run, ("aten::add_", WEIGHT, WEIGHT), number=number)
    assert run.reads()["mm#2", 1] == ({"add_"}, WRITTEN, SURE)


def test_parameters_that_something_else_may_have_written_are_a_guess() -> None:
    """A running average of weights is a list, too, that the profiler may have cut."""
    run = Training()
    for number in (1, 2):
        _step(run, ("aten::add_", WEIGHT, WEIGHT), number=number)
        run.call("aten::_foreach_mul_", ([], LIST), ([], SCALAR))
    assert run.reads()["mm#2", 1][2] is GUESS


def test_lists_that_the_profiler_cut_are_one_tensor_for_each_gradient() -> None:
    run = Training()
    cut: tuple[tuple[Any, ...], ...] = (
        ("aten::_foreach_mul_", ([], LIST), ([], SCALAR)),
        ("aten::_foreach_add_", ([], LIST), ([], LIST), ([], SCALAR)),
    )
    for number in (1, 2):
        _step(run, *cut, ("aten::_foreach_add_", ([], LIST), ([], LIST), ([], SCALAR)), number=number)
    reads = run.reads()
    assert reads["_foreach_add_", 0] == ({"_foreach_mul_"}, WRITTEN, SURE)
    assert reads["_foreach_add_", 1][0] == {"mm#1"}
    assert reads["_foreach_mul_#1", 0] == ({"_foreach_add_"}, WRITTEN, SURE)
    assert reads["mm#2", 1] == ({"_foreach_add_#1"}, WRITTEN, SURE)


def test_a_fused_step_takes_what_a_scaler_gives_it_beside_its_lists() -> None:
    """Whether the gradients are finite is a tensor by itself, which an operator made before."""
    run = Training()
    lists: list[Input] = [([], LIST)] * 6
    numbers: list[Input] = [([], SCALAR)] * 5
    found = ([1], FLOAT)
    fused = ("aten::_fused_adamw_", *lists, *numbers, ([], ""), ([], ""), found, found)
    for number in (1, 2):
        run.call("aten::relu", found)
        _step(run, ("aten::_foreach_add_", ([], LIST), ([], SCALAR)), fused, number=number)
    reads = run.reads()
    assert {
        writer for (reader, _), (writers, *_) in reads.items() if reader == "_fused_adamw_" for writer in writers
    } >= {"mm#1", "relu"}


@pytest.mark.parametrize("clipped", [True, False])
def test_gradients_that_were_perhaps_written_in_between_are_a_guess(clipped: bool) -> None:
    """Clipping multiplies a list of them, which the profiler may have cut."""
    run = Training()
    run.forward(10, "aten::mm", X, WEIGHT)
    run.call(*ONES)
    run.node(10, "MmBackward0", ("aten::t", X, {"kernels": 0}), ("aten::mm", ([4, 8], FLOAT), X))
    run.node(None, "torch::autograd::AccumulateGrad", ("aten::detach", WEIGHT, {"kernels": 0}), given=[WEIGHT])
    if clipped:
        run.call("aten::_foreach_mul_", ([], LIST), ([], SCALAR))
    run.marked("Optimizer.step#SGD.step", ("aten::add_", WEIGHT, WEIGHT))
    assert run.reads()["add_", 1][2] is (GUESS if clipped else SURE)


def test_of_an_optimizer_that_is_not_known_nothing_is_told() -> None:
    run = Training()
    unknown: tuple[tuple[Any, ...], ...] = (
        ("aten::sqrt", WEIGHT),
        ("aten::_foreach_add_", ([], LIST), ([], LIST), ([], LIST), ([], SCALAR)),
    )
    for number in (1, 2):
        _step(run, *unknown, number=number)
    assert run.reads()["mm#2", 1][2] is GUESS


# --- allocations -----------------------------------------------------------------------------------------------------


def _two_alike(run: Training, *, freed: bool) -> None:
    run.call("aten::add", ROW, ([1, 4], FLOAT), ([], SCALAR), values=["", "", "1"])
    run.memory(4096, 512)
    run.call("aten::exp", X)
    run.memory(8192, 512)
    run.call("aten::sin", X)
    run.memory(12288, 512)
    run.call("aten::mean", X, NONE)
    if freed:
        run.memory(8192, -512)
        run.memory(12288, -512)
    run.call("aten::neg", X)


@pytest.mark.parametrize("freed", [True, False])
def test_what_was_freed_before_an_operator_began_it_does_not_take(freed: bool) -> None:
    run = Training()
    _two_alike(run, freed=freed)
    reads = run.reads()
    assert (reads["neg", 0] == ({"add"}, WRITTEN, SURE)) is freed


def test_a_block_of_another_size_is_not_what_an_operator_made() -> None:
    run = Training()
    run.call("aten::relu", X)
    run.memory(4096, 4096)
    run.memory(4096, -4096)
    run.call("aten::neg", X)
    assert run.reads()["neg", 0][0] == {"relu"}


def test_an_address_that_is_used_again_is_another_block() -> None:
    run = Training()
    run.call("aten::relu", X)
    run.memory(4096, 512)
    run.memory(4096, -512)
    run.call("aten::exp", ([4, 8], FLOAT))
    run.memory(4096, 512)
    run.call("aten::neg", ([4, 8], FLOAT))
    run.call("aten::neg", X)
    reads = run.reads()
    assert reads["neg", 0] == ({"exp"}, WRITTEN, SURE)
    assert reads["neg#1", 0][1] is OUTSIDE


@pytest.mark.parametrize(("sequence", "reads"), [(7, "mm"), (None, "ones_like")])
def test_a_forward_pass_that_runs_once_more_inside_a_node_takes_what_it_made_itself(
    sequence: int | None, reads: str
) -> None:
    """Checkpointing computes the activations anew where the first node needs them, as autograd's numbers tell."""
    run = Training()
    run.forward(1, "aten::relu", X)
    run.call(*ONES)
    number: dict[str, Any] = {} if sequence is None else {"sequence_number": sequence}
    again = [("aten::mm", ([8, 6], FLOAT), ([6, 4], FLOAT), number), ("aten::sigmoid", X, number)]
    run.node(1, "ReluBackward0", *again, RELU_BACKWARD)
    assert run.reads()["sigmoid", 0][0] == {reads}


def test_a_leafs_gradient_is_not_what_was_kept_of_another_leafs() -> None:
    """Autograd copies each, and scales it as data parallelism does."""
    run = Training()
    run.call(*ONES)
    keep: tuple[Any, ...] = ("aten::clone", X, NONE)
    scale: tuple[Any, ...] = ("aten::mul", X, ([], SCALAR))
    for _ in range(2):
        run.node(None, "torch::autograd::AccumulateGrad", keep, scale)
    reads = run.reads()
    assert reads["clone", 0][0] == {"ones_like"}
    assert reads["clone#1", 0][0].isdisjoint({"clone", "mul"})


# --- several backward passes before the optimizer runs --------------------------------------------------------------


def _pass(run: Training, number: int, *, sums: bool) -> None:
    """A forward and a backward pass, of which the leaf's gradient is kept, or summed with what was kept."""
    run.forward(number, "aten::mm", X, WEIGHT)
    run.call(*ONES)
    run.node(number, "MmBackward0", ("aten::t", X, {"kernels": 0}), ("aten::mm", ([4, 8], FLOAT), X))
    kept = ("aten::add_", WEIGHT, WEIGHT) if sums else ("aten::detach", WEIGHT, {"kernels": 0})
    run.node(None, "torch::autograd::AccumulateGrad", kept, given=[WEIGHT])


def test_a_gradient_is_added_to_the_one_of_the_pass_before() -> None:
    run = Training()
    for number in (1, 2, 3):
        _pass(run, number, sums=number > 1)
    reads = run.reads()
    assert reads["add_", 0] == ({"mm#1"}, WRITTEN, GUESS)  # leaves are likely to have had the same turns
    assert reads["add_", 1] == ({"mm#3"}, WRITTEN, SURE)
    assert reads["add_#1", 0] == ({"add_"}, WRITTEN, GUESS)
    assert reads["add_#1", 1] == ({"mm#5"}, WRITTEN, SURE)


def test_a_gradient_is_added_to_one_from_outside_where_no_pass_was_recorded_before() -> None:
    run = Training()
    _pass(run, 1, sums=True)
    reads = run.reads()
    assert reads["add_", 0] == (set(), OUTSIDE, GUESS)
    assert reads["add_", 1] == ({"mm#1"}, WRITTEN, SURE)


def test_what_was_filled_may_be_a_gradient_and_not_what_the_forward_pass_takes() -> None:
    run = Training()
    run.call("aten::zero_", ROW)
    run.forward(1, "aten::mul", X, ROW)
    assert run.reads()["mul", 1][2] is GUESS


def test_a_gradient_that_waits_is_not_taken_by_the_next_forward_pass() -> None:
    run = Training()
    run.forward(1, "aten::relu", X)
    run.call(*ONES)
    run.node(1, "ReluBackward0", RELU_BACKWARD)
    run.call("aten::mul", ROW, ([1, 4], FLOAT))  # as large as X
    run.call("aten::sub", X, X, ([], SCALAR))
    assert run.reads()["sub", 0][0] == {"mul"}
