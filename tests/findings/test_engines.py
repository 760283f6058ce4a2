"""Programs that replay CUDA graphs: what is said of the time between two replays, and of passes that capture."""

from __future__ import annotations

from functools import cache

import pytest

from tests.timelines import Trace
from tracemine import pipeline
from tracemine.causes import load_rules
from tracemine.findings import Scan
from tracemine.findings.environment import Environment, environment_of
from tracemine.findings.graphs.obstacles import find_obstacles
from tracemine.host.waits import waits_of
from tracemine.matching import Rule
from tracemine.matching.advice import Fact, advised
from tracemine.rows import row_sets
from tracemine.rows.captures import captured_graphs, captures
from tracemine.rows.host import host_calls
from tracemine.timeline import RecordedDevice

US, STEP = 1_000, 3_500_000
PREPARE = ("aten::copy_", "aten::cumsum", "aten::floor_divide", "aten::index", "aten::_foreach_copy_")
REPLAYS = ("--cuda-graph-max-bs", "cudagraph_capture_sizes", "for _ in range", "reduce-overhead", "torch.compile")
GAPS = frozenset({"launch_gap", "graph_launch_gap", "host_stall"})


@cache
def rules() -> dict[str, Rule]:
    return {rule.id: rule for rule in load_rules()}


def advice(rule: str, facts: dict[str, Fact]) -> str:
    return advised(rules()[rule].advice, rules()[rule].fix, facts)


def decode(engine: str = "", replays: int = 1, nodes: int = 100, streams: int = 1) -> Trace:
    """Ten steps, each of five kernels that are launched late, then so many replays of so many kernels each."""
    trace = Trace(devices=(RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132),))
    for at in range(10):
        now = at * STEP
        step = trace.step(now, STEP - US)
        trace.op(f"{engine}::prepare", now, US, shapes=[], dtypes=[]) if engine else None
        for op in PREPARE:
            now += 200 * US
            trace.kernel("elementwise_kernel", now, 2 * US, launch=(now - 9 * US, 5 * US), op=op, step_row=step)
        for replay in range(replays):
            launch = trace.call("cudaGraphLaunch", now + 5 * US, 300 * US)
            now += 306 * US
            for node in range(nodes):
                stream = 7 + node % streams
                trace.kernel(
                    "nvjet_gemm", now, 20 * US, launch=launch, stream=stream, graph_id=replay + 1, step_row=step
                )
                now += 20 * US
    return trace


def eager(engine: str) -> Trace:
    """Ten steps of kernels that are launched late, one by one."""
    trace = Trace(devices=(RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132),))
    for at in range(10):
        step = trace.step(at * STEP, STEP - US)
        trace.op(f"{engine}::prepare", at * STEP, US, shapes=[], dtypes=[])
        for number in range(1, 30):
            now = at * STEP + number * 100 * US
            trace.kernel("nvjet_gemm", now, 20 * US, launch=(now - 9 * US, 5 * US), op="aten::mm", step_row=step)
    return trace


def without_steps(trace: Trace) -> Trace:
    trace.rows["steps"].clear()
    for row in trace.rows["activities"]:
        row["step_row"] = None
    return trace


def scanned(trace: Trace) -> Scan:
    return pipeline.mined(pipeline.analysed(trace.timeline()))


def environment(trace: Trace) -> Environment:
    timeline = trace.timeline()
    rows = row_sets(timeline)["activities"]
    return environment_of(timeline, rows, find_obstacles(timeline, rows, waits_of(timeline, *host_calls(timeline))))


@pytest.mark.parametrize("streams", [1, 40])
@pytest.mark.parametrize("engine", ["vllm", "sglang", ""])
def test_a_step_that_replays_one_graph_is_not_told_to_replay(engine: str, streams: int) -> None:
    found = {finding.rule: finding for finding in scanned(decode(engine, streams=streams)).findings}
    assert GAPS & set(found) == {"launch_gap", "graph_launch_gap"}
    for rule in ("launch_gap", "graph_launch_gap"):
        assert not any(text in found[rule].fix for text in REPLAYS), found[rule].fix
    assert set(found["launch_gap"].ops) >= {"aten::cumsum", "aten::floor_divide"}  # what prepares it is named


@pytest.mark.parametrize(
    ("engine", "own", "other"), [("vllm", "--async-scheduling", "sglang"), ("sglang", "sglang.launch_server", "vllm")]
)
def test_an_engine_that_replays_is_told_to_overlap_in_its_own_words(engine: str, own: str, other: str) -> None:
    for rule in ("launch_gap", "graph_launch_gap"):
        text = advice(rule, {"engine": engine, "replayed": True, "graph_pieces": False, "compiled": True})
        assert own in text
        assert other not in text


@pytest.mark.parametrize(("engine", "names"), [("vllm", "cudagraph_capture_sizes"), ("sglang", "--cuda-graph-max-bs")])
def test_an_engine_that_launches_one_by_one_is_told_to_replay(engine: str, names: str) -> None:
    (finding,) = [each for each in scanned(eager(engine)).findings if each.rule == "launch_gap"]
    assert names in finding.fix


def test_what_cannot_be_captured_is_named_where_more_is_to_be_captured() -> None:
    facts: dict[str, Fact] = {"replayed": True, "compiled": False, "graph_pieces": False}
    launch_gap = rules()["launch_gap"]
    assert "`.item()`, 3 times" in advised(launch_gap.advice, launch_gap.fix, facts, "First: `.item()`, 3 times.")


def test_a_step_of_many_graphs_is_told_to_make_fewer() -> None:
    assert environment(decode(replays=3, nodes=4)).graph_pieces
    assert "one, the sampling after the decoder" in advice("graph_launch_gap", {"graph_pieces": True})
    # Near misses: two graphs (the model, and its sampler); steps that are not known.
    assert not environment(decode(replays=2, nodes=4)).graph_pieces
    assert not environment(without_steps(decode(replays=3, nodes=4))).graph_pieces


def of_nsys(kernel: str, op: str | None = None, **meta: str) -> Trace:
    trace = Trace()
    trace.meta = type(trace.meta)(tracemine_version="test", source="t.sqlite", format="nsys", versions=meta)
    trace.kernel(kernel, US, US, launch=(0, 10), op=op)
    return trace


def test_a_program_without_torch_gets_no_words_of_it() -> None:
    assert environment(of_nsys("_Z12add_parallelPKfS0_Pfi")).no_torch
    for rule in ("launch_gap", "graph_launch_gap", "host_stall", "host_sync", "allocation_stall", "module_load_stall"):
        for replayed in (False, True):
            facts: dict[str, Fact] = {"no_torch": True, "replayed": replayed, "tensorflow": False}
            assert "torch" not in advice(rule, facts)


@pytest.mark.parametrize(
    "trace",
    [
        of_nsys("void at::native::vectorized_elementwise_kernel<4>(int)"),
        of_nsys("triton_poi_fused_add_0"),
        of_nsys("sm90_xmma_gemm", op="aten::mm"),
        of_nsys("sm90_xmma_gemm", torch="2.9.0"),
        eager("vllm"),
    ],
    ids=["kernel", "inductor", "operator", "version", "torch.profiler"],
)
def test_what_shows_torch_anywhere_is_a_program_of_torch(trace: Trace) -> None:
    assert not environment(trace).no_torch


def test_a_batch_is_not_said_to_be_named_by_an_engine_that_did_not_run() -> None:
    trace = without_steps(decode("sglang"))
    for at in range(10):
        name = "execute_context_0(0)_generation_16(16)"
        trace.add("ops", kind="annotation", name=name, start_ns=at * STEP, dur_ns=STEP - US, pid=1, tid=1)
    said = str(scanned(trace))
    assert "generation_16" in said
    assert "vLLM" not in said


def capture(times: int, ended: bool = True, made: bool = True) -> Trace:
    """Passes of 5 ms: a kernel that runs, then a graph that is captured for 4 ms and made in 100 µs."""
    trace = Trace(devices=(RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132),))
    for at in range(times):
        now = at * 5_000 * US
        trace.kernel("elementwise_kernel", now + 50 * US, 18 * US, launch=(now + 40 * US, 5 * US), op="aten::copy_")
        trace.call("cudaStreamBeginCapture", now + 100 * US, 5 * US)
        for launch in range(30):
            trace.call("cudaLaunchKernel", now + (200 + 100 * launch) * US, 5 * US)
        if ended:
            trace.call("cudaStreamEndCapture", now + 4_100 * US, 20 * US)
        if made:
            trace.call("cudaGraphInstantiate", now + 4_200 * US, 100 * US)
    trace.call("cudaDeviceSynchronize", times * 5_000 * US, US)
    return trace


def test_a_pass_that_captures_graphs_is_called_that_and_nothing_else_is_said() -> None:
    found = scanned(capture(12))
    assert found.findings == ()
    assert "CUDA graphs being captured (12 times)" in found.warnings[0]
    assert "--graph-capture" in found.warnings[0]
    assert found.summary.bound is not None
    assert found.summary.bound.cause == "graph_capture"


def pieces(graphs: int, eager: int, launches: int = 10) -> Trace:
    """Graphs that are captured one after the other, for a tenth of the time, between kernels that are launched late."""
    trace = Trace(devices=(RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132),))
    now = 0
    for at in range(max(graphs, 1) * eager):
        trace.kernel("nvjet_gemm", now + 50 * US, 20 * US, launch=(now + 40 * US, 5 * US), op="aten::mm")
        if at % eager == 0 and at < graphs * eager:
            trace.call("cudaStreamBeginCapture", now + 60 * US, US)
            for launch in range(launches):
                trace.call("cudaLaunchKernelExC", now + (61 + launch) * US, US)
            trace.call("cudaStreamEndCapture", now + (62 + launches) * US, US)
        now += 200 * US
    trace.call("cudaDeviceSynchronize", now, US)
    return trace


def test_a_pass_that_captures_the_pieces_of_a_model_is_one_though_most_of_its_time_lies_between() -> None:
    found = scanned(pieces(graphs=25, eager=4))
    assert found.findings == ()
    assert "CUDA graphs being captured (25 times)" in found.warnings[0]


def test_a_step_that_captures_one_small_graph_keeps_its_findings() -> None:
    found = scanned(pieces(graphs=1, eager=40))
    assert not any("captured" in text for text in found.warnings)
    assert found.findings
    without = scanned(pieces(graphs=0, eager=40))
    assert [each.rule for each in found.findings] == [each.rule for each in without.findings]


def test_what_replays_what_it_captured_is_a_program_like_others() -> None:
    trace = decode()
    last = max(row["start_ns"] for row in trace.rows["activities"])
    for row in capture(2).rows["api"]:
        trace.call(row["name"], last + 300 * US + row["start_ns"], row["dur_ns"])
    for later in (400, 5_000):  # a gap of 4.6 ms in which a graph was captured
        now = last + later * US
        trace.kernel("elementwise_kernel", now + 50 * US, 18 * US, launch=(now + 40 * US, 5 * US), op="aten::copy_")
    found = scanned(trace)
    assert not any("captured" in text for text in found.warnings)
    assert {finding.rule for finding in found.findings} & GAPS == {
        "launch_gap",
        "graph_launch_gap",
    }  # and no host_stall


@pytest.mark.parametrize(
    ("trace", "graphs"),
    [
        (capture(3), 3),
        (capture(3, made=False), 3),
        (capture(3, ended=False), 0),  # recording stopped, or the capture failed: how long it took is not known
        (eager("vllm"), 0),
    ],
    ids=["captured", "not yet made", "never ended", "eager"],
)
def test_a_capture_is_told_by_its_begin_and_its_end(trace: Trace, graphs: int) -> None:
    assert captured_graphs(trace.timeline()) == graphs


def test_captures_are_disjoint_and_each_threads_own() -> None:
    trace = Trace()
    calls = [("Begin", 0, 1), ("Begin", 10, 2), ("End", 20, 1), ("End", 40, 2), ("Begin", 70, 1), ("End", 90, 2)]
    for name, start, tid in calls:
        trace.call(f"cudaStream{name}Capture", start * US, US, tid=tid)
    trace.call("cudaGraphInstantiate", 60 * US, 5 * US)
    begin, end = captures(trace.timeline())
    assert begin.tolist() == [0, 60 * US]
    assert end.tolist() == [41 * US, 65 * US]
