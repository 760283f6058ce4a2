"""Launches, owners, graphs, steps and modules, by process and thread."""

from __future__ import annotations

from pathlib import Path

from tests.formats.nsys.make import PROCESS, THREAD, Export, timeline

_OTHER = PROCESS + (77 << 24)


def test_equal_correlation_ids_of_two_processes_are_two_launches(tmp_path: Path) -> None:
    export = Export().call(10, 20, 5).kernel(100, 110, 5)
    export.call(30, 40, 5, globalTid=_OTHER | 9).kernel(120, 130, 5, globalPid=_OTHER)
    t = timeline(tmp_path, export)
    pids = t.api["pid"].to_pylist()
    assert [pids[row] for row in t.activities["launch_row"].to_pylist()] == pids
    assert pids[0] != pids[1]
    assert any("2 processes used the GPUs" in text for text in t.meta.ingest.warnings)


def test_what_was_launched_before_recording_is_told_by_the_first_id_of_its_process(tmp_path: Path) -> None:
    export = Export().call(50, 60, 100).kernel(100, 110, 100).kernel(70, 80, 99)
    export.call(50, 60, 10, globalTid=_OTHER | 9).kernel(100, 110, 10, globalPid=_OTHER).kernel(
        120, 130, 99, globalPid=_OTHER
    )
    export.range("aten::relu, op_id = 1", 45, 65)
    t = timeline(tmp_path, export)
    reasons = {(a["start_ns"], a["correlation"]): a["unowned_reason"] for a in t.activities.to_pylist()}
    assert reasons[70, 99] == "before_window"
    assert reasons[120, 99] == "no_launch_call"
    assert reasons[100, 100] is None


def test_an_export_that_does_not_say_whose_a_kernel_is_has_one_process(tmp_path: Path) -> None:
    t = timeline(tmp_path, Export().call(10, 20, 5).kernel(100, 110, 5, globalPid=None))
    assert t.activities["launch_row"].to_pylist() == [0]


def test_nodes_of_a_graph_share_their_launch_and_have_no_operator(tmp_path: Path) -> None:
    export = Export().range("aten::relu, op_id = 1", 0, 90).call(10, 20, 5, "cudaGraphLaunch_v10000")
    export.kernel(100, 110, 5, graphNodeId=8_589_934_592).kernel(120, 130, 5, graphNodeId=8_589_934_593)
    t = timeline(tmp_path, export)
    assert t.activities["launch_row"].to_pylist() == [0, 0]
    assert t.activities["unowned_reason"].to_pylist() == ["graph_replay"] * 2
    assert t.activities["graph_node_id"].to_pylist() == [8_589_934_592, 8_589_934_593]


def test_a_graph_that_was_traced_as_a_whole_is_one_activity(tmp_path: Path) -> None:
    export = Export().call(10, 20, 5, "cudaGraphLaunch_v10000").call(30, 40, 6, "cudaGraphLaunch_v10000")
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=100, end=190, deviceId=0, contextId=1, streamId=7,
               correlationId=5, globalPid=PROCESS, graphId=2)  # fmt: skip
    t = timeline(tmp_path, export)
    (graph,) = t.activities.to_pylist()
    assert (graph["kind"], graph["name"], graph["dur_ns"], graph["graph_id"]) == ("graph", "CUDA graph 2", 90, 2)
    said = " ".join(t.meta.ingest.warnings)
    assert "1 CUDA graph launch traced as a whole" in said
    assert "Only 1 of 2 CUDA graph launches have a trace of the graph" in said


def test_ranges_around_operators_are_modules_and_steps_are_not(tmp_path: Path) -> None:
    export = Export().range("step 4", 0, 100).range("encoder", 1, 90).range("layers.0", 2, 80)
    export.range("ncclAllReduce", 3, 70, domainId=5).range("aten::relu, op_id = 1", 10, 20).call(12, 14, 3)
    t = timeline(tmp_path, export)
    module = dict(zip(t.ops["name"].to_pylist(), t.ops["module"].to_pylist(), strict=True))
    assert module["aten::relu"] == "encoder.layers.0"
    assert (module["step 4"], module["encoder"], module["layers.0"]) == (None, None, "encoder")
    assert t.api["module"].to_pylist() == ["encoder.layers.0"]
    assert t.steps["number"].to_pylist() == [4]
    assert t.ops["kind"].to_pylist() == ["annotation"] * 4 + ["op"]


def test_of_steps_inside_each_other_the_outer_one_counts(tmp_path: Path) -> None:
    export = Export().range("iteration 1", 0, 50).range("step 0", 5, 20).range("iteration 2", 60, 90)
    assert timeline(tmp_path, export).steps["name"].to_pylist() == ["iteration 1", "iteration 2"]


def test_a_range_that_ends_on_another_thread_is_around_nothing(tmp_path: Path) -> None:
    export = Export().range("request", 0, 100, eventType=60, endGlobalTid=THREAD + 1)
    export.range("phase", 1, 90, eventType=60, endGlobalTid=THREAD).range("aten::relu, op_id = 1", 10, 20)
    t = timeline(tmp_path, export)
    assert [op["module"] for op in t.ops.to_pylist()] == [None, None, "phase"]
    assert t.ops["tid"].to_pylist()[0] is None


def test_a_gpu_is_found_by_the_process_that_saw_it(tmp_path: Path) -> None:
    export = Export().call(10, 20, 5).kernel(100, 110, 5)
    for number, name in ((0, "A100"), (3, "H100")):
        export.add("TARGET_INFO_GPU", id=number, cuDevice=number, name=name, smCount=100)
    export.add("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=(PROCESS >> 24) & 0xFFFFFF)
    assert [d.name for d in timeline(tmp_path, export).meta.devices] == ["H100"]
    export.rows.pop("TARGET_INFO_CUDA_DEVICE")
    assert [d.name for d in timeline(tmp_path, export).meta.devices] == ["A100"]
    for gpu in export.rows["TARGET_INFO_GPU"]:
        gpu["cuDevice"] = 0
    assert [d.name for d in timeline(tmp_path, export).meta.devices] == [None]
