"""Reads of which one candidate is left only because an earlier guess, a constant or a write by hand is overlooked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.test_inferred import FLOAT, LIST, SCALAR, Eager
from tests.flow.test_inferred_training import ONES, WEIGHT, Training, X
from tracemine.flow import Evidence

SURE, GUESS = Evidence.CONSISTENT, Evidence.ADJACENT
Input = tuple[list[int], str]  # shape and dtype
NONE: Input = ([], "")
ALL: Input = ([], "ScalarList")
ROW: Input = ([8], FLOAT)


def made_anew(run: Eager) -> None:
    """One that looks like X, of which only X's like was not made."""
    run.call("aten::mm", ([8, 2], FLOAT), ([2, 4], FLOAT))


def zeros(run: Eager) -> None:
    run.call("aten::zeros", ALL, NONE, NONE, NONE, NONE, values=["[8, 4]", "6"])


def read_once(run: Eager) -> None:
    """One that looks like X is made and read."""
    run.call("aten::relu", X)
    run.call("aten::mean", X, NONE)


@pytest.mark.parametrize(("waiting", "evidence"), [(made_anew, SURE), (zeros, GUESS)])
def test_a_constant_may_wait_while_another_is_read_again(waiting: Any, evidence: Evidence) -> None:
    """A sum begins as zeros: `total = zeros; for k in …: total = total + sin(k * phase)`."""
    run = Eager()
    read_once(run)
    waiting(run)
    run.call("aten::mul", X, ([], SCALAR))
    assert run.reads()["mul", 0][2] is evidence


@pytest.mark.parametrize(("waiting", "evidence"), [(made_anew, SURE), (zeros, GUESS)])
def test_what_was_a_guess_in_one_turn_of_a_loop_is_a_guess_in_the_next(waiting: Any, evidence: Evidence) -> None:
    run = Eager()
    read_once(run)
    for make in (waiting, made_anew):
        make(run)
        run.call("aten::mul", X, ([], SCALAR))
        run.call("aten::mean", X, NONE)
    assert run.reads()["mul#1", 0][2] is evidence


@pytest.mark.parametrize(("again", "evidence"), [(False, SURE), (True, GUESS)])
def test_a_reduction_need_not_take_the_newest_where_that_is_read_again(again: bool, evidence: Evidence) -> None:
    """`(x - x.mean()) / x.std()`."""
    run = Eager()
    read_once(run)
    run.call("aten::mul", X, ([], SCALAR))
    run.call("aten::sum", X, NONE)
    if again:
        run.call("aten::div", X, ([], SCALAR))
    assert run.reads()["sum", 0][2] is evidence


def test_what_was_made_and_read_is_not_the_only_one_that_may_be_read_again() -> None:
    run = Eager()
    made_anew(run)
    run.call("aten::mean", X, NONE)
    run.call("aten::sum", X, NONE)
    assert run.reads()["mean", 0][2] is SURE
    assert run.reads()["sum", 0][2] is GUESS


@pytest.mark.parametrize(
    ("name", "evidence"), [("aten::mul", SURE), ("aten::add", SURE), ("aten::sub", GUESS), ("aten::lt", GUESS)]
)
def test_which_of_two_is_first_is_a_guess_where_that_makes_a_difference(name: str, evidence: Evidence) -> None:
    run = Eager()
    run.call("aten::relu", X)
    made_anew(run)
    run.call(name, X, X)
    assert {run.reads()[name.removeprefix("aten::"), at][2] for at in (0, 1)} == {evidence}


@pytest.mark.parametrize(("guessed", "evidence"), [(False, SURE), (True, GUESS)])
def test_two_that_nobody_read_for_sure_may_have_been_read_by_guess(guessed: bool, evidence: Evidence) -> None:
    """Two states of a loop, each of which takes the other's place: `up, down = f(up), f(down)`."""
    run = Eager()
    run.call("aten::relu", X)
    made_anew(run)
    if guessed:
        run.call("aten::cos", X)  # one of the two, and its result is there in its place
    run.call("aten::mul", X, X)
    assert run.reads()["mul", 0][2] is evidence


@pytest.mark.parametrize(("alike", "evidence"), [(False, SURE), (True, GUESS)])
def test_what_one_of_two_was_written_to_inside_an_operator_is_a_guess(alike: bool, evidence: Evidence) -> None:
    """`logsumexp` writes into its largest, or into how large these are, which look the same."""
    run, column = Eager(), ([8, 1], FLOAT)
    largest = ["aten::amax", X, ALL, ([], SCALAR), {"values": ["", "[1]", "True"]}]
    view = ["aten::squeeze", column, ([], SCALAR), {"values": ["", "1"], "kernels": 0}]
    written = ["aten::masked_fill_", ROW, ([8], "bool"), ([], SCALAR)]
    inside: tuple[Any, ...] = (
        largest,
        view,
        *([["aten::abs", ROW]] if alike else []),
        written,
        ["aten::sub", X, column],
    )
    made_anew(run)
    run.call("aten::logsumexp", X, ALL, ([], SCALAR), values=["", "[1]", "False"], inside=inside, kernels=0)
    assert run.reads()["sub", 1][2] is evidence


@pytest.mark.parametrize(("by_hand", "evidence"), [(False, SURE), (True, GUESS)])
def test_a_parameter_that_is_written_by_hand_may_be_the_one_of_the_next_step(by_hand: bool, evidence: Evidence) -> None:
    run, bias = Training(), ([4], FLOAT)
    for number in (1, 2):
        begin = run.now
        noted: dict[str, Any] = {"sequence_number": 10 * number, "forward_thread_id": 0}
        inner = ["aten::addmm", bias, X, WEIGHT, ([], SCALAR), ([], SCALAR), noted]
        inside: tuple[Any, ...] = (["aten::t", WEIGHT, {"kernels": 0}], inner)
        run.call("aten::linear", X, WEIGHT, bias, kernels=0, inside=inside)
        run.call(*ONES)
        transposed = ("aten::t", X, {"kernels": 0})
        run.node(10 * number, "AddmmBackward0", transposed, ("aten::mm", ([4, 8], FLOAT), X))
        run.node(None, "torch::autograd::AccumulateGrad", ("aten::detach", WEIGHT, {"kernels": 0}), given=[WEIGHT])
        if by_hand:
            run.call("aten::add_", WEIGHT, WEIGHT)
        run.trace.step(begin + 1, run.now - begin)
    assert run.reads()["addmm#1", 2][2] is evidence


def test_of_two_optimizers_that_take_turns_each_reads_its_own_states() -> None:
    """A generator's and a critic's: of both the counts of steps look the same."""
    run = Training()
    numbers: list[Input] = [([], SCALAR)] * 5
    for _ in range(2):
        for size in (4, 2):
            members = [([[size, size]], LIST)] * 4
            states = (*members, ([], LIST), ([[]], LIST))
            run.marked(
                "Optimizer.step#Adam.step",
                ("aten::_foreach_add_", ([[]], LIST), ([], SCALAR)),
                ("aten::_fused_adam_", *states, *numbers, NONE, NONE, NONE, NONE),
            )
    reads = run.reads()
    writers = {name: reads[name, 0][0] for name in ("_foreach_add_", "_foreach_add_#1", "_foreach_add_#2")}
    assert writers == {"_foreach_add_": set(), "_foreach_add_#1": set(), "_foreach_add_#2": {"_foreach_add_"}}
