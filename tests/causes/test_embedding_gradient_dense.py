"""Dense gradients of embedding tables: large tables of which few rows were looked up, and others."""

from __future__ import annotations

from typing import Any

from tests.timelines import Trace
from tracemine.findings import Finding
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

RULE = "embedding_gradient_dense"
H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
ROWS, WIDTH, FOUND = 10_000_000, 128, 8192


class Step:
    """A step of training: gradients of tables, products, and an optimizer's step over lists of all parameters."""

    def __init__(self) -> None:
        self.trace, self.now = Trace(devices=(H200,)), 1_000
        self.trace.step(0, 60_000_000)

    def call(self, name: str, shapes: list[Any], dtypes: list[str], dur: int, **more: Any) -> None:
        op = self.trace.op(name, self.now, 900, shapes=shapes, dtypes=dtypes, **more)
        self.trace.kernel(name, self.now + 5_000, dur, op=op)
        self.now += 5_000 + dur

    def gradient(self, rows: int = ROWS, found: int = FOUND, dur: int = 1_500_000) -> None:
        shapes = [[found, WIDTH], [found], [], [], []]
        types = ["float", "long int", "Scalar", "Scalar", "Scalar"]
        self.call("aten::embedding_dense_backward", shapes, types, dur, concrete=["", "", str(rows), "-1", "False"])

    def product(self, *shape: int) -> None:
        self.call("aten::mm", [[shape[0], 512], [512, shape[1]]], ["float", "float"], 400_000)

    def update(self, *tensors: tuple[int, ...], dur: int = 5_000_000) -> None:
        inside = self.trace.op("Optimizer.step#Adam.step", self.now, 3_000)
        for name in ("aten::_foreach_lerp_", "aten::_foreach_addcdiv_"):
            lists = [[list(each) for each in tensors]] * 2
            self.call(name, lists, ["TensorList", "TensorList"], dur, parent_row=inside)
            inside["dur_ns"] = self.now - inside["start_ns"]

    def found(self) -> list[Finding]:
        return [each for each in mined(analysed(self.trace.timeline())).findings if each.rule == RULE]


def test_the_gradient_and_the_updates_of_a_large_table_are_one() -> None:
    step = Step()
    step.gradient()
    step.product(512, 512)
    step.update((ROWS, WIDTH), (512, 512))
    (finding,) = step.found()
    assert finding.measured_ns == 11_500_000
    assert finding.fused_ns is not None
    assert 700_000 <= finding.fused_ns.mid < 900_000


def test_plain_sgd_adds_the_rows_which_costs_little() -> None:
    """Of 100 MB, too small for optimizers that have moments to update."""
    step = Step()
    step.gradient(400_000, 4096, 150_000)
    inside = step.trace.op("Optimizer.step#SGD.step", step.now, 3_000)
    step.call("aten::_foreach_add_", [[[400_000, WIDTH]]] * 2, ["TensorList"] * 2, 100_000, parent_row=inside)
    inside["dur_ns"] = step.now - inside["start_ns"]
    (finding,) = step.found()
    assert finding.fused_ns is not None
    assert finding.fused_ns.mid < 60_000
    assert "plain SGD adds these" in finding.fix


def test_sums_of_the_gradients_of_a_table_looked_up_twice_go_too() -> None:
    measured = []
    for engine in ("autograd::engine::evaluate_function: AddBackward0", "mine"):
        step = Step()
        step.gradient()
        step.gradient()
        around = step.trace.op(engine, step.now, 9_000_000, kind="annotation" if engine == "mine" else "op")
        step.call("aten::add_", [[ROWS, WIDTH]] * 2, ["float"] * 2, 2_000_000, parent_row=around)
        step.call("aten::add_", [[512, 512]] * 2, ["float"] * 2, 100_000, parent_row=around)
        step.update((ROWS, WIDTH), (512, 512))
        measured.append(step.found()[0].measured_ns)
    assert measured == [15_000_000, 13_000_000]


def test_sgd_with_momentum_goes_over_all_rows_and_is_left_alone() -> None:
    step = Step()
    step.gradient(400_000, 4096, 150_000)
    inside = step.trace.op("Optimizer.step#SGD.step", step.now, 3_000)
    for name in ("aten::_foreach_mul_", "aten::_foreach_add_"):
        step.call(name, [[[400_000, WIDTH]]] * 2, ["TensorList"] * 2, 50_000, parent_row=inside)
        inside["dur_ns"] = step.now - inside["start_ns"]
    assert nothing_of(step)


def nothing_of(step: Step) -> bool:
    return not step.found()


def test_a_table_that_costs_less_than_sparse_gradients_do_is_left_alone() -> None:
    """As in the recorded program: 16 tables, whose sparse gradients took 10 ms longer than these."""
    step = Step()
    for _ in range(16):
        step.gradient(600_000, 2048, 54_000)
    step.update(*[(600_000, WIDTH)] * 16, dur=400_000)
    assert nothing_of(step)


def test_most_rows_looked_up_or_a_small_table() -> None:
    for rows, found in ((ROWS, ROWS // 4), (50_000, 64)):
        step = Step()
        step.gradient(rows, found)
        step.update((rows, WIDTH))
        assert nothing_of(step)


def test_a_table_that_is_the_head_too() -> None:
    step = Step()
    step.product(ROWS, WIDTH)
    step.gradient()
    step.update((ROWS, WIDTH))
    assert nothing_of(step)


def test_lists_of_which_the_table_is_a_small_part() -> None:
    step = Step()
    step.gradient()
    step.update((ROWS, WIDTH), (8 * ROWS, WIDTH))
    assert nothing_of(step)


def test_no_optimizer_goes_over_it() -> None:
    step = Step()
    step.gradient()
    step.product(512, 512)
    assert nothing_of(step)
