"""Steps of optimizers, calls of zero_grad, and loops over tensors: which activities are one, and which are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.flow.programs import ADD_, Program
from tests.timelines import Trace
from tracemine.pipeline import analysed
from tracemine.rows.table import Categories, Numbers

FLOAT = ["float", "float"]
SHAPES = [[64, 64], [64], [128, 64], [128], [32, 128], [32], [8, 32], [8]]


class Steps:
    """A trace of calls on one thread, each of which launches a kernel; annotations go around those given to them."""

    def __init__(self) -> None:
        self.trace, self.now = Trace(), 1_000

    def call(
        self, op: str, shape: Sequence[int] | None = (8,), *, inside: Any = None, kernel: str = "k", **how: Any
    ) -> None:
        shapes = None if shape is None else [list(shape), list(shape)]
        types = None if shape is None else how.pop("dtypes", FLOAT)
        own = self.trace.op(op, self.now, 90, shapes, types, parent_row=inside, stack_row=how.pop("stack", None))
        self.trace.kernel(kernel, self.now + 20, 10, launch=(self.now + 5, 5), op=own, **how)
        self.now += 100

    def around(
        self, name: str, *calls: tuple[str, Sequence[int] | None], parent: Any = None, stack: Any = None
    ) -> None:
        outer = self.trace.op(name, self.now, 100 * len(calls) + 50, parent_row=parent)
        for op, shape in calls:
            self.call(op, shape, inside=outer, stack=stack)
        self.now += 100

    def column(self, name: str) -> list[Any]:
        column = analysed(self.trace.timeline()).rows["activities"].columns[name]
        if isinstance(column, Categories):
            return [column.values[code] if code >= 0 else None for code in column.codes.tolist()]
        assert isinstance(column, Numbers)
        assert column.valid is not None
        return [
            value if known else None for value, known in zip(column.values.tolist(), column.valid.tolist(), strict=True)
        ]


def loop(*ops: str, shapes: Sequence[Sequence[int]] = SHAPES) -> list[tuple[str, Sequence[int] | None]]:
    return [(op, shape) for shape in shapes for op in ops]


# --- steps of optimizers ---------------------------------------------------------------------------------------------


def test_each_call_of_step_is_one_update_and_what_is_outside_is_none() -> None:
    made = Steps()
    made.call("aten::mul_")
    for _ in range(2):
        made.around("Optimizer.step#AdamW.step", ("aten::mul_", [8]), ("aten::addcdiv_", [8]))
    assert made.column("optimizer") == [None, *["AdamW"] * 4]
    none, first, second, third, fourth = made.column("update")
    assert none is None
    assert first == second != third == fourth


@pytest.mark.parametrize(
    ("ops", "style"),
    [
        (["aten::mul_", "aten::add_", "aten::copy_"], "loop"),
        (["aten::_foreach_mul_", "aten::_foreach_add_"], "lists"),
        (["aten::_foreach_add_", "aten::_fused_adamw_"], "fused"),
        (["aten::mul_", "aten::mm", "aten::add_"], "other"),
        (["aten::linalg_vector_norm", "aten::mul_"], "other"),
    ],
)
def test_an_update_is_done_in_one_style(ops: list[str], style: str) -> None:
    made = Steps()
    made.around("Optimizer.step#Any.step", *((op, [8]) for op in ops))
    assert made.column("update_style") == [style] * len(ops)


IN_STEP = ("model.py(9): train", "torch/optim/optimizer.py(512): wrapper")


@pytest.mark.parametrize(
    ("frames", "ops", "style"),
    [
        ((*IN_STEP, "lion.py(20): step"), ["aten::mul", "aten::add_"], "own"),
        ((*IN_STEP, "torch/optim/adam.py(214): step"), ["aten::mul", "aten::add_"], "loop"),
        ((*IN_STEP, "lion.py(20): step", "torch/optim/adam.py(214): step"), ["aten::mul", "aten::add_"], "loop"),
        ((*IN_STEP, "timm/optim/lion.py(20): step"), ["aten::mul", "aten::add_"], "loop"),
        (("model.py(9): train",), ["aten::mul", "aten::add_"], "loop"),
        ((*IN_STEP, "lion.py(20): step"), ["aten::_foreach_mul", "aten::_foreach_add_"], "lists"),
        ((*IN_STEP, "lamb.py(20): step"), ["aten::linalg_vector_norm", "aten::add_"], "other"),
    ],
)
def test_a_step_that_the_programs_own_code_goes_through_is_a_loop_over_parameters(
    frames: Sequence[str], ops: list[str], style: str
) -> None:
    made, stack = Steps(), None
    for frame in frames:
        stack = made.trace.frame(frame, stack)
    made.around("Optimizer.step#Lion.step", *loop(*ops), stack=stack)
    assert set(made.column("update_style")) == {style}
    assert set(made.column("sweep_kind")) == {"update" if style == "own" else None}


def test_of_steps_inside_each_other_the_innermost_counts() -> None:
    made = Steps()
    outer = made.trace.op("Optimizer.step#Wrapper.step", made.now, 1_000)
    made.around("Optimizer.step#SGD.step", ("aten::add_", [8]), parent=outer)
    assert made.column("optimizer") == ["SGD"]


def test_what_zero_grad_launches_is_no_step_and_no_loop() -> None:
    made = Steps()
    made.around("Optimizer.zero_grad#SGD.zero_grad", *loop("aten::zero_"))
    assert len(set(made.column("zeroing"))) == 1
    assert made.column("zeroing")[0] is not None
    assert set(made.column("update")) == {None}
    assert set(made.column("sweep")) == {None}


# --- loops over tensors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        (["aten::mul_", "aten::add_"], "average"),
        (["aten::lerp_"], "average"),
        (["aten::mul", "aten::mul", "aten::add", "aten::copy_"], "average"),
        (["aten::linalg_vector_norm"], "norm"),
        (["aten::mul_"], "update"),
        (["aten::copy_"], "copy"),
    ],
)
def test_operators_that_repeat_over_tensors_of_several_shapes_are_a_loop(ops: list[str], kind: str) -> None:
    made = Steps()
    made.call("aten::relu", [5])
    for op, shape in loop(*ops):
        made.call(op, shape)
    made.call("aten::relu", [5])
    assert made.column("sweep_kind") == [None, *[kind] * len(SHAPES) * len(ops), None]


@pytest.mark.parametrize(
    ("why", "calls"),
    [
        ("one shape: a recurrence", loop("aten::mul_", "aten::add_", shapes=[[32, 64]] * 12)),
        ("two shapes in turn, and no optimizer", loop("aten::mul_", "aten::add_", shapes=[[32, 64], [32]] * 6)),
        ("too few", loop("aten::mul_", "aten::add_", shapes=SHAPES[:7])),
        ("nothing is kept in place", loop("aten::mul", "aten::add")),
        ("a turn has two shapes", [(f"aten::{op}_", SHAPES[at % 7]) for at, op in enumerate(["mul", "abs"] * 8)]),
        ("no shapes were recorded", [("aten::mul_", None)] * 12),
        ("products between", loop("aten::mm", "aten::relu_")),
    ],
)  # fmt: skip
def test_what_may_depend_on_itself_is_no_loop(why: str, calls: list[tuple[str, Sequence[int] | None]]) -> None:
    made = Steps()
    for op, shape in calls:
        made.call(op, shape)
    assert set(made.column("sweep")) == {None}, why


def test_two_shapes_are_enough_where_an_optimizer_is_at_work() -> None:
    made = Steps()
    for op, shape in loop("aten::mul_", "aten::add_", shapes=[[32, 64], [32]] * 6):
        made.call(op, shape)
    made.around("Optimizer.step#SGD.step", ("aten::add_", [8]))
    assert made.column("sweep_kind") == [*["average"] * 24, None]


def test_fills_and_copies_that_another_operator_makes_are_no_loop() -> None:
    made = Steps()
    for shape in SHAPES:
        made.call("aten::fill_", shape)  # a slice set to a value
    for shape in SHAPES:
        made.call("aten::copy_", shape, inside=made.trace.op("aten::clone", made.now, 95))
    assert set(made.column("sweep")) == {None}


def test_what_the_autograd_engine_launches_is_no_loop() -> None:
    made = Steps()
    for shape in SHAPES:
        engine = made.trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", made.now, 95)
        made.call("aten::add_", shape, inside=engine)
    assert set(made.column("sweep")) == {None}


# --- gradients that are zeroed ---------------------------------------------------------------------------------------


def zeroed(made: Steps, shapes: Sequence[Sequence[int]] = SHAPES) -> None:
    for shape in shapes:
        made.call("aten::fill_", shape, inside=made.trace.op("aten::zero_", made.now, 95))


def added(made: Steps, shapes: Sequence[Sequence[int]] = SHAPES) -> None:
    """What the autograd engine does with a gradient that is there."""
    for shape in reversed(shapes):
        node = made.trace.op("torch::autograd::AccumulateGrad", made.now, 95)
        made.call("aten::add_", shape, inside=node)


def test_a_loop_that_zeroes_gradients_has_the_additions_to_them() -> None:
    made = Steps()
    for _ in range(2):
        zeroed(made)
        made.call("aten::mm", [64, 64])
        added(made)
    first, *others = made.column("zeroing")[:17]
    assert others == [first] * 7 + [None] + [first] * 8
    second = made.column("zeroing")[17]
    assert made.column("zeroing")[17:] == [second] * 8 + [None] + [second] * 8
    assert second not in (None, first)


def test_what_a_second_small_batch_adds_is_wanted() -> None:
    made = Steps()
    zeroed(made)
    added(made)
    added(made)
    column = made.column("zeroing")
    assert None not in column[:16]
    assert column[16:] == [None] * 8


@pytest.mark.parametrize(
    ("why", "shapes"),
    [("buffers of other shapes", [[size + 1 for size in shape] for shape in SHAPES]), ("nothing is added", [])],
)
def test_buffers_that_nothing_adds_a_gradient_to_are_none(why: str, shapes: list[list[int]]) -> None:
    made = Steps()
    zeroed(made)
    added(made, shapes)
    assert set(made.column("zeroing")) == {None}, why


def test_a_list_that_is_zeroed_outside_of_zero_grad_is_told_by_its_members() -> None:
    made = Steps()
    for shapes in (SHAPES, [[7, 7], [7]]):
        own = made.trace.op("aten::_foreach_zero_", made.now, 90, [shapes], ["TensorList"])
        made.trace.kernel("k", made.now + 20, 10, launch=(made.now + 5, 5), op=own)
        made.now += 100
    added(made)
    first, other, *adds = made.column("zeroing")
    assert adds == [first] * 8
    assert first is not None
    assert other is None


def test_the_optimizers_own_zeroing_has_its_additions_too() -> None:
    made = Steps()
    made.around("Optimizer.zero_grad#SGD.zero_grad", *loop("aten::fill_"))
    added(made)
    assert set(made.column("zeroing")) == {0}


ZERO_ = "aten::zero_(Tensor(a!) self) -> Tensor(a!)"


@pytest.mark.parametrize(("added_to", "is_one"), [("gradient", True), ("other", False)])
@pytest.mark.parametrize("by_engine", [True, False])
def test_where_tensors_are_named_one_fill_is_told_by_its_memory(added_to: str, is_one: bool, by_engine: bool) -> None:
    program = Program()
    program.step()
    gradient, new = program.tensor("gradient", 8), program.tensor("new", 8)
    if by_engine:  # what a backward operator fills becomes the gradient: nobody zeroed it
        with program.inside("autograd::engine::evaluate_function: EmbeddingBackward0", kernels=0):
            program.call(ZERO_, [gradient], [gradient])
    else:
        program.call(ZERO_, [gradient], [gradient])
    with program.inside("torch::autograd::AccumulateGrad", kernels=0):
        target = program.tensor(added_to, 8)
        program.call(ADD_, [target, new], [target])
    column = analysed(program.timeline()).rows["activities"].columns["zeroing"]
    assert isinstance(column, Numbers)
    assert column.valid is not None
    assert column.valid.tolist() == [is_one and not by_engine] * 2
