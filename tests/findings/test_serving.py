"""Engines that generate text: which one ran, its batches, time per output token, graphs, phases, and what is said."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from tests.findings.test_engines import rules
from tests.timelines import Trace
from tracemine import pipeline
from tracemine.api.pictures import tops_of
from tracemine.documents.headline import bound_headline, serving_lead, serving_texts
from tracemine.findings import Scan
from tracemine.findings.record import ReplayedBatch, Serving
from tracemine.matching.advice import Fact, advised
from tracemine.pipeline import ScanOptions
from tracemine.rows.engines import PHASES, engine_in, engine_named, engines, in_its_words, phase_rows
from tracemine.rows.iterations import Batch, batch_of
from tracemine.timeline import RecordedDevice
from tracemine.top import HostTop

US, MS = 1_000, 1_000_000
H100 = RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132)
FRAMES = {  # of each engine: its loop, and what it does in an iteration
    "vllm": (
        "vllm/v1/engine/core.py(900): run_busy_loop",
        {
            "schedule": "vllm/v1/core/sched/scheduler.py(300): schedule",
            "prepare": "vllm/v1/worker/gpu_model_runner.py(1518): _prepare_inputs",
            "replay": "torch/cuda/graphs.py(139): replay",
            "sample": "vllm/v1/sample/sampler.py(50): forward",
            "output": "vllm/v1/engine/detokenizer.py(90): update",
        },
    ),
    "sglang": (
        "/opt/sglang/python/sglang/srt/managers/scheduler.py(1594): event_loop_overlap",
        {
            "schedule": "/opt/sglang/python/sglang/srt/managers/scheduler.py(2000): get_next_batch_to_run",
            "prepare": "/opt/sglang/python/sglang/srt/model_executor/cuda_graph_runner.py(1251): replay_prepare",
            "replay": "torch/cuda/graphs.py(139): replay",
            "sample": "/opt/sglang/python/sglang/srt/layers/sampler.py(83): forward",
            "output": "/opt/sglang/python/sglang/srt/managers/utils.py(56): copy_to_cpu",
        },
    ),
}
# A program of its own whose modules and folders are called as an engine's.
OWN = (
    "/home/me/vllm-study/train.py(3): main",
    {
        "schedule": "/home/me/vllm-study/scheduler.py(9): schedule",
        "prepare": "/home/me/vllm-study/gpu_model_runner.py(9): _prepare_inputs",
        "replay": "/home/me/vllm-study/graphs.py(9): run",
        "sample": "/home/me/sglang_notes/sampler.py(9): forward",
        "output": "transformers/models/llama/modeling_llama.py(9): forward",
    },
)


def marked(trace: Trace, name: str, start: int, dur: int) -> dict[str, Any]:
    return trace.add("ops", kind="annotation", name=name, start_ns=start, dur_ns=dur, pid=1, tid=1)


def served(
    frames: tuple[str, dict[str, str]], marks: list[str], each_ns: int = 10 * MS, *, graph: bool = True
) -> Trace:
    """An iteration a mark: each phase is an operator and a kernel of its own, 1 ms after another."""
    trace = Trace(devices=(H100,))
    loop, phases = frames
    root = trace.frame(loop)
    stacks = {phase: trace.frame(frame, root) for phase, frame in phases.items()}
    for at, mark in enumerate(marks):
        begin = at * each_ns
        marked(trace, mark, begin, 8 * MS)
        for number, (phase, stack) in enumerate(stacks.items()):
            now = begin + number * MS
            if phase == "replay" and graph:
                launch = trace.call("cudaGraphLaunch", now, 20 * US, stack_row=stack)
                for node in range(20):
                    trace.kernel("nvjet_gemm", now + 30 * US + node * 100 * US, 100 * US, launch=launch, graph_id=1)
                continue
            trace.kernel(
                f"{phase}_kernel", now + 30 * US, 20 * US, launch=(now + 5 * US, 5 * US), op="aten::add", stack=stack,

            )  # fmt: skip
    return trace


def scanned(trace: Trace) -> Scan:
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def serving_of(trace: Trace) -> Serving:
    found = scanned(trace).summary.serving
    assert found is not None
    return found


def by_phase(trace: Trace) -> HostTop:
    analysis = pipeline.analysed(trace.timeline())
    return tops_of(analysis, pipeline.mined(analysis), ScanOptions(), whole=False).host("phase")


def test_names_of_batches_tell_sequences_and_tokens() -> None:
    assert batch_of("execute_context_1(888)_generation_2(2)") == Batch(1, 2, 888, 2)
    detailed = "execute_8192_context_9(sq8155sk8430sqsq1sqsk1)_generation_37(sq37sk34489sqsq37sqsk34489)"
    assert batch_of(detailed) == Batch(9, 37, 8155, 37)
    assert batch_of("step[DECODE bs=16]") == Batch(0, 16, None, 16)
    assert batch_of("step[EXTEND bs=15 toks=15360]") == Batch(15, 0, 15360)
    assert batch_of("[Executor] _forward_step 12: 0 ctx reqs, 32 gen reqs") == Batch(0, 32)
    for name in ("step[TARGET_VERIFY bs=4]", "step[MIXED bs=4]", "execute_new_3_cached_5", "ProfilerStep#3", "step[4]"):
        assert batch_of(name) is None


@pytest.mark.parametrize(
    ("files", "operators", "name"),
    [
        (["vllm/v1/worker/gpu_model_runner.py"], [], "vllm"),
        ([], ["vllm::moe_forward"], "vllm"),
        (["/x/sglang/srt/models/qwen3.py"], ["_C_cache_ops::reshape"], "sglang"),  # which borrows vLLM's operators
        (["transformers/generation/utils.py", "transformers/models/llama/modeling_llama.py"], [], "transformers"),
        (["transformers/models/llama/modeling_llama.py", "transformers/trainer.py"], ["aten::mm"], None),
        (["/home/me/vllm-study/scheduler.py", "my_vllm/engine.py", "vllm.py"], ["my::vllm"], None),
    ],
)
def test_an_engine_is_known_by_files_and_operators_of_its_own(
    files: list[str], operators: list[str], name: str | None
) -> None:
    found = engine_in(operators, files)
    assert (None if found is None else found.name) == name


def test_the_table_of_phases_says_what_it_says() -> None:
    assert {row.name for row in phase_rows()} == set(PHASES)
    for row in phase_rows():
        assert row.examples
        for example in row.examples:
            among = [each for each in phase_rows() if each.engine in (None, row.engine)]
            assert next(each.name for each in among if each.frame.search(example)) == row.name, example


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_iterations_are_told_with_their_batch_and_time_per_token(engine: str) -> None:
    mark = {"vllm": "execute_context_0(0)_generation_32(32)", "sglang": "step[DECODE bs=32]"}[engine]
    found = serving_of(served(FRAMES[engine], [mark] * 6))
    (kind,) = found.kinds
    assert (found.engine, kind.phase, kind.count, kind.sequences, kind.tokens) == (engine, "decode", 6, 32, 32)
    assert kind.step_ns == kind.token_ns == 10 * MS
    (graph,) = found.replayed
    assert (graph.graphs, graph.iterations, graph.tokens, graph.rows) == (1, 6, (32,), None)
    assert serving_lead(found).endswith("decode of 32 sequences: 10.0 ms a token as profiled")


def test_prefill_and_decode_are_told_apart() -> None:
    prefill, decode = "execute_context_2(900)_generation_0(0)", "execute_context_0(0)_generation_8(8)"
    found = serving_of(served(FRAMES["vllm"], [prefill, *[decode] * 6]))
    kinds = {kind.phase: kind for kind in found.kinds}
    assert (kinds["prefill"].count, kinds["prefill"].prompt_tokens, kinds["prefill"].token_ns) == (1, 900, None)
    assert (kinds["decode"].count, kinds["decode"].token_ns) == (6, 10 * MS)
    assert "1 iteration of prefill of 2 prompts, 900 tokens: 10.0 ms a batch as profiled" in [*serving_texts(found)]


def test_drafts_that_are_checked_are_no_tokens_that_came_out() -> None:
    (kind,) = serving_of(served(FRAMES["vllm"], ["execute_context_0(0)_generation_8(32)"] * 5)).kinds
    assert (kind.tokens, kind.step_ns, kind.token_ns) == (32, 10 * MS, None)


def test_of_one_iteration_its_work_on_the_device_is_told_and_no_time_to_the_next() -> None:
    found = serving_of(served(FRAMES["sglang"], ["step[DECODE bs=16]"]))
    assert (found.kinds[0].step_ns, found.kinds[0].token_ns) == (None, None)
    assert found.kinds[0].gpu_busy_ns == 2 * MS + 3 * 20 * US  # a fourth beside the graph
    assert "of GPU work a token" in serving_lead(found)
    assert any(text.startswith("one iteration was recorded") for text in serving_texts(found))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_hosts_time_is_told_by_phase(engine: str) -> None:
    mark = {"vllm": "execute_context_0(0)_generation_32(32)", "sglang": "step[DECODE bs=32]"}[engine]
    top = by_phase(served(FRAMES[engine], [mark] * 6))
    rows = {row.name: row for row in top.rows if row.depth == 0}
    assert set(rows) - {"(in none)"} == set(FRAMES[engine][1])
    assert sum(row.host_ns for row in rows.values()) == top.host_ns
    assert not any("phase" in note for note in top.notes)


def test_a_program_with_an_engines_names_has_no_engine() -> None:
    trace = served(OWN, ["train_step_1", "train_step_2", "train_step_3", "train_step_4"])
    assert scanned(trace).summary.serving is None
    assert [row.name for row in by_phase(trace).rows] == [None]
    (note,) = [note for note in by_phase(trace).notes if "no engine is known" in note]
    assert "with_stack" not in note  # stacks were recorded


def test_a_training_loop_generates_nothing() -> None:
    trace = served(FRAMES["vllm"], ["execute_context_0(0)_generation_8(8)"] * 4)
    for at in range(4):
        now = at * 10 * MS + 6 * MS
        step = marked(trace, "Optimizer.step#AdamW.step", now, MS)
        op = trace.op("aten::add_", now + 5 * US, 20 * US, [], [], parent_row=step)
        trace.kernel("multi_tensor_apply_kernel", now + 30 * US, 20 * US, launch=(now + 9 * US, 5 * US), op=op)
    assert scanned(trace).summary.serving is None


def generated(prompt: int, new: int, *, files: str = "transformers/generation/utils.py(2000): _sample") -> Trace:
    """A loop that generates: a prompt of four sequences, then a token of each every 5 ms."""
    trace = Trace(devices=(H100,))
    loop = trace.frame(files)
    model = trace.frame("transformers/models/llama/modeling_llama.py(300): forward", loop)
    for at in range(new):
        begin, length = at * 5 * MS, prompt if at == 0 else 1
        looked_up: dict[str, Any] = {"launch": (begin + 5 * US, 5 * US), "op": "aten::embedding"}
        trace.kernel(
            "index_kernel", begin + 20 * US, 5 * US, shapes=[[32_000, 4096], [4, length], [], [], []],
            dtypes=["float", "long int", "", "", ""], stack=model, **looked_up,
        )  # fmt: skip
        for number in range(1, 20):
            now = begin + number * 200 * US
            trace.kernel(
                "nvjet_gemm", now, 50 * US, launch=(now - 15 * US, 5 * US), op="aten::mm", shapes=[], dtypes=[]
            )
    return trace


def test_a_loop_of_transformers_is_told_by_what_it_looks_up() -> None:
    found = serving_of(generated(512, 8))
    kinds = {kind.phase: kind for kind in found.kinds}
    assert (found.engine, kinds["prefill"].prompt_tokens, kinds["prefill"].sequences) == ("transformers", 2048, 4)
    assert (kinds["decode"].count, kinds["decode"].sequences, kinds["decode"].token_ns) == (7, 4, 5 * MS)
    assert serving_lead(found) == "Hugging Face generate decode of 4 sequences: 5.00 ms a token as profiled"
    assert scanned(generated(512, 8, files="transformers/trainer.py(9): training_step")).summary.serving is None


def test_padding_is_told_with_the_engines_own_switch() -> None:
    half = ReplayedBatch(rows=32, graphs=1, iterations=4, tokens=(17,), padded_share=0.4688)
    found = serving_of(served(FRAMES["sglang"], ["step[DECODE bs=17]"] * 4))
    texts = [*serving_texts(replace(found, replayed=(half,)))]
    assert texts[-1].endswith("46.9% of what it computes is padding; capture a size between: --cuda-graph-bs")
    full = replace(half, padded_share=0.02)
    assert "capture" not in [*serving_texts(replace(found, replayed=(full,)))][-1].partition("for")[2]


def test_a_pass_that_captures_is_no_step() -> None:
    trace = served(FRAMES["vllm"], [], graph=False)
    stack = trace.frame("vllm/v1/worker/gpu_model_runner.py(5467): _capture_cudagraphs")
    for at in range(3):
        begin = at * 10 * MS
        trace.call("cudaStreamBeginCapture", begin, US, stack_row=stack)
        for number in range(20):
            trace.call("cudaLaunchKernel", begin + (number + 1) * 100 * US, 5 * US)
        trace.call("cudaStreamEndCapture", begin + 9 * MS, 900 * US)
    trace.kernel("fill_kernel", 100, 50, launch=(10, 5), op="aten::fill_")
    trace.op("vllm::warm", 0, 10, shapes=[], dtypes=[])
    found = scanned(trace)
    assert bound_headline(found) == "vLLM captures CUDA graphs here (3 times): nothing is meant to run"
    assert not found.findings


# --- what is advised --------------------------------------------------------------------------------------------------

_COMPILES = re.compile(r"torch\.compile\(|reduce-overhead|executor\.submit")


def _facts(rule: str, engine: str) -> list[dict[str, Fact]]:
    """Every combination of two facts that the rule's advice asks for, in an engine."""
    asked: dict[str, set[Fact]] = {}
    for one in rules()[rule].advice:
        for name, wanted in one.when.items():
            asked.setdefault(name, {None}).update({True} if isinstance(wanted, bool) else wanted)
    asked.pop("engine", None)
    pairs = [(name, value) for name, values in asked.items() for value in values]
    skipped = {"no_torch", "tensorflow", "training", "optimizer"}  # of which no engine's trace has any
    pairs = [pair for pair in pairs if pair[0] not in skipped]
    return [{"engine": engine}, *({"engine": engine, **dict(both)} for both in product(pairs, pairs))]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_an_engine_runs_is_never_compiled_from_outside(engine: str) -> None:
    for rule in rules().values():
        for facts in _facts(rule.id, engine):
            text = in_its_words(advised(rule.advice, rule.fix, facts), engine_named(engine))
            inside = facts.keys() & {"in_launch", "in_operator"}
            assert (rule.id == "host_stall" and inside) or not _COMPILES.search(text), (rule.id, facts, text)


@pytest.mark.parametrize(
    ("engine", "rule", "facts", "switch"),
    [
        ("vllm", "host_stall", {}, "--async-scheduling"),
        ("sglang", "host_stall", {}, "--disable-overlap-schedule"),
        ("vllm", "host_sync", {}, "--async-scheduling"),
        ("sglang", "host_sync", {}, "--disable-overlap-schedule"),
        ("vllm", "graph_launch_gap", {"graph_pieces": True}, '{"cudagraph_mode": "FULL_AND_PIECEWISE"}'),
        ("sglang", "graph_launch_gap", {"graph_pieces": True}, "--cuda-graph-max-bs"),
        ("vllm", "compile_stall", {}, "cudagraph_capture_sizes"),
        ("vllm", "layer_norm_slow", {}, "--enforce-eager"),
        ("sglang", "layer_norm_slow", {}, "--enable-torch-compile"),
        ("vllm", "launch_gap", {}, "--max-num-batched-tokens"),
        ("transformers", "launch_gap", {}, 'cache_implementation = "static"'),
    ],
)
def test_advice_names_the_engines_own_switch(engine: str, rule: str, facts: dict[str, Fact], switch: str) -> None:
    text = advised(rules()[rule].advice, rules()[rule].fix, {"engine": engine, **facts})
    assert switch in in_its_words(text, engine_named(engine))


def test_every_engine_has_its_source() -> None:
    assert [engine.name for engine in engines()] == ["vllm", "sglang", "transformers"]
    assert all(engine.compiles and engine.sizes for engine in engines() if engine.serves)
