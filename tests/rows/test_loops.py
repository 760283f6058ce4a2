"""Loops over independent products: which turns are found, and what makes them need each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.flow.programs import ADD, ADD_, COPY_, RELU, Program
from tracemine.findings.accounting import measure
from tracemine.findings.context import ScanContext
from tracemine.pipeline import analysed
from tracemine.rows.table import Numbers
from tracemine.timeline import Timeline

MM = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
CAT = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"
Turn = Callable[[Program, int], None]


def turned(
    turn: Turn, turns: int = 10, *, in_step: bool = True, joined: bool = True, frames: Sequence[str] = ()
) -> Timeline:
    """A program of so many turns, all called from these frames."""
    program = Program()
    if in_step:
        program.step()
    for at in range(turns):
        turn(program, at)
    if joined:
        program.call(CAT, [[program.tensor(f"y{at}", 8, 8) for at in range(turns)]], [program.tensor("all", 80, 8)])
    stack = None
    for frame in frames:
        stack = program.trace.frame(frame, stack)
    for op in program.trace.rows["ops"]:  # shapes as Kineto records them
        op["input_shapes"], op["input_dtypes"] = "[[8,8],[8,8]]", '["float","float"]'
        op["stack_row"] = stack
    return program.timeline()


def loop(turn: Turn, turns: int = 10, **how: Any) -> list[int | None]:
    """Of each kernel of a program the loop that it is part of."""
    timeline = turned(turn, turns, **how)
    column = analysed(timeline).rows["activities"].columns["turns_of"]
    assert isinstance(column, Numbers)
    assert column.valid is not None
    return [value if known else None for value, known in zip(column.values, column.valid, strict=True)]


def one_weight(program: Program, at: int) -> None:
    """y = relu(x @ w), of a slice each."""
    made, result = program.tensor(f"m{at}", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(MM, [program.tensor(f"x{at}", 8, 8), program.tensor("w", 8, 8)], [made])
    program.call(RELU, [made], [result])


def one_input(program: Program, at: int) -> None:
    program.call(MM, [program.tensor("x", 8, 8), program.tensor(f"w{at}", 8, 8)], [program.tensor(f"y{at}", 8, 8)])


def recurrent(program: Program, at: int) -> None:
    """Each takes what the one before gave."""
    made, result = program.tensor(f"m{at}", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(MM, [program.tensor(f"y{at - 1}", 8, 8), program.tensor("w", 8, 8)], [made])
    program.call(RELU, [made], [result])


def roundabout(program: Program, at: int) -> None:
    """The product takes what something added to the result before."""
    made, result = program.tensor(f"m{at}", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(ADD, [program.tensor(f"x{at}", 8, 8), program.tensor(f"y{at - 1}", 8, 8)], [made])
    program.call(MM, [made, program.tensor("w", 8, 8)], [result])


def summed(program: Program, at: int) -> None:
    """Each result is added to one sum."""
    total, result = program.tensor("total", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(MM, [program.tensor(f"x{at}", 8, 8), program.tensor("w", 8, 8)], [result])
    program.call(ADD_, [total, result], [total])


def trained(program: Program, at: int) -> None:
    """The weight changes with every turn."""
    weight, result = program.tensor("w", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(MM, [program.tensor(f"x{at}", 8, 8), weight], [result])
    program.call(ADD_, [weight, result], [weight])


def unknown(program: Program, at: int) -> None:
    """Nobody knows what an operator of another library reads."""
    one_weight(program, at)
    program.call("mine::step", [])


def copied(program: Program, at: int) -> None:
    """No product."""
    result = program.tensor(f"y{at}", 8, 8)
    program.call(COPY_, [result, program.tensor(f"x{at}", 8, 8)], [result])


@pytest.mark.parametrize(("turn", "length"), [(one_weight, 20), (one_input, 10)])
def test_turns_that_need_nothing_of_each_other_are_a_loop(turn: Turn, length: int) -> None:
    assert loop(turn) == [0] * length + [None]


def test_a_sum_of_what_turns_give_is_none_of_the_loop() -> None:
    assert loop(summed) == [0, None] * 10 + [None]


@pytest.mark.parametrize("turn", [recurrent, roundabout, trained, unknown, copied])
def test_turns_that_need_each_other_or_are_not_known_are_none(turn: Turn) -> None:
    assert set(loop(turn)) == {None}


def test_turns_that_a_backward_pass_computes_again_are_split_to_save_memory() -> None:
    saved = ["train.py(3): loss", "torch/utils/checkpoint.py(264): checkpoint", "train.py(9): strip"]
    assert set(loop(one_weight, frames=saved)) == {None}
    assert set(loop(one_weight, frames=["train.py(3): loss", "my/checkpoint.py(2): checkpoint"])) == {0, None}


def test_seven_turns_are_too_few() -> None:
    assert set(loop(one_weight, 7)) == {None}


def test_outside_of_steps_something_has_to_read_what_several_turns_gave() -> None:
    assert set(loop(one_weight, in_step=False)) == {0, None}
    assert set(loop(one_weight, in_step=False, joined=False)) == {None}
    assert set(loop(one_weight, joined=False)) == {0}


def context_of(timeline: Timeline) -> ScanContext:
    return ScanContext(timeline, analysed(timeline).rows, None, measure(timeline))


def independent(turn: Turn, turns: int = 10) -> list[bool]:
    """Of each kernel of a program whether it lies in a loop of turns that need nothing of one another."""
    found: list[bool] = context_of(turned(turn, turns)).alike.tolist()
    return found


def brightened(program: Program, at: int) -> None:
    """y = relu(x + gain), of a picture each, and no product."""
    made, result = program.tensor(f"m{at}", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(ADD, [program.tensor(f"x{at}", 8, 8), program.tensor("gain", 8, 8)], [made])
    program.call(RELU, [made], [result])


@pytest.mark.parametrize(("turn", "length"), [(brightened, 20), (copied, 10), (one_weight, 20)])
def test_turns_of_any_operators_can_need_nothing_of_each_other(turn: Turn, length: int) -> None:
    assert independent(turn) == [True] * length + [False]
    assert not any(independent(turn, 7))


@pytest.mark.parametrize("turn", [recurrent, roundabout, trained, unknown, summed])
def test_one_operator_that_needs_another_turns_result_ends_it(turn: Turn) -> None:
    assert not any(independent(turn))


def asked(turn: Turn, turns: int = 10) -> list[bool]:
    """Of each kernel of a program whether it lies in a loop of rounds that could be asked at once."""
    found: list[bool] = context_of(turned(turn, turns)).asked_at_once.tolist()
    return found


def resized(program: Program, at: int) -> None:
    """Each round has another size."""
    made, result = program.tensor(f"m{at}", at + 1, 8), program.tensor(f"y{at}", 8, 8)
    program.call(RELU, [program.tensor(f"x{at}", at + 1, 8)], [made])
    program.call(ADD, [made, program.tensor("gain", 8, 8)], [result])


def summed_and_read(program: Program, at: int) -> None:
    """Each result is added to one sum, and the next round reads the sum."""
    total, result = program.tensor("total", 8, 8), program.tensor(f"y{at}", 8, 8)
    program.call(MM, [program.tensor(f"x{at}", 8, 8), total], [result])
    program.call(ADD_, [total, result], [total])


@pytest.mark.parametrize("turn", [brightened, copied, one_weight, resized, summed])
def test_rounds_of_any_shapes_that_only_add_to_one_another_could_be_asked_at_once(turn: Turn) -> None:
    length = len(asked(turn)) - 1
    assert asked(turn) == [True] * length + [False]
    assert not any(asked(turn, 7))


@pytest.mark.parametrize("turn", [recurrent, roundabout, trained, unknown, summed_and_read])
def test_rounds_that_need_each_other_could_not(turn: Turn) -> None:
    assert not any(asked(turn))
