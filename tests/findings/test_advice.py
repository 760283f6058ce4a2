"""Advice that fits the trace: which text each rule gives for which facts, and what the facts are read from."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

# ruff: noqa: E501 - one case a line: the lists are read as tables
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.findings.build import kernel, rows_of_timeline, table, timeline_of
from tests.timelines import Trace
from tracemine.causes import load_rules
from tracemine.causes.allocation_stall import uncached
from tracemine.causes.host_stall import waited_in
from tracemine.findings import Scan
from tracemine.findings.environment import Environment, environment_of, library_of
from tracemine.findings.facts import backward_ops
from tracemine.findings.graphs.blockers import derived_twice
from tracemine.findings.graphs.obstacles import find_obstacles
from tracemine.findings.recorder import of_recorder
from tracemine.host.waits import waits_of
from tracemine.matching import Rule
from tracemine.matching.advice import Fact, advised
from tracemine.rows import row_sets
from tracemine.rows.host import host_calls
from tracemine.timeline import RecordedDevice, Timeline

US = 1_000
FIXTURES = Path(__file__).parents[2] / "fixtures"
_ROOT = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere"))
_SHARED = sorted((_ROOT / "kineto").glob("*.json*"))
WHOLE_MODEL = "torch.compile(model"


@cache
def rules() -> dict[str, Rule]:
    return {rule.id: rule for rule in load_rules()}


def advice(rule: str, facts: Mapping[str, Fact], blockers: str = "") -> str:
    return advised(rules()[rule].advice, rules()[rule].fix, facts, blockers)


# --- which text -------------------------------------------------------------------------------------------------------

CASES: dict[str, tuple[str, dict[str, Fact], str, str]] = {
    "an optimizer's chain": ("memory_bound_chain", {"optimizer": "AdamW", "module": True}, "fused=True", WHOLE_MODEL),
    "one without a fused step": ("memory_bound_chain", {"optimizer": "Adagrad"}, "optimizer.step = torch.compile", WHOLE_MODEL),
    "an optimizer in lists": ("optimizer_unfused", {"optimizer": "Lion"}, "torch.compile(optimizer.step)", "fused=True"),
    "an optimizer of one's own": ("parameter_loop", {"optimizer": "Lion", "loop": "update"}, "step over lists, each operator once", "fused=True"),
    "small kernels of an optimizer": ("tiny_kernels", {"optimizer": "Adam"}, "fused=True", WHOLE_MODEL),
    "a chain in vLLM": ("memory_bound_chain", {"engine": "vllm", "module": True}, "enforce_eager=False", WHOLE_MODEL),
    "a chain in SGLang": ("memory_bound_chain", {"engine": "sglang"}, "sglang.launch_server", WHOLE_MODEL),
    "a value that JAX fetches": ("host_sync", {"producer": "xla", "operation": "np.asarray(jax.Array)"}, "losses.append(loss)", "block_until_ready"),
    "a wait of JAX's": ("host_sync", {"producer": "xla", "operation": "jax.block_until_ready"}, "jax.block_until_ready(state)", "losses.append"),
    "another wait in JAX": ("host_sync", {"producer": "xla", "operation": None}, "wait for it", "losses.append"),
    "gaps between calls of jitted functions": ("launch_gap", {"producer": "xla", "compiled": True}, "jax.lax.scan(step, state, batches)", "step = jax.jit"),
    "gaps between operations of JAX": ("launch_gap", {"producer": "xla", "compiled": False}, "step = jax.jit(step)", "jitted already"),
    "gaps in vLLM": ("launch_gap", {"engine": "vllm", "compiled": True}, "cudagraph_capture_sizes", WHOLE_MODEL),
    "gaps in SGLang": ("launch_gap", {"engine": "sglang"}, "--cuda-graph-max-bs", WHOLE_MODEL),
    "gaps in an optimizer": ("launch_gap", {"optimizer": "SGD"}, "fused=True", "model = torch.compile"),
    "gaps of what is compiled": ("launch_gap", {"compiled": True}, "The model is compiled already", "Launch less, or"),
    "gaps between graphs": ("launch_gap", {"compiled": True, "replayed": True}, "graph_breaks", WHOLE_MODEL),
    "a chain beside what is compiled": ("memory_bound_chain", {"compiled": True, "module": True}, "left this stretch out", WHOLE_MODEL),
    "a chain in no module": ("memory_bound_chain", {}, "compile the function", WHOLE_MODEL),
    "gaps in training": ("launch_gap", {"training": True}, "forward and the backward pass as a CUDA graph", "then: as one"),
    "gaps of a model that runs often": ("launch_gap", {"repeated": True}, "runs several times a step", "reduce-overhead"),
    "gaps in a loop of equal rounds": ("launch_gap", {"alike": True}, "torch.func.vmap", WHOLE_MODEL),
    "the same in training": ("launch_gap", {"alike": True, "training": True}, "reduce-overhead", "vmap"),
    "a norm with its residual": ("rmsnorm_unfused", {"widened": True, "norm_order": "sum first"}, "def add_norm", "self.eps"),
    "a norm of transformers": ("rmsnorm_unfused", {"library": "transformers"}, "self.variance_epsilon", "self.eps"),
    "a norm in vLLM": ("rmsnorm_unfused", {"engine": "vllm", "widened": True}, "vllm.model_executor", "add_norm"),
    "a norm before 2.9": ("rmsnorm_unfused", {"no_fused_norm": True}, "norm.forward = torch.compile", "return torch"),
    "a norm of many short rows": ("rmsnorm_unfused", {"slow_norm": True, "library": "transformers"}, "norm.forward = torch.compile", "return torch"),
    "one with its residual": ("rmsnorm_unfused", {"slow_norm": True, "widened": True, "norm_order": "sum first"}, "def add_norm", "a block a row"),
    "a stall in an operator": ("host_stall", {"in_operator": True}, "record later steps", "enable_cudnn_sdp"),
    "a stall with each new shape": ("host_stall", {"in_operator": True, "new_shapes": True}, "Pad lengths", "cudnn"),
    "one of attention": ("host_stall", {"in_operator": True, "new_shapes": True, "call_class": "attention"}, "enable_cudnn_sdp(False)", "benchmark"),
    "one of a convolution": ("host_stall", {"in_operator": True, "new_shapes": True, "call_class": "convolution"}, "benchmark = False", "sdp"),
    "a first convolution": ("host_stall", {"in_operator": True, "call_class": "convolution"}, "benchmark = False", "sdp"),
    "a first product": ("host_stall", {"in_operator": True, "call_class": "product"}, "record later steps", "benchmark"),
    "a stall in a launch": ("host_stall", {"in_launch": True}, "CUDA_MODULE_LOADING", "gc.freeze"),
    "an allocator under ROCm": ("allocation_stall", {"amd": True}, "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
    "an allocator without a cache": ("allocation_stall", {"uncached": True}, "cache is off, or full", "largest_batch"),
    "both": ("allocation_stall", {"uncached": True, "amd": True}, "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"),
}  # fmt: skip
# The opposite beside each: what is advised where the fact does not hold.
OTHERWISE: dict[str, tuple[str, dict[str, Fact], str]] = {
    "a chain of a module in eager": ("memory_bound_chain", {"module": True}, WHOLE_MODEL),
    "a backward pass": ("memory_bound_chain", {"backward": True}, WHOLE_MODEL),
    "gaps in eager": ("launch_gap", {}, 'torch.compile(model, mode="reduce-overhead")'),
    "a norm alone": ("rmsnorm_unfused", {"widened": False}, "self.weight, self.eps)"),
    "a norm of rows that are not short": ("rmsnorm_unfused", {"slow_norm": False}, "self.weight, self.eps)"),
    "a stall in Python": ("host_stall", {}, "executor.submit"),
    "an allocator": ("allocation_stall", {}, "PYTORCH_CUDA_ALLOC_CONF"),
}


@pytest.mark.parametrize("case", CASES, ids=CASES)
def test_advice_fits_what_the_trace_says(case: str) -> None:
    rule, facts, there, not_there = CASES[case]
    text = advice(rule, facts)
    assert there in text
    assert not_there not in text


@pytest.mark.parametrize(
    "facts",
    [
        {"blockers": True},
        {"blockers": True, "compiled": True, "replayed": False},
        {"blockers": True, "optimizer": "SGD"},
    ],
    ids=str,
)
def test_what_a_capture_does_not_allow_rules_out_a_replay(facts: dict[str, Fact]) -> None:
    text = advice("launch_gap", facts, "What a capture does not allow was recorded: `.item()`, 48 times.")
    assert "reduce-overhead" not in text
    assert "`.item()`, 48 times" in text


@pytest.mark.parametrize(
    ("operation", "names"),
    [("nonzero", "torch._grouped_mm"), ("_local_scalar_dense", "schedule.tolist()"), (None, "schedule.tolist()")],
)
def test_a_loop_that_waits_is_told_what_to_do_with_the_loop(operation: str | None, names: str) -> None:
    text = advice("host_sync", {"rounds": True, "operation": operation, "waiting": ".item()"})
    assert names in text
    assert "torch.compile breaks" in text
    assert names not in advice("host_sync", {"rounds": False, "operation": operation})


@pytest.mark.parametrize("case", OTHERWISE, ids=OTHERWISE)
def test_what_nothing_speaks_against_is_advised_as_before(case: str) -> None:
    rule, facts, there = OTHERWISE[case]
    assert there in advice(rule, facts)


def test_gaps_name_what_would_break_a_capture_and_only_then() -> None:
    assert "(x)" in advice("launch_gap", {"blockers": True}, "(x)")
    assert "{" not in advice("launch_gap", {})


def test_a_norm_says_from_which_version_on_it_is_one_kernel() -> None:
    assert "PyTorch 2.9" in advice("rmsnorm_unfused", {})


# --- the facts of a trace ---------------------------------------------------------------------------------------------


def environment(timeline: Timeline) -> Environment:
    waits = waits_of(timeline, *host_calls(timeline))
    rows = row_sets(timeline)["activities"]
    return environment_of(timeline, rows, find_obstacles(timeline, rows, waits))


def with_calls(timeline: Timeline, names: Iterable[str]) -> Timeline:
    calls = [{"kind": "runtime", "name": name, "start_ns": i * US, "dur_ns": 100} for i, name in enumerate(names)]
    return replace(timeline, api=table("api", calls))


def test_nothing_is_known_of_a_plain_trace() -> None:
    found = environment(timeline_of([kernel(0, US)]))
    assert found.facts == {**dict.fromkeys(found.facts, False), "engine": None, "producer": "torch"}
    assert found.blockers_text == ""


@pytest.mark.parametrize(
    ("op", "engine"),
    [("vllm::rotary_embedding", "vllm"), ("_C_cache_ops::reshape", "vllm"), ("sgl_kernel::rmsnorm", "sglang"), ("my::vllm", None)],
)  # fmt: skip
def test_an_engine_is_told_by_its_operators(op: str, engine: str | None) -> None:
    assert environment(timeline_of([kernel(0, US, op=op)])).engine == engine


@pytest.mark.parametrize(
    ("capability", "half"),
    [("7.5", "float16"), ("6.1", "float16"), ("8.0", "bfloat16"), ("10.3", "bfloat16"), ("12.0", "bfloat16"), (None, "bfloat16"), ("", "bfloat16")],
)  # fmt: skip
def test_half_precision_is_what_the_gpus_matrix_units_take(capability: str | None, half: str) -> None:
    gpu = RecordedDevice(ordinal=0, name="a GPU", compute_capability=capability)
    assert environment(timeline_of([kernel(0, US)], devices=(gpu,))).half == half


def test_rocm_is_told_by_its_calls_and_cuda_is_not_it() -> None:
    timeline = timeline_of([kernel(0, US, queued_ns=None)])
    assert environment(with_calls(timeline, ["hipLaunchKernel"])).amd
    assert not environment(with_calls(timeline, ["cudaLaunchKernel"])).amd


def test_a_cache_that_is_off_frees_as_often_as_it_allocates_all_the_time() -> None:
    timeline = timeline_of([kernel(0, US, queued_ns=None)])
    assert uncached(with_calls(timeline, ["cudaMalloc", "cudaFree"] * 20))
    assert uncached(with_calls(timeline, [*["cudaMalloc"] * 6, "cudaFree"] * 6))
    # Near misses: a warm-up, which allocates and keeps; and one cache that was emptied at the end.
    assert not uncached(with_calls(timeline, ["cudaMalloc"] * 40))
    assert not uncached(with_calls(timeline, [*["cudaMalloc"] * 40, *["cudaFree"] * 40]))
    assert not uncached(with_calls(timeline, ["cudaMalloc", "cudaFree"]))


def test_what_breaks_a_capture_is_named_with_how_often() -> None:
    trace = Trace()
    for at, name in enumerate(["aten::_local_scalar_dense"] * 3 + ["aten::nonzero"]):
        waiting(trace, name, 10 * US * at)
    trace.call("cudaDeviceSynchronize", 90 * US, 500)  # as where a step ends
    text = environment(trace.timeline()).blockers_text
    assert "`.item()`, `float()` or `int()` of a tensor, 3 times" in text
    assert "`nonzero`, `unique`), 1 time" in text
    assert "pageable" not in text and "wait for" not in text


def waiting(trace: Trace, name: str, at: int, **more: Any) -> None:
    own = trace.op(name, at, 5 * US, **more)
    trace.kernel("k", at + 2 * US, US, op=own)
    trace.call("cudaStreamSynchronize", at + 3 * US, US, op_row=own)


def test_what_breaks_a_capture_stays_outside_of_it_where_it_lies_beside_the_model() -> None:
    def of(linear: str | None, item: str | None) -> Environment:
        trace = Trace()
        trace.kernel("k", US, US, op=trace.op("aten::mm", 0, US, module=linear))
        waiting(trace, "aten::item", 10 * US, module=item)
        return environment(trace.timeline())

    told = ("`.item()`, `float()` or `int()` of a tensor, 1 time",)
    beside = of("Net_0.Linear_0", None)
    assert (beside.blockers, beside.beside) == ((), told)
    assert "Outside of the model" in beside.blockers_text
    # In the model, or where no module is known, it is in the way.
    for found in (of("Net_0.Linear_0", "Net_0"), of(None, None)):
        assert (found.blockers, found.beside) == (told, ())
        assert "has to go first" in found.blockers_text


@pytest.mark.parametrize(
    ("modules", "often"),
    [
        (["Net_0", "Net_0.Linear_0", None, "Net_0", "Net_0.Linear_0"], True),
        (["Net_0", "Net_0.Linear_0", "Net_0.Linear_1", None], False),  # two parts of one call
        (["Encoder_0", None, "Decoder_0", None, "Head_0"], False),  # once each
        ([None, None, None], False),
    ],
)
def test_a_model_runs_several_times_a_step_where_others_work_lies_between(
    modules: list[str | None], *, often: bool
) -> None:
    every = len(modules) * 10 * US
    members = [
        kernel(step * every + at * 10 * US, US, module=module, step_row=step)
        for step in range(2)
        for at, module in enumerate(modules)
    ]
    assert environment(timeline_of(members, steps=[(0, every), (every, every)])).repeated is often


NODE = "autograd::engine::evaluate_function: TanhBackward0"


def autograd(*events: tuple[str, int, int, int, int]) -> Timeline:
    """Operators by name, start and end in microseconds, row of the parent, sequence number; kernels in the first."""
    timeline = timeline_of([kernel(0, US, op=events[0][0])])
    ops = timeline.ops
    first = {name: ops[name].to_pylist()[0] for name in ops.column_names}
    rows = [
        first
        | {
            "name": name,
            "start_ns": begin * US,
            "dur_ns": (end - begin) * US,
            "parent_row": None if parent < 0 else parent,
            "sequence_number": None if number < 0 else number,
        }
        for name, begin, end, parent, number in events
    ]
    return replace(timeline, ops=pa.Table.from_pylist(rows, schema=ops.schema))


@pytest.mark.parametrize(
    ("events", "twice"),
    [
        # A forward operator, its node; that node's own operators are differentiated in their turn, or not.
        ([("aten::tanh", 0, 1, -1, 5), (NODE, 5, 9, -1, 5), ("aten::mul", 6, 7, 1, 8), (NODE, 20, 21, -1, 8)], True),
        ([("aten::tanh", 0, 1, -1, 5), (NODE, 5, 9, -1, 5), ("aten::mul", 6, 7, 1, -1), (NODE, 20, 21, -1, 4)], False),
        # A checkpoint runs the forward again within its node, and differentiates it there.
        ([("aten::tanh", 0, 1, -1, 5), (NODE, 5, 19, -1, 5), ("aten::mul", 6, 7, 1, 8), (NODE, 10, 11, 1, 8)], False),
        # Recorded as one with its node's number: not another's.
        ([("aten::tanh", 0, 1, -1, 5), (NODE, 5, 9, -1, 5), ("aten::mul", 6, 7, 1, 5), (NODE, 20, 21, -1, 5)], False),
    ],
)
def test_derivatives_of_derivatives_are_told_by_sequence_numbers(
    events: list[tuple[str, int, int, int, int]], *, twice: bool
) -> None:
    timeline = autograd(*events)
    assert derived_twice(timeline, backward_ops(timeline)) is twice


def test_an_adam_breaks_a_capture_unless_it_was_made_for_it() -> None:
    for ops, breaks in (
        (["aten::addcdiv_"], True),
        (["aten::_foreach_addcdiv_"], True),
        (["aten::_foreach_pow", "aten::_foreach_addcdiv_"], False),  # it counts its steps on the device
        (["aten::mm"], False),
    ):
        trace = Trace()
        step = trace.op("Optimizer.step#AdamW.step", 0, 90 * US, kind="annotation")
        for at, op in enumerate(ops):
            begin = 10 * US * (at + 1)
            own = trace.op(op, begin, US, parent_row=step if op != "aten::mm" else None)
            trace.kernel("k", begin + 500, US, launch=(begin + 200, 100), op=own)
        assert ("capturable" in environment(trace.timeline()).blockers_text) is breaks


def test_a_capture_names_its_torch() -> None:
    timeline = timeline_of([kernel(0, US)])
    for version, torch in (("2.8.0+cu128", (2, 8)), ("2.11.0", (2, 11)), ("nightly", None)):
        meta = msgspec.structs.replace(timeline.meta, versions={"torch": version})
        assert environment(replace(timeline, meta=meta)).torch == torch


def test_a_library_is_told_by_the_innermost_line() -> None:
    assert library_of(["/x/transformers/models/llama.py"]) == "transformers"
    assert library_of(["train.py"]) is None
    assert library_of([]) is None


# --- where the host was -----------------------------------------------------------------------------------------------


def stalled(op_after_us: int, launch_after_us: int) -> frozenset[str]:
    """Where the host was in a gap of 1 ms whose operator and launch call begin so long after the gap did."""
    gap, end = 100 * US, 1_100 * US
    first = kernel(0, gap)
    second = kernel(end, 10 * US, queued_ns=end - gap - launch_after_us * US - 100)
    timeline = timeline_of([first, second])
    rows = rows_of_timeline(timeline)
    ops = timeline.ops.to_pylist()
    ops[1]["start_ns"] = gap + op_after_us * US
    timeline = replace(timeline, ops=table("ops", ops))
    return waited_in(timeline, rows["gaps"], [0])


def test_a_stall_is_in_the_launch_in_the_operator_or_before_both() -> None:
    assert stalled(op_after_us=10, launch_after_us=20) == {"in_launch"}
    assert stalled(op_after_us=10, launch_after_us=900) == {"in_operator"}
    assert stalled(op_after_us=800, launch_after_us=900) == frozenset()


@pytest.mark.parametrize(
    ("lengths", "steps", "new"),
    [
        ([1, 2, 3, 4], 4, True),
        ([1, 2, 3, 4, 4], 5, True),
        ([7, 7, 7, 7], 4, False),
        ([1, 2], 2, False),
        ([1, 2, 3, 3, 3], 5, False),
        ([1, 2, 3, 4], 1, False),  # layers of the first step
        ([1, 2, 3, 4], 0, False),  # no steps are known
    ],
)
def test_stalls_come_with_new_shapes_where_nearly_each_has_its_own(
    lengths: list[int], steps: int, *, new: bool
) -> None:
    name, apart = "aten::_cudnn_attention_forward", 2_000 * US
    stalls = [kernel(number * apart, 10 * US, op=name, queued_ns=1) for number in range(1, len(lengths) + 1)]
    timeline = timeline_of([kernel(0, 10 * US), *stalls])
    ops, activities = timeline.ops.to_pylist(), timeline.activities.to_pylist()
    for number, (op, activity, length) in enumerate(zip(ops[1:], activities[1:], lengths, strict=True)):
        op |= {"start_ns": number * apart + 100 * US, "input_shapes": f"[[8,16,{length},64]]"}
        activity["step_row"] = number % steps if steps else None
    gaps = rows_of_timeline(timeline)["gaps"]
    timeline = replace(timeline, ops=table("ops", ops), activities=table("activities", activities))
    found = waited_in(timeline, gaps, range(gaps.count))
    assert found == ({"in_operator", "new_shapes"} if new else {"in_operator"})


def recorded_lists(count: int, ids: bool = True, name: str = "TensorList") -> np.ndarray[Any, Any]:
    """A gap within an operator that takes a list of so many tensors."""
    first = kernel(0, 100 * US)
    second = kernel(10_100 * US, 10 * US, op="aten::cat", shapes=((2,),), dtypes=(name,), queued_ns=1)
    timeline = timeline_of([first, second])
    ops = timeline.ops.to_pylist()
    ops[1] |= {"start_ns": 110 * US, "input_shapes": f"[[{','.join(['[2]'] * count)}],[]]"}
    for number, op in enumerate(ops):
        op["record_function_id"] = number if ids else None
    timeline = replace(timeline, ops=table("ops", ops))
    return of_recorder(timeline, row_sets(timeline)["gaps"])


def test_a_stall_in_which_an_execution_trace_writes_a_long_list_down_is_nobodys() -> None:
    assert recorded_lists(64).tolist() == [True]
    # Near misses: a short list, no execution trace, no list.
    assert recorded_lists(2).tolist() == [False]
    assert recorded_lists(64, ids=False).tolist() == [False]
    assert recorded_lists(64, name="c10::BFloat16").tolist() == [False]


# --- whole traces -----------------------------------------------------------------------------------------------------


def test_an_optimizer_in_a_recording_is_told_to_be_fused(measured: Callable[[Path], Any]) -> None:
    (finding,) = [
        f for f in measured(FIXTURES / "kineto/convnet_train.json.gz").scan.findings if f.title.endswith("SGD")
    ]
    assert "fused=True" in finding.fix
    assert WHOLE_MODEL not in finding.fix


def test_gaps_of_a_recording_name_what_breaks_a_capture(measured: Callable[[Path], Any]) -> None:
    (finding,) = [
        f for f in measured(FIXTURES / "kineto/convnet_train.json.gz").scan.findings if f.rule == "launch_gap"
    ]
    assert "`.item()`" in finding.fix
    assert "pageable memory" in finding.fix


def test_a_norm_with_its_residual_is_told_how_to_do_both(measured: Callable[[Path], Any]) -> None:
    (finding,) = [
        f for f in measured(FIXTURES / "captures/decoder_decode").scan.findings if f.rule == "rmsnorm_unfused"
    ]
    assert "def add_norm" in finding.fix


def compiled_models(scan: Scan) -> list[str]:
    """Titles of findings that are told to compile the whole model."""
    return [f.title for f in scan.reported if WHOLE_MODEL in f.fix]


@pytest.mark.skipif(not _SHARED, reason="TRACEMINE_COMPAT_TRACES names no folder of traces")
def test_compiling_the_model_is_advised_only_where_it_would_help(measured: Callable[[Path], Any]) -> None:
    """Of traces of others: no engine, nothing that is compiled but for another mode, no optimizer."""
    told = 0
    for path in _SHARED:
        scan = measured(path).scan
        told += len(compiled_models(scan))
        for finding in scan.reported:
            if WHOLE_MODEL in finding.fix:
                assert "Optimizer" not in finding.title
                assert not any(name in path.name for name in ("vllm", "sglang"))
    findings = sum(len(measured(path).scan.reported) for path in _SHARED)
    print(f"torch.compile(model) in {told} of {findings} findings")
    assert 0 < told < findings / 2


@pytest.mark.parametrize("rule", ["memory_bound_chain", "optimizer_unfused", "tiny_kernels", "launch_gap"])
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
def test_the_fix_names_the_optimizer_that_the_trace_names(rule: str, optimizer: str) -> None:
    text = advice(rule, {"optimizer": optimizer, "fused_step": True})
    assert re.search(rf"torch\.optim\.{optimizer}\(parameters,.* fused=True\)", text)
    assert "{" not in text


def test_an_optimizer_whose_class_no_advice_asks_for_is_never_written_into_one() -> None:
    for rule in rules():
        assert "__import__" not in advice(rule, {"optimizer": "__import__('os')"})


@pytest.mark.parametrize("rule", ["memory_bound_chain", "tiny_kernels", "launch_gap", "host_sync", "pageable_copy"])
def test_what_tensorflow_launched_is_not_told_to_call_torch(rule: str) -> None:
    assert "torch" not in advice(rule, {"tensorflow": True})
    assert "torch" in advice(rule, {"tensorflow": False}) or ".detach()" in advice(rule, {"tensorflow": False})


@pytest.mark.parametrize(
    ("kernels", "operator", "is_tensorflow"),
    [
        (["void tensorflow::BiasNHWCKernel<Eigen::half>(int)"], None, True),
        (["void Eigen::internal::EigenMetaKernel<long>(T1, T2)"], None, True),
        (["void at::native::vectorized_elementwise_kernel<4>(int)"], None, False),
        (["void Eigen::internal::EigenMetaKernel<long>(T1, T2)"], "aten::add", False),
    ],
)
def test_tensorflow_is_told_by_its_kernels_where_no_operator_is_pytorchs(
    kernels: list[str], operator: str | None, is_tensorflow: bool
) -> None:
    trace = Trace()
    for at, name in enumerate(kernels):
        trace.kernel(name, 1_000 * at, 500, op=None if operator is None else trace.op(operator, 1_000 * at, 900))
    timeline = trace.timeline()
    found = environment(timeline)
    assert found.facts["tensorflow"] is is_tensorflow
