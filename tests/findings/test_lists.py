"""An optimizer's step and loops over tensors: one finding each, with the bytes that one pass moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.causes.embedding_bags_apart import bag_bytes
from tracemine.causes.optimizer_unfused.passes import step_share, step_work
from tracemine.causes.parameter_loop.passes import loop_work
from tracemine.findings.lists import ListedCall, Lists
from tracemine.findings.record import Finding
from tracemine.perfmodel import Pass
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice, Timeline

SHAPES = [[512, 512], [512], [2048, 512], [2048], [512, 2048], [512], [256, 512], [256]]
ELEMENTS = 512 * 512 + 512 + 2048 * 512 + 2048 + 512 * 2048 + 512 + 256 * 512 + 256
ADAMW = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div", "add_", "addcdiv_")
TAKEN = {"lerp_": 2, "addcmul_": 3, "addcdiv_": 3, "add_": 1}


class Program:
    """Training steps on an H200, each with a product, and calls of operators that launch one kernel each."""

    def __init__(self) -> None:
        device = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
        self.trace, self.now = Trace(devices=(device,)), 10_000
        self.row: dict[str, Any] | None = None

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """What is called within is one step's."""
        self.row = self.trace.step(self.now, 0)
        yield
        self.row["dur_ns"] = self.now - self.row["start_ns"]

    def kernel(self, op: dict[str, Any], dur_ns: int, after_ns: int) -> None:
        """A kernel of an operator, and the time after it."""
        launch = (self.now + 10, 10)
        self.trace.kernel("k", self.now + 5_000, dur_ns, launch=launch, op=op, step_row=self.row)
        self.now += after_ns

    def step(self, *parts: tuple[str | None, Sequence[tuple[str, Any, int]]], dur_ns: int = 8_000) -> None:
        start = self.now
        self.call("aten::mm", [[512, 512], [512, 512]], 50_000, None)
        for name, calls in parts:
            around = None if name is None else self.trace.op(name, self.now, 10_000 * len(calls))
            for op, shapes, kernels in calls:
                self.call(op, shapes, dur_ns, around, kernels)
        self.trace.step(start, self.now - start)

    def call(self, op: str, shapes: Any, dur_ns: int, around: Any, kernels: int = 1) -> None:
        lists = op.startswith("aten::_foreach")
        types = None if shapes is None else ["TensorList" if lists else "float"] * len(shapes)
        own = self.trace.op(op, self.now, 9_000, shapes, types, parent_row=around)
        for at in range(kernels):
            begin = self.now + 6_000 + at * dur_ns
            launch = (self.now + 10 + 20 * at, 10)
            self.trace.kernel("k<BinaryFunctor<float, 1>>", begin, dur_ns, launch=launch, op=own, step_row=self.row)
        self.now += max(10_000, 7_000 + kernels * dur_ns)

    def timeline(self) -> Timeline:
        return self.trace.timeline()

    def findings(self, rule: str) -> list[Finding]:
        return [each for each in mined(analysed(self.timeline())).findings if each.rule == rule]


def by_parameter(*ops: str) -> list[tuple[str, Any, int]]:
    return [(f"aten::{op}", [shape] * TAKEN.get(op, 1), 1) for shape in SHAPES for op in ops]


def in_lists(*ops: str, shapes: Any = SHAPES) -> list[tuple[str, Any, int]]:
    return [(f"aten::_foreach_{op}", [shapes] * TAKEN.get(op, 1), 1) for op in ops]


def optimizer(*, steps: int, calls: list[tuple[str, Any, int]], name: str = "AdamW") -> Program:
    program = Program()
    for _ in range(steps):
        program.step((f"Optimizer.step#{name}.step", calls))
    return program


@pytest.mark.parametrize("calls", [by_parameter(*ADAMW), in_lists(*ADAMW)], ids=["loop", "lists"])
def test_an_optimizer_is_one_finding_and_each_of_its_steps_one_occurrence(calls: list[tuple[str, Any, int]]) -> None:
    (found,) = optimizer(steps=3, calls=calls).findings("optimizer_unfused")
    assert found.title.endswith(": AdamW")
    assert (found.occurrences, len(found.activities[0])) == (3, len(calls))
    assert found.fused_ns is not None
    assert found.fused_ns.low <= found.fused_ns.mid <= found.fused_ns.high < found.measured_ns


def one_each(count: int) -> list[Finding]:
    """Steps in which so many optimizers run, each for a tensor of one size."""
    program, calls = Program(), [(f"aten::{op}", [[512, 2048]] * TAKEN.get(op, 1), 1) for op in ADAMW]
    for _ in range(3):
        with program.one_step():
            for _ in range(count):
                around = program.trace.op("Optimizer.step#AdamW.step", program.now, 10_000 * len(calls))
                for op, shapes, _ in calls:
                    program.call(op, shapes, 8_000, around)
    return program.findings("optimizer_unfused")


def test_many_optimizers_of_a_tensor_each_are_told_to_be_one_and_save_more_than_a_pass_each() -> None:
    (few,), (many,) = one_each(7), one_each(12)
    assert (few.occurrences, many.occurrences) == (21, 36)
    assert "Let one take all parameters" in many.fix
    assert "Let one take all parameters" not in few.fix
    assert "AdamW(parameters, lr=lr, fused=True)" in many.fix
    assert few.fused_ns is not None
    assert many.fused_ns is not None
    assert many.fused_ns.mid / 36 < 0.8 * few.fused_ns.mid / 21


def test_one_pass_of_adam_moves_each_element_seven_times() -> None:
    (found,) = optimizer(steps=1, calls=by_parameter(*ADAMW)).findings("optimizer_unfused")
    assert found.traffic_bytes is not None
    assert found.traffic_bytes.after == 7 * 4 * ELEMENTS
    assert found.traffic_bytes.before > found.traffic_bytes.after


def test_no_activity_of_an_optimizer_is_claimed_twice() -> None:
    scan = mined(analysed(optimizer(steps=2, calls=by_parameter(*ADAMW)).timeline()))
    rows = [row for each in scan.findings if each.on_gpu for occurrence in each.activities for row in occurrence]
    assert rows
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (in_lists("add_"), "one kernel is one pass already"),
        ([*in_lists("add_"), ("aten::_fused_adamw_", [SHAPES] * 5, 1)], "it is fused"),
        ([*by_parameter("mul_"), ("aten::mm", [[512, 512], [512, 512]], 1)], "a product needs a pass of its own"),
    ],
)
def test_a_step_with_nothing_to_win_by_one_pass_is_no_finding(calls: list[tuple[str, Any, int]], why: str) -> None:
    assert optimizer(steps=2, calls=calls).findings("optimizer_unfused") == [], why


def test_a_list_whose_shapes_were_not_recorded_is_shared_out_by_how_often_it_is_moved() -> None:
    (found,) = optimizer(steps=1, calls=in_lists(*ADAMW, shapes=[])).findings("optimizer_unfused")
    assert found.traffic_bytes is None
    assert any("sizes were not recorded" in text for text in found.assumptions)
    assert found.fused_ns is not None
    assert 0.2 * found.measured_ns < found.fused_ns.mid < 0.6 * found.measured_ns


def test_a_class_without_a_fused_step_is_compiled() -> None:
    (found,) = optimizer(steps=2, calls=by_parameter("mul_", "add_", "add_"), name="Lion").findings("optimizer_unfused")
    assert "torch.compile(optimizer.step)" in found.fix
    assert "fused=True" not in found.fix


# --- loops over tensors ----------------------------------------------------------------------------------------------


def averaged(ops: Sequence[str]) -> Program:
    program = Program()
    for _ in range(2):
        program.step((None, by_parameter(*ops)), ("Optimizer.step#SGD.step", in_lists("add_")))
    return program


def test_an_average_of_weights_is_one_pass_that_reads_both_and_writes_one() -> None:
    (found,) = averaged(("mul_", "add_")).findings("parameter_loop")
    assert found.occurrences == 2
    assert found.traffic_bytes is not None
    assert found.traffic_bytes.after == 2 * 3 * 4 * ELEMENTS
    assert "_foreach_lerp_" in found.fix


def test_norms_one_by_one_are_told_to_clip_over_lists() -> None:
    (found,) = averaged(("linalg_vector_norm",)).findings("parameter_loop")
    assert "foreach=True" in found.fix


def test_nothing_is_left_of_gradients_that_are_filled_with_zeros() -> None:
    program = Program()
    for _ in range(2):
        program.step(("Optimizer.zero_grad#SGD.zero_grad", by_parameter("zero_")))
    (found,) = program.findings("gradient_zeroing")
    assert found.fused_ns is not None
    assert found.fused_ns.high == 0
    assert found.gpu_saving_ns.low == found.measured_ns
    assert "set_to_none=True" in found.fix


# --- weights, bags and caches -----------------------------------------------------------------------------------------


def cast_within(*, trained: bool) -> Program:
    """Two steps of linear layers under autocast: input, weight and bias are cast within each."""
    program = Program()
    for _ in range(2):
        with program.one_step():
            for width in (512, 1024, 2048):
                operands = [[64, 4096], [width, 4096], [width]]
                linear = program.trace.op("aten::linear", program.now, 129_900, operands, ["float"] * 3)
                for shape in operands:
                    to = program.trace.op("aten::to", program.now, 9_500, parent_row=linear)
                    inner = program.trace.op("aten::_to_copy", program.now + 1, 9_400, parent_row=to)
                    types = ["c10::BFloat16", "float", "Scalar"]
                    copy = program.trace.op(
                        "aten::copy_", program.now + 2, 9_000, [shape, shape, []], types, parent_row=inner
                    )
                    program.kernel(copy, 30_000, 40_000)
                program.call("aten::addmm", [[width], [64, 4096], [4096, width]], 20_000, linear)
            if trained:
                around = program.trace.op("Optimizer.step#SGD.step", program.now, 10_000)
                program.call("aten::_foreach_add_", [[[8]]], 2_000, around)
    return program


def test_weights_and_biases_that_autocast_casts_are_one_finding_and_inputs_are_not_in_it() -> None:
    (found,) = cast_within(trained=False).findings("weight_cast")
    assert (found.occurrences, len(found.activities[0])) == (2, 6)
    assert found.gpu_saving_ns.low == found.measured_ns
    assert "leave autocast out" in found.fix


def test_weights_that_are_trained_are_still_written_in_each_step() -> None:
    (found,) = cast_within(trained=True).findings("weight_cast")
    assert found.fused_ns is not None
    assert 0 < found.fused_ns.low < found.fused_ns.high == found.measured_ns
    assert "masters" in found.fix


def looked_up(*widths: int) -> Program:
    program = Program()
    for _ in range(2):
        with program.one_step():
            for width in widths:
                types = ["float", "long int", "long int"]
                bag = program.trace.op(
                    "aten::_embedding_bag", program.now, 9_000, [[20_000, width], [32_768], [8_192]], types
                )
                program.kernel(bag, 10_000, 20_000)
    return program


def test_bags_of_one_width_move_as_many_bytes_in_one_launch() -> None:
    (found,) = looked_up(*[64] * 6).findings("embedding_bags_apart")
    assert (found.occurrences, len(found.activities[0])) == (2, 6)
    assert found.traffic_bytes is not None
    assert found.traffic_bytes.after == 2 * 6 * (32_768 * (64 * 4 + 8) + 8_192 * 8 + 8_192 * 64 * 4)
    assert found.gpu_saving_ns.low == 0


def test_a_table_with_a_damaged_width_gives_no_bytes() -> None:
    sizes = ((640,), (32,), (8,))
    for shapes in (((10, -1), (32,), (8,)), ((10, 2**50), (32,), (8,)), ((10,), (32,), (8,)), ()):
        assert bag_bytes(ListedCall(0, "_embedding_bag", sizes, 4), shapes) is None


def test_bags_of_different_widths_are_left_alone() -> None:
    assert looked_up(16, 32, 64, 128, 16, 32).findings("embedding_bags_apart") == []


def decoded(rows: Sequence[Sequence[int]], appended: Sequence[Sequence[int]]) -> Program:
    program = Program()
    for _ in range(2):
        with program.one_step():
            for many, few in zip(rows, appended, strict=True):
                cat = program.trace.op("aten::cat", program.now, 9_000, [[many, few], []], ["TensorList", "Scalar"])
                program.kernel(cat, 40_000, 50_000)
    return program


def test_a_cache_that_grows_saves_its_copy_and_no_launch() -> None:
    (found,) = decoded([[4, 16, 2048, 64]] * 4, [[4, 16, 1, 64]] * 4).findings("cache_grown")
    assert (found.occurrences, {len(each) for each in found.activities}) == (8, {1})
    assert found.gpu_saving_ns.mid > 0.9 * found.measured_ns
    assert found.step_saving_ns.high <= found.gpu_saving_ns.high


def test_each_cache_of_each_layer_is_an_occurrence_with_all_its_kernels() -> None:
    program = Program()
    for _ in range(3):
        with program.one_step():
            for _ in range(4):
                sizes = [[4, 16, 2048, 64], [4, 16, 1, 64]]
                cat = program.trace.op("aten::cat", program.now, 9_000, [sizes, []], ["TensorList", "Scalar"])
                program.kernel(cat, 40_000, 50_000)
                program.kernel(cat, 40_000, 50_000)  # for the other part of the axis
    (found,) = program.findings("cache_grown")
    assert (found.occurrences, {len(each) for each in found.activities}) == (12, {2})
    assert found.measured_ns == 3 * 4 * 2 * 40_000


@pytest.mark.parametrize(
    ("rows", "appended"),
    [
        ([[4, 16, 2048, 64]], [[4, 16, 1, 64]]),
        ([[32, 512, 7, 7]] * 4, [[32, 32, 7, 7]] * 4),
        ([[2, 8, 128, 128]] * 4, [[2, 8, 128, 1]] * 4),
        ([[4, 16, 64, 64]] * 4, [[4, 16, 64, 64]] * 4),
    ],
    ids=["once a step", "channels", "a column of sinks", "halves"],
)
def test_what_is_joined_otherwise_is_no_cache(rows: Sequence[Sequence[int]], appended: Sequence[Sequence[int]]) -> None:
    assert decoded(rows, appended).findings("cache_grown") == []


# --- bytes -----------------------------------------------------------------------------------------------------------


def recorded(*calls: tuple[str, Sequence[tuple[int, int]], Sequence[tuple[int, int]]]) -> Timeline:
    """Calls, each with the tensors that it takes and gives: number of the memory, and elements of four bytes."""
    trace = Trace()
    for at, (op, takes, gives) in enumerate(calls):
        own = trace.op(op, 1_000 * at, 900)
        trace.kernel("k", 1_000 * at + 500, 100, launch=(1_000 * at + 10, 10), op=own)
        for is_output, tensors in ((False, takes), (True, gives)):
            for position, (memory, elements) in enumerate(tensors):
                trace.add(
                    "tensors",
                    op_row=own,
                    is_output=is_output,
                    position=position,
                    list_index=None,
                    tensor_id=memory,
                    storage_id=memory,
                    offset_elements=0,
                    numel=elements,
                    itemsize_bytes=4,
                    device="cuda:0",
                    dtype="float",
                    shape=[elements],
                    strides=[1],
                )
    return trace.timeline()


def test_recorded_tensors_are_read_once_and_written_once_and_what_lives_within_counts_for_nothing() -> None:
    timeline = recorded(
        ("aten::mul_", [(1, 100)], []),
        ("aten::add_", [(1, 100), (2, 100)], []),
        ("aten::sqrt", [(1, 100)], [(9, 100)]),
        ("aten::addcdiv_", [(3, 100), (1, 100), (9, 100)], []),
    )
    lists = Lists(timeline)
    calls = lists.calls(_rows(timeline), ["k"] * 4)
    work = step_work(lists, calls, "Any")
    assert work is not None
    assert work.sure
    assert [(one.reads, one.writes) for one in work.passes] == [(4 * 300, 4 * 200)]
    assert work.before == 4 * 100 * (2 + 3 + 2 + 4)


def test_damaged_shapes_give_no_bytes() -> None:
    trace = Trace()
    own = trace.op("aten::mul_", 0, 900, [["x"], [-1]], ["float", "float"])
    trace.kernel("k", 500, 100, launch=(10, 10), op=own)
    timeline = trace.timeline()
    lists = Lists(timeline)
    calls = lists.calls(_rows(timeline), ["k"])
    assert step_work(lists, calls, "SGD") is None
    assert loop_work(lists, calls, "update") is None
    assert step_share(calls, "SGD")[0] == 5


def test_launches_go_by_chunks_and_by_tensors() -> None:
    whole, many = (65_536 * 640,), (512,) * 100
    assert Pass(reads=0, writes=0, sizes=whole, lists=4).launches == 2
    assert Pass(reads=0, writes=0, sizes=many, lists=4).launches == 3
    assert Pass(reads=0, writes=0, sizes=many, lists=1).launches == 1


def _rows(timeline: Timeline) -> Any:
    from tracemine.rows.arrow import rows_of

    return rows_of(timeline.activities["op_row"])
