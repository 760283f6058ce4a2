"""From an .xplane.pb to the timeline's tables: what each row says, and what is joined."""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.formats.xla import make
from tests.formats.xla.make import (
    PROFILE_START_NS,
    Event,
    Line,
    Plane,
    Ref,
    around,
    kernel,
    launch,
    of_module,
    small_planes,
    write_xplane,
)
from tracemine.formats import open_trace
from tracemine.formats.xla import event_cells, wire
from tracemine.formats.xla.space import events_of, open_space
from tracemine.timeline import Timeline


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return open_trace(write_xplane(tmp_path / "host.xplane.pb", small_planes()))


def rows(timeline: Timeline, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = getattr(timeline, table).to_pylist()
    return found


def test_a_kernel_has_its_facts_launch_instruction_and_step(timeline: Timeline) -> None:
    first, other, copy = rows(timeline, "activities")[:3]
    assert (first["kind"], first["name"], first["device"], first["stream"]) == ("kernel", "gemm_fusion_dot", 0, 14)
    assert (first["start_ns"], first["dur_ns"]) == (PROFILE_START_NS + 1_160_000, 30_000)
    assert (first["grid"], first["block"]) == ([128, 2, 1], [96, 1, 1])
    assert (first["registers_per_thread"], first["shared_memory_bytes"], first["occupancy_percent"]) == (24, 80, 50)
    call, op = rows(timeline, "api")[first["launch_row"]], rows(timeline, "ops")[first["op_row"]]
    assert (call["name"], call["kernel"], call["op_row"]) == ("cuLaunchKernel", "gemm_fusion_dot", first["op_row"])
    assert (op["kind"], op["name"], first["owner_evidence"]) == ("op", "xla::gemm_fusion_dot", "compiler")
    run = rows(timeline, "ops")[op["parent_row"]]
    assert (run["kind"], run["name"]) == ("annotation", "XLA module jit_f")
    assert (first["step_row"], other["step_row"], rows(timeline, "activities")[3]["step_row"]) == (0, 0, 1)
    assert (copy["kind"], copy["bytes"], copy["copy_kind"]) == ("memcpy", 4, "DtoH")
    assert (copy["source_memory"], copy["target_memory"], copy["stream"]) == ("device", "pinned", 17)


def test_steps_waits_and_frames(timeline: Timeline) -> None:
    steps = rows(timeline, "steps")
    assert [(step["name"], step["number"], step["dur_ns"]) for step in steps] == [
        ("train", n, 1_900_000) for n in range(3)
    ]
    waits = [row for row in rows(timeline, "api") if row["name"] in ("np.asarray(jax.Array)", "jax.block_until_ready")]
    assert [row["name"] for row in waits] == ["np.asarray(jax.Array)", "jax.block_until_ready"] * 3  # none twice
    stacks = rows(timeline, "stacks")
    frame = stacks[waits[0]["stack_row"]]
    assert (frame["frame"], frame["line"]) == ("jax/array.py(293): __float__", 293)
    assert stacks[frame["parent_row"]]["frame"] == "train.py(40): step"


def test_what_holds_for_the_recording(timeline: Timeline) -> None:
    meta = timeline.meta
    assert (meta.format, meta.producer, meta.base_ns) == ("xla", "JAX 0.11.2", PROFILE_START_NS)
    (device,) = meta.devices  # the plane of one that was not used is empty
    assert (device.name, device.compute_capability, device.sm_count) == ("NVIDIA H100 80GB HBM3", "9.0", 132)
    assert meta.versions["jax"] == "0.11.2"
    assert not meta.ingest.warnings
    assert not meta.ingest.truncated


def test_ids_are_counted_on_each_gpu(tmp_path: Path) -> None:
    timeline = open_trace(write_xplane(tmp_path / "x.pb", small_planes(devices=3)))
    api = rows(timeline, "api")
    for activity in rows(timeline, "activities"):
        assert api[activity["launch_row"]]["tid"] == (2**40 + activity["device"]) & 0xFFFFFFFF
    assert np.bincount(timeline.activities["device"].to_numpy()).tolist() == [9, 9, 9]


def test_amd_numbers_its_devices_otherwise_and_copies_by_kernels(tmp_path: Path) -> None:
    mi300 = {"device_vendor": "AMD", "core_count": 304, "memory_bandwidth": 2_662_400_000_000}
    details = Ref("grid:10,1,1 block:256,1,1 private_mem:0 group_mem:512 occ_pct:0")
    copy = Event("__amd_rocclr_copyBuffer.kd", 9_000, 1_000, {"correlation_id": 8, "kernel_details": details})
    fusion_event = Event("fusion.kd", 5_000, 2_000, {"correlation_id": 7, "kernel_details": details})
    stream = Line("Stream #2", [copy, fusion_event])
    calls = [launch("hipModuleLaunchKernel", 1_000, 7, 53_022), launch("hipMemcpyDtoDAsync", 2_000, 8, 53_022)]
    planes = [
        around()[0],
        Plane("/device:GPU:0", [stream], mi300),
        Plane("/host:CPU", [Line("Host Threads/7", calls, 7)]),
    ]
    timeline = open_trace(write_xplane(tmp_path / "x.pb", planes))
    fusion, copied = rows(timeline, "activities")
    assert [rows(timeline, "api")[row["launch_row"]]["name"] for row in (fusion, copied)] == [
        call.name for call in calls
    ]
    assert (fusion["shared_memory_bytes"], fusion["occupancy_percent"], fusion["grid"]) == (512, None, [10, 1, 1])
    assert (copied["kind"], copied["copy_kind"], copied["bytes"]) == ("memcpy", "DtoD", None)


def test_a_command_buffer_is_one_launch_of_many(tmp_path: Path) -> None:
    graph = {"cuda_graph_id": 120}
    host = [
        Event("train", 0, 90_000, {"step_num": 0}),
        Event("[0] GpuExecutable::ExecuteThunks", 100, 60_000, {"module_name": "jit_step"}),
        Event("command_buffer::execute", 200, 50_000, {"num_commands": 2, "num_executions": 1}),
        launch("cuGraphLaunch (CudaGraph:120)", 300, 1, dur_ns=40_000, **graph),
    ]
    nodes = [
        kernel(name, 50_000 + 9_000 * at, 8_000, 1, **of_module("jit_step", 4, "command_buffer_1"),
               cuda_graph_node_id=(120 << 32) + at, **graph)
        for at, name in enumerate(("fusion_2", "fusion_3"))
    ]  # fmt: skip
    planes = [
        *around(),
        Plane("/device:GPU:0", [Line("Stream #14(Compute)", nodes)]),
        Plane("/host:CPU", [Line("python3", host)]),
    ]
    timeline = open_trace(write_xplane(tmp_path / "x.pb", planes))
    found = rows(timeline, "activities")
    assert {row["launch_row"] for row in found} == {0}
    assert rows(timeline, "api")[0]["name"] == "cuGraphLaunch"
    assert [row["graph_node_id"] & 0xFFFFFFFF for row in found] == [0, 1]
    assert timeline.meta.ingest.unowned == {"graph_replay": 2}


def test_allocations_of_gpus(tmp_path: Path) -> None:
    facts = {"allocator_name": Ref("GPU_0_bfc"), "bytes_allocated": 768, "allocation_bytes": 512, "addr": 4096}
    on_host = {**facts, "allocator_name": Ref("xla_gpu_host_bfc")}
    events = [
        Event("MemoryAllocation", 10, 0, facts),
        Event("MemoryDeallocation", 20, 0, {**facts, "bytes_allocated": 256}),
        Event("MemoryAllocation", 15, 0, on_host),
    ]
    planes = small_planes()
    planes[-2].lines.append(Line("python3", events, 5))
    found = rows(open_trace(write_xplane(tmp_path / "x.pb", planes)), "memory")
    assert [(row["bytes"], row["allocated_bytes"], row["device"]) for row in found] == [
        (512, 768, "cuda:0"),
        (-512, 256, "cuda:0"),
    ]


def test_a_gzipped_one_is_the_same(tmp_path: Path, timeline: Timeline) -> None:
    packed = open_trace(write_xplane(tmp_path / "host.xplane.pb.gz", small_planes(), packed=True))
    assert packed.activities.equals(timeline.activities)


def test_what_a_name_says_holds_for_its_events_and_an_event_goes_before() -> None:
    events = [Event("k", 0, 1, {"correlation_id": 5}), Event("k", 2, 1)]
    plane_bytes = make.plane_bytes(Plane("/device:GPU:0", [Line("Stream #1", events)]))
    stat = make.message(5, make.number(1, 1) + make.number(3, 9))
    name = make.number(1, 1) + make.message(2, "k") + stat
    again = make.message(4, make.number(1, 1) + make.message(2, name))  # the last entry of a map's key holds
    data = memoryview(make.message(1, plane_bytes + again))
    space = open_space(data)
    (plane,) = space.planes
    (found,) = events_of(space, plane, plane.lines[0], ["correlation_id"])
    assert found.numbers("correlation_id").tolist() == [5, 9]


def test_compiled_code_and_python_give_the_same_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    if wire.COMPILED is None:
        pytest.skip("the compiled reader is not there: pip install -e . builds it where there is a compiler")
    monkeypatch.setattr(event_cells, "ROWS", 7)
    space = open_space(memoryview(make.space_bytes(small_planes(devices=2))))
    stats = ("correlation_id", "kernel_details", "module_name", "theoretical_occupancy_pct", "absent")
    skip = [1, 3]

    def all_cells() -> list[list[Any]]:
        return [
            [events.names, events.offset_ps, events.dur_ps, *events.values.values(), *events.kinds.values()]
            for plane in space.planes
            for line in plane.lines
            for events in events_of(space, plane, line, stats, skip)
        ]

    found = all_cells()
    monkeypatch.setattr(wire, "COMPILED", None)
    again = all_cells()
    assert len(found) == len(again) > 4
    for one, other in zip(found, again, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_compiled_reader_is_of_the_source_that_is_there() -> None:
    if wire.COMPILED is None:
        assert os.environ.get("TRACEMINE_COMPILED") != "required", "the compiled reader was not built"
        pytest.skip("the compiled reader is not there: pip install -e . builds it where there is a compiler")
    built = import_module("tracemine.formats.xla._event_cells")
    source = Path(event_cells.__file__).with_name("_event_cells.c")
    assert hashlib.sha256(source.read_bytes()).hexdigest() == built.SOURCE_SHA256, "build it again: pip install -e ."
