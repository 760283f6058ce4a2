"""Iterations: steps as marked, or inferred from what repeats; and what repeats and is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine.findings.accounting import measure
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined
from tracemine.rows.iterations import iterations
from tracemine.rows.iterations.annotations import marks
from tracemine.timeline import Timeline

FIXTURES = Path(__file__).parents[2] / "fixtures"
LAYER = ("norm", "gemm_qkv", "attention", "gemm_out", "norm", "gemm_up", "silu", "gemm_down")


class Program:
    """Runs kernels one after another, each launched 10 ns before the last one ends."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.now = 1_000

    def run(self, *names: str, launch: dict[str, Any] | None = None, dur: int = 10, module: str | None = None) -> None:
        for name in names:
            call = launch or self.trace.call("cudaLaunchKernel", self.now, 2)
            op = self.trace.op("aten::x", self.now - 1, 4, module=module) if module else None
            self.trace.kernel(name, self.now + 5, dur, launch=call, op=op)
            self.now += 20

    def annotate(self, name: str, dur: int) -> None:
        self.trace.add("ops", kind="annotation", name=name, start_ns=self.now, dur_ns=dur, pid=1, tid=1)

    def sync(self) -> None:
        self.trace.call("cudaStreamSynchronize", self.now, 5)
        self.now += 100

    def replay(self, *names: str) -> None:
        call = self.trace.call("cudaGraphLaunch", self.now, 5)
        self.now += 10
        self.run(*names, launch=call)

    def copy(self, kind: str) -> None:
        self.trace.copy(kind, self.now + 5, 5, 4, launch=(self.now, 2))
        self.now += 20

    def timeline(self) -> Timeline:
        return self.trace.timeline()


def shares(timeline: Timeline) -> list[int]:
    """How many activities each iteration has; [] where none is inferred."""
    found = iterations(timeline)
    return (
        [] if found is None else np.bincount(found.of_activity[found.of_activity >= 0], minlength=len(found)).tolist()
    )


# --- marked ----------------------------------------------------------------------------------------------------------


def test_marked_steps_stay_as_they_are() -> None:
    timeline = open_trace(FIXTURES / "kineto/decoder_decode.json.gz")
    found = iterations(timeline)
    assert found is not None
    assert (found.source, found.confidence, len(found)) == ("marked", 1.0, timeline.steps.num_rows)
    assert found.of_activity.tolist() == [
        -1 if row is None else row for row in timeline.activities["step_row"].to_pylist()
    ]


@pytest.mark.parametrize("name", ["decoder_decode", "decoder_prefill", "convnet_train"])
def test_without_their_marks_the_steps_of_our_recordings_are_found_again(name: str) -> None:
    timeline = open_trace(FIXTURES / f"kineto/{name}.json.gz")
    found = iterations(replace(timeline, steps=None))
    assert found is not None
    assert found.source != "marked"
    assert len(found) == timeline.steps.num_rows
    step = np.array([-1 if row is None else row for row in timeline.activities["step_row"].to_pylist()])
    inside = step >= 0
    assert (found.of_activity[inside] == step[inside]).mean() > 0.95


# --- annotations -----------------------------------------------------------------------------------------------------


def test_every_example_of_a_mark_is_found_by_its_row_and_none_before_it() -> None:
    for at, mark in enumerate(marks()):
        for example in mark.examples:
            fitting = [row for row, each in enumerate(marks()) if each.pattern.search(example)]
            assert fitting[0] == at, example


def test_steps_of_an_optimizer_end_iterations() -> None:
    program = Program()
    for _ in range(4):
        program.run(*LAYER * 3, "loss")
        program.annotate("Optimizer.step#AdamW.step", 15)
        program.run("adam")
    found = iterations(program.timeline())
    assert found is not None
    assert (found.source, found.confidence) == ("annotation", 1.0)
    assert found.evidence == "4 × `Optimizer.step#AdamW.step` (torch.optim)"
    assert shares(program.timeline()) == [26, 26, 26, 26]


def test_an_iteration_that_was_recorded_in_part_is_none() -> None:
    program = Program()
    program.run(*LAYER)
    for _ in range(3):
        program.annotate("Optimizer.step#AdamW.step", 15)
        program.run("adam")
        program.run(*LAYER * 3, "loss")
    assert shares(program.timeline()) == [26, 26]


def test_two_networks_trained_in_turn_are_one_iteration() -> None:
    program = Program()
    for _ in range(4):
        program.run(*["conv", "conv", "leaky"] * 4, "bce")
        program.annotate("Optimizer.step#Adam.step", 15)
        program.run("adam")
        program.run(*["deconv", "batch_norm", "relu"] * 6, "bce")
        program.annotate("Optimizer.step#Adam.step", 15)
        program.run("adam")
    assert shares(program.timeline()) == [34, 34, 34, 34]


def test_an_engines_batches_are_iterations_of_their_kinds() -> None:
    program = Program()
    for prefill, decode in ((1, 0), (0, 4), (0, 4), (0, 4)):
        program.annotate(f"execute_context_{prefill}({prefill * 512})_generation_{decode}({decode})", 30)
        program.run(*LAYER * 2, dur=15 if prefill else 5)
        program.run(*(["sample"] if decode else []))
    found = iterations(program.timeline())
    assert found is not None
    assert found.labels == ("prefill 1, decode 0", *["prefill 0, decode 4"] * 3)
    steps = measure(program.timeline()).per_step
    assert steps is not None
    assert [(kind.name, kind.count, kind.gpu_busy_p50_ns) for kind in steps.kinds] == [
        ("prefill 0, decode 4", 3, 90),
        ("prefill 1, decode 0", 1, 240),
    ]
    assert (steps.count, steps.gpu_busy_p50_ns, steps.gpu_busy_p99_ns) == (4, 90, 240)


def test_ranges_around_layers_are_no_iterations() -> None:
    for name in ("layer {}", "DecoderLayer_{}", "block.{}", "BatchNorm affine={}"):
        program = Program()
        program.run("embedding")
        for layer in range(12):
            program.annotate(name.format(layer), 100)
            program.run(*LAYER)
        program.run("lm_head")
        assert iterations(program.timeline()) is None, name


def test_marks_that_cut_work_into_pieces_that_are_not_alike_say_nothing() -> None:
    program = Program()
    for kernel in ("a", "b", "c", "d", "e"):
        program.run(*[kernel] * 5)
        program.annotate("Optimizer.step#SGD.step", 10)
        program.run(f"{kernel}_step")
    assert iterations(program.timeline()) is None


# --- graph launches --------------------------------------------------------------------------------------------------


def test_replays_with_exchanges_between_them_are_iterations() -> None:
    program = Program()
    for _ in range(5):
        program.copy("HtoD")
        program.replay(*LAYER * 4)
        program.run("top_k")
        program.copy("DtoH")
        program.sync()
    found = iterations(program.timeline())
    assert found is not None
    assert found.source == "graph launches"
    assert found.evidence == "5 graph launches in 5 runs, exchanges with the host between them"
    assert shares(program.timeline()) == [35] * 5


def test_pieces_of_one_forward_that_are_replayed_in_a_row_are_no_iterations() -> None:
    program = Program()
    program.copy("HtoD")
    for _ in range(25):
        program.replay("norm", "gemm", "silu", "gemm")
        program.run("attention")
    program.copy("DtoH")
    assert iterations(program.timeline()) is None


def test_pieces_that_are_replayed_every_step_are_one_iteration_a_step() -> None:
    program = Program()
    for _ in range(4):
        program.copy("HtoD")
        for _ in range(6):
            program.replay("norm", "gemm", "silu", "gemm")
            program.run("attention")
        program.copy("DtoH")
    assert shares(program.timeline()) == [32] * 4


# --- repeating kernels -----------------------------------------------------------------------------------------------


def test_a_loop_that_waits_for_its_result_is_found_by_its_kernels() -> None:
    program = Program()
    for _ in range(5):
        program.run("gather", *LAYER * 6, "lm_head")
        program.sync()
    found = iterations(program.timeline())
    assert found is not None
    assert (found.source, found.evidence) == ("repeating kernels", "50 kernels in the same order, 5 times over")
    assert shares(program.timeline()) == [50] * 5


@pytest.mark.parametrize(("before", "after"), [((), ()), (("gather",), ("lm_head", "softmax"))])
def test_one_forward_of_32_equal_layers_is_no_loop(before: tuple[str, ...], after: tuple[str, ...]) -> None:
    program = Program()
    program.run(*before)
    program.run(*LAYER * 32)
    program.run(*after)
    assert iterations(program.timeline()) is None


def test_layers_that_wait_for_the_device_are_no_loop_where_something_else_runs_too() -> None:
    program = Program()
    program.run("gather")
    for _ in range(32):
        program.run(*LAYER)
        program.sync()  # how many tokens each expert gets
    program.run("lm_head")
    assert iterations(program.timeline()) is None


def test_layers_are_told_from_a_loop_by_their_modules() -> None:
    for same in (False, True):
        program = Program()
        for layer in range(8):
            for kernel in LAYER:
                program.run(kernel, module=f"Model_0.Layer_{0 if same else layer}.{kernel}")
            program.sync()
        assert shares(program.timeline()) == ([8] * 8 if same else [])


def test_kernels_that_never_come_again_are_no_loop() -> None:
    program = Program()
    for at in range(40):
        program.run(f"kernel_{at % 13}_{at // 7}")
        program.sync()
    assert iterations(program.timeline()) is None
    assert measure(program.timeline()).per_step is None


def test_without_recorded_launches_the_devices_clock_tells() -> None:
    trace = Trace()
    for step in range(6):
        for at, name in enumerate((*LAYER, "argmax")):
            trace.kernel(name, step * 1_000 + at * 20, 10)
    found = iterations(trace.timeline())
    assert found is not None
    assert found.begin_ns.tolist() == [step * 1_000 for step in range(6)]
    assert found.end_ns.tolist() == [*(step * 1_000 for step in range(1, 6)), 5_170]


def test_savings_are_a_steps_where_steps_are_inferred_as_where_they_are_marked() -> None:
    timeline = open_trace(FIXTURES / "kineto/decoder_prefill.json.gz")
    at = timeline.activities.schema.get_field_index("step_row")
    nowhere = pa.nulls(timeline.activities.num_rows, pa.int64())
    activities = timeline.activities.set_column(at, timeline.activities.schema.field(at), nowhere)
    without = replace(timeline, steps=None, activities=activities)
    marked, inferred = (mined(analysed(each)) for each in (timeline, without))
    assert (marked.trace.steps, inferred.trace.steps) == (2, 2)
    each = {finding.fingerprint: finding.per_step for finding in inferred.findings}
    on_gpu = [finding for finding in marked.findings if finding.on_gpu]
    assert len(on_gpu) >= 3
    for finding in on_gpu:
        found = each[finding.fingerprint]
        assert finding.per_step is not None
        assert found is not None
        assert found.gpu_saving_ns == finding.per_step.gpu_saving_ns


# --- figures ---------------------------------------------------------------------------------------------------------


def test_the_slowest_of_a_hundred_steps_is_its_99th_percentile_but_for_one() -> None:
    trace = Trace()
    for step in range(100):
        trace.step(step * 1_000, 900 if step < 98 else 890 + step)
        trace.kernel("gemm", step * 1_000 + 10, 100 + step, launch=(step * 1_000 + 5, 2), step_row=step)
    steps = measure(trace.timeline()).per_step
    assert steps is not None
    assert (steps.count, steps.span_p50_ns, steps.span_p99_ns) == (100, 900, 988)
    assert (steps.gpu_busy_p50_ns, steps.gpu_busy_p99_ns) == (149, 198)
    assert [kind.name for kind in steps.kinds] == ["1 kernels"]
