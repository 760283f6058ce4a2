"""From a Kineto trace to a timeline: who launched what, who owns it, where it stands, and what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.kineto_file import BACKWARD, BASE_NS, call, event, frame, kernel, old_timeline, op, timeline
from tracemine.formats.kineto.structs import CATEGORIES, TABLES
from tracemine.timeline import Timeline


def _column(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table.column(name).to_pylist()
    return values


def _owners(t: Timeline) -> list[str | None]:
    """Each activity's operator by name."""
    names = _column(t.ops, "name")
    return [None if row is None else names[row] for row in _column(t.activities, "op_row")]


def _launches(t: Timeline) -> list[str | None]:
    names = _column(t.api, "name")
    return [None if row is None else names[row] for row in _column(t.activities, "launch_row")]


# Owners


def test_an_activity_is_owned_by_the_innermost_operator_around_its_launch(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::linear", 0, 100),
        op("aten::addmm", 10, 90),
        call("cudaLaunchKernel", 20, 30, 1),
        kernel("gemm", 50, 80, 1),
        call("cudaLaunchKernel", 95, 97, 2),
        kernel("bias", 110, 120, 2),
    )
    assert _owners(t) == ["aten::addmm", "aten::linear"]
    assert _column(t.activities, "owner_evidence") == ["nesting", "nesting"]
    assert _column(t.activities, "unowned_reason") == [None, None]
    assert _column(t.ops, "parent_row") == [None, 0]
    assert _column(t.api, "op_row") == [1, 0]


def test_a_launch_on_another_thread_is_owned_by_an_operator_of_that_thread(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 100),
        op("MulBackward0", 0, 100, tid=BACKWARD),
        call("cudaLaunchKernel", 10, 20, 1),
        call("cudaLaunchKernel", 10, 20, 2, tid=BACKWARD),
        kernel("mul", 30, 40, 1),
        kernel("mul", 40, 50, 2),
    )
    assert _owners(t) == ["aten::mul", "MulBackward0"]


def test_an_annotation_owns_nothing_and_does_not_hide_the_operator_around_it(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::all", 0, 100),
        op("nccl:all_reduce", 10, 90, category="user_annotation"),
        call("cudaLaunchKernel", 20, 30, 1),
        kernel("k", 50, 80, 1),
    )
    assert _owners(t) == ["aten::all"]
    assert _column(t.ops, "kind") == ["op", "annotation"]


def test_whole_microseconds_make_ends_meet_and_the_innermost_is_still_found(tmp_path: Path) -> None:
    t = old_timeline(
        tmp_path,
        op("aten::to", 5, 8, args={"Ev Idx": 1}),
        op("aten::copy_", 5, 8, args={"Ev Idx": 3}),
        op("aten::_to_copy", 5, 8, args={"Ev Idx": 2}),
        call("cudaLaunchKernel", 8, 8, 1),
        kernel("k", 9, 9, 1),
    )
    assert _column(t.ops, "name") == ["aten::to", "aten::_to_copy", "aten::copy_"]
    assert _column(t.ops, "parent_row") == [None, 0, 1]
    assert _owners(t) == ["aten::copy_"]
    assert t.meta.time_resolution_ns == 1000


def test_an_external_id_whose_operator_does_not_enclose_the_launch_is_refused(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 10, args={"External id": 5}),
        call("cudaLaunchKernel", 20, 30, 1),
        kernel("k", 50, 80, 1, **{"External id": 5}),
    )
    assert _owners(t) == [None]
    assert _column(t.activities, "unowned_reason") == ["outside_any_op"]
    assert _column(t.activities, "external_id") == [5]  # kept as a fact


def test_an_external_id_never_overrules_nesting(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::outer", 0, 100, args={"External id": 5}),
        op("aten::inner", 10, 90, args={"External id": 6}),
        call("cudaLaunchKernel", 20, 30, 1),
        kernel("k", 50, 80, 1, **{"External id": 5}),
    )
    assert _owners(t) == ["aten::inner"]


def test_an_external_id_of_another_threads_operator_is_refused_where_the_launching_thread_has_operators(
    tmp_path: Path,
) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 100, args={"External id": 5}),
        op("aten::early", 0, 5, tid=BACKWARD),
        call("cudaLaunchKernel", 20, 30, 1, tid=BACKWARD),
        kernel("k", 50, 80, 1, **{"External id": 5}),
    )
    assert _owners(t) == [None]


def test_an_external_id_is_believed_where_thread_numbers_cannot_be_compared_and_time_agrees(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 100, args={"External id": 5}),
        call("cudaLaunchKernel", 20, 30, 1, tid=-549452224, **{"External id": 5}),
        kernel("k", 50, 80, 1),
    )
    assert _owners(t) == ["aten::mul"]
    assert _column(t.activities, "owner_evidence") == ["external_id"]


def test_an_external_id_that_repeats_the_correlation_is_refused(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 100, args={"External id": 5}),
        call("cudaLaunchKernel", 20, 30, 5, tid=-549452224),
        kernel("k", 50, 80, 5, **{"External id": 5}),
    )
    assert _owners(t) == [None]


# Launches


def test_a_graph_replay_is_one_launch_for_all_its_kernels_and_names_no_owner(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("Torch-Compiled Region", 0, 100),
        call("cudaGraphLaunch", 20, 30, 9),
        *(kernel("triton", 50 + 10 * i, 58 + 10 * i, 9) for i in range(3)),
    )
    assert _column(t.activities, "launch_row") == [0, 0, 0]
    assert _owners(t) == [None] * 3
    assert _column(t.activities, "unowned_reason") == ["graph_replay"] * 3
    assert _column(t.api, "op_row") == [0]  # what stands around the replay can still be had
    assert t.meta.ingest.unowned == {"graph_replay": 3}


def test_a_driver_call_launches_as_a_runtime_call_does(tmp_path: Path) -> None:
    t = timeline(tmp_path, op("triton_", 0, 9), call("cuLaunchKernelEx", 1, 2, 4), kernel("triton_", 5, 9, 4))
    assert _launches(t) == ["cuLaunchKernelEx"]
    assert _column(t.api, "kind") == ["driver"]
    assert _owners(t) == ["triton_"]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("xpu_runtime", "runtime"),
        ("xpu_driver", "driver"),
        ("mtia_runtime", "runtime"),
        ("privateuse1_runtime", "runtime"),
        ("privateuse1_driver", "driver"),
    ],
)
def test_the_calls_of_other_back_ends_launch_as_cudas_do(category: str, kind: str, tmp_path: Path) -> None:
    launch = event(category, "launch", 1, 2, correlation=4)
    t = timeline(tmp_path, op("aten::mul", 0, 9), launch, kernel("mul", 5, 9, 4))
    assert (_column(t.api, "kind"), _owners(t)) == ([kind], ["aten::mul"])


@pytest.mark.parametrize("swapped", [False, True])
def test_of_calls_that_share_a_correlation_the_innermost_that_launches_is_taken(swapped: bool, tmp_path: Path) -> None:
    calls = [call("cudaLaunchKernel", 0, 30, 4), call("cuLaunchKernel", 5, 25, 4), call("cudaGetLastError", 10, 11, 4)]
    t = timeline(tmp_path, *(reversed(calls) if swapped else calls), kernel("k", 50, 60, 4))
    assert _launches(t) == ["cuLaunchKernel"]


def test_a_correlation_of_zero_or_none_joins_nothing(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        call("cudaLaunchKernel", 0, 1, 0),
        call("cudaLaunchKernel", 2, 3, 5),
        kernel("k", 50, 60, 0),
        kernel("k", 60, 70, None),
    )
    assert _launches(t) == [None, None]
    assert _column(t.activities, "correlation") == [None, None]
    assert _column(t.activities, "unowned_reason") == ["no_host_events", "no_host_events"]


def test_a_synchronisation_that_shares_a_correlation_launches_nothing(tmp_path: Path) -> None:
    sync = event("cuda_sync", "cudaStreamSynchronize", 5, 9, tid=7)
    sync["args"] = {"cuda_sync_kind": "Stream Sync", "stream": 7, "device": 0, "correlation": 4}
    context = event("cuda_sync", "x", 6, 9, tid=7)
    context["args"] = {"cuda_sync_kind": "Context Sync", "stream": -1, "device": 0, "correlation": 4}
    t = timeline(
        tmp_path, op("aten::item", 0, 20), call("cudaLaunchKernel", 3, 4, 4), sync, context, kernel("k", 5, 9, 4)
    )
    assert _launches(t) == ["cudaLaunchKernel"]
    assert _column(t.api, "kind") == ["runtime", "sync", "sync"]
    assert _column(t.api, "name") == ["cudaLaunchKernel", "Stream Sync", "Context Sync"]
    assert _column(t.api, "stream") == [None, 7, None]
    assert _column(t.api, "tid") == [11, None, None]
    assert _column(t.api, "op_row") == [0, None, None]


def test_a_synchronisation_has_no_thread_so_it_lies_in_no_operator_and_no_frame(tmp_path: Path) -> None:
    elsewhere: dict[str, Any] = {"tid": BACKWARD}
    sync = event("cuda_sync", "Stream Sync", 3, 5, args={"cuda_sync_kind": "Stream Sync", "stream": 7})
    t = timeline(
        tmp_path,
        op("aten::mul", 0, 9, **elsewhere),
        frame("a.py(1): f", 0, 9, **elsewhere),
        call("cuda", 1, 2, 4),
        sync,
    )
    assert [(r["kind"], r["op_row"], r["stack_row"]) for r in t.api.to_pylist()] == [
        ("runtime", None, None),
        ("sync", None, None),
    ]


def test_every_activity_without_an_owner_says_why(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("aten::mul", 100, 200),
        call("cudaLaunchKernel", 110, 120, 50),
        call("cudaLaunchKernel", 210, 220, 51),
        call("cudaGraphLaunch", 230, 240, 52),
        kernel("older correlation", 130, 140, 49),
        kernel("before the first call", 10, 20, 99),
        kernel("owned", 150, 160, 50),
        kernel("outside", 250, 260, 51),
        kernel("replayed", 260, 270, 52),
        kernel("call not recorded", 270, 280, 60),
    )
    assert dict(zip(_column(t.activities, "name"), _column(t.activities, "unowned_reason"), strict=True)) == {
        "older correlation": "before_window",
        "before the first call": "before_window",
        "owned": None,
        "outside": "outside_any_op",
        "replayed": "graph_replay",
        "call not recorded": "no_launch_call",
    }
    assert t.meta.ingest.unowned == {"before_window": 2, "graph_replay": 1, "no_launch_call": 1, "outside_any_op": 1}
    assert any(
        "2 activities without a known operator: launched before recording began" in text
        for text in t.meta.ingest.warnings
    )


def test_a_trace_without_host_events_keeps_its_activities(tmp_path: Path) -> None:
    t = timeline(tmp_path, kernel("k", 0, 5, 1))
    assert _column(t.activities, "unowned_reason") == ["no_host_events"]
    assert any("No operators were recorded" in text for text in t.meta.ingest.warnings)


def test_a_trace_without_anything_is_an_empty_timeline(tmp_path: Path) -> None:
    t = timeline(tmp_path)
    assert (t.activities.num_rows, t.ops.num_rows, t.api.num_rows, t.stacks.num_rows) == (0, 0, 0, 0)


def test_kernels_that_overlap_on_one_stream_are_all_kept_in_order_of_start(tmp_path: Path) -> None:
    t = timeline(
        tmp_path, kernel("second", 50, 60, 2), kernel("first", 0, 55, 1), kernel("other stream", 50, 51, 3, stream=3)
    )
    assert _column(t.activities, "name") == ["first", "other stream", "second"]
    assert _column(t.activities, "start_ns") == [BASE_NS, BASE_NS + 50, BASE_NS + 50]


def test_a_kernel_that_starts_before_its_launch_is_kept_and_said(tmp_path: Path) -> None:
    t = timeline(tmp_path, op("aten::mul", 0, 99), call("cudaLaunchKernel", 20, 30, 1), kernel("k", 10, 40, 1))
    assert _owners(t) == ["aten::mul"]
    assert any("1 activity began before being launched" in text for text in t.meta.ingest.warnings)


# Stacks and modules


def test_stacks_hold_each_call_path_once_with_file_line_function_and_module(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        frame("train.py(3): <module>", 0, 1000),
        frame("nn.Module: Model_0", 10, 400),
        frame("nn.Module: Linear_1", 20, 300),
        frame("torch/nn/modules/linear.py(130): forward", 30, 290),
        frame("<built-in method linear of type object at 0x7f>", 40, 280),
        frame("nn.Module: Model_0", 500, 900),
        frame("train.py(9): unused", 950, 960),
        op("aten::linear", 50, 200),
        call("cudaLaunchKernel", 60, 70, 1),
        op("aten::add", 600, 700),
        op("aten::elsewhere", 600, 700, tid=BACKWARD),
    )
    stacks = t.stacks.to_pylist()
    assert [row["frame"] for row in stacks] == [
        "train.py(3): <module>",
        "nn.Module: Model_0",
        "nn.Module: Linear_1",
        "torch/nn/modules/linear.py(130): forward",
        "<built-in method linear of type object at 0x7f>",
    ]
    assert [row["parent_row"] for row in stacks] == [None, 0, 1, 2, 3]
    assert [row["module"] for row in stacks] == [None, "Model_0", *["Model_0.Linear_1"] * 3]
    assert (stacks[3]["file"], stacks[3]["line"], stacks[3]["function"]) == (
        "torch/nn/modules/linear.py",
        130,
        "forward",
    )
    assert (stacks[4]["file"], stacks[4]["line"], stacks[4]["function"]) == (None, None, None)
    names = _column(t.ops, "name")
    assert dict(zip(names, _column(t.ops, "stack_row"), strict=True)) == {
        "aten::linear": 4,
        "aten::add": 1,
        "aten::elsewhere": None,
    }
    assert dict(zip(names, _column(t.ops, "module"), strict=True)) == {
        "aten::linear": "Model_0.Linear_1",
        "aten::add": "Model_0",
        "aten::elsewhere": None,
    }
    assert _column(t.api, "stack_row") == [4]
    assert t.meta.with_stack is True


def test_the_call_stack_text_of_old_traces_becomes_the_same_table(tmp_path: Path) -> None:
    stack = "torch/nn/modules/linear.py(96): forward;train.py(9): step;train.py(3): <module>"
    t = old_timeline(
        tmp_path,
        op("aten::linear", 0, 90, category="Operator", args={"Call stack": stack}),
        op("aten::add", 100, 190, category="Operator", args={"Call stack": stack.partition(";")[2]}),
        op("aten::none", 200, 290, category="Operator"),
        event("Runtime", "cudaLaunchKernel", 10, 20, correlation=1),
        event("Kernel", "gemm", 30, 40, tid=7, device=0, stream=7, correlation=1),
    )
    assert _column(t.stacks, "frame") == ["train.py(3): <module>", "train.py(9): step", stack.partition(";")[0]]
    assert _column(t.stacks, "parent_row") == [None, 0, 1]
    assert _column(t.ops, "stack_row") == [2, 1, None]
    assert _column(t.api, "stack_row") == [2]
    assert t.meta.producer == "PyTorch 1.8 or later"


# Columns


@pytest.mark.parametrize(
    ("name", "kind", "source", "target"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "HtoD", "pageable", "device"),
        ("Memcpy DtoH (Device -> Pinned)", "DtoH", "device", "pinned"),
        ("Memcpy DtoH (Device -> Host)", "DtoH", "device", "host"),
        ("Memcpy DtoD (Device -> Device)", "DtoD", "device", "device"),
        ("Memcpy PtoP (Device -> Device)", "PtoP", "device", "device"),
        ("Memcpy HtoA (Managed -> Array)", "HtoA", "managed", "array"),
        ("memcpy htod (unknown -> device)", "HtoD", None, "device"),
        ("Memcpy", None, None, None),
    ],
)
def test_a_copy_says_its_direction_and_the_kinds_of_memory(
    name: str, kind: str | None, source: str | None, target: str | None, tmp_path: Path
) -> None:
    copied = kernel("Memcpy", 0, 5, 1, bytes=64) | {"name": name}
    (row,) = timeline(tmp_path, copied).activities.to_pylist()
    assert (row["kind"], row["copy_kind"], row["source_memory"], row["target_memory"]) == (
        "memcpy",
        kind,
        source,
        target,
    )
    assert row["bytes"] == 64


def test_a_kernel_or_a_set_has_no_direction(tmp_path: Path) -> None:
    t = timeline(tmp_path, kernel("copy HtoD (Pageable -> Device)", 0, 5, 1), kernel("Memset (Device)", 6, 9, 2))
    assert _column(t.activities, "kind") == ["kernel", "memset"]
    assert _column(t.activities, "copy_kind") == [None, None]
    assert _column(t.activities, "source_memory") == [None, None]


def test_what_a_kernels_arguments_say_becomes_columns_and_what_they_do_not_is_null(tmp_path: Path) -> None:
    full: dict[str, Any] = {
        "grid": [8, 2, 1],
        "block": [128, 1, 1],
        "registers per thread": 32,
        "shared memory": 1024,
        "est. achieved occupancy %": 75,
        "context": 1,
        "graph id": 3,
        "graph node id": 4,
        "Collective name": "allreduce",
        "Group size": 8,
    }
    first, second = timeline(tmp_path, kernel("a", 0, 1, 1, **full), kernel("b", 2, 3, 2)).activities.to_pylist()
    assert (first["grid"], first["block"], first["registers_per_thread"]) == ([8, 2, 1], [128, 1, 1], 32)
    assert (first["shared_memory_bytes"], first["occupancy_percent"], first["context"]) == (1024, 75.0, 1)
    assert (first["graph_id"], first["graph_node_id"], first["collective"], first["group_size"]) == (
        3,
        4,
        "allreduce",
        8,
    )
    absent = "grid block registers_per_thread shared_memory_bytes occupancy_percent context bytes graph_id collective"
    assert [second[name] for name in absent.split()] == [None] * 9


def test_two_layouts_of_one_trace_give_the_same_timeline(tmp_path: Path) -> None:
    arguments = {"Input Dims": [[4, 16], [[2], [3]], []], "Input type": ["float", "TensorList", "Scalar"]}
    arguments |= {"Concrete Inputs": ["", "", "[1, 2]"], "Input Strides": [[16, 1], [[1], [1]], []]}
    events = [
        op("aten::cat", 0, 9, args=arguments),
        call("cudaLaunchKernel", 1, 2, 1),
        kernel("k", 5, 9, 1, grid=[1, 2, 3]),
    ]
    compact, indented = (timeline(tmp_path, *events, indent=indent) for indent in (None, 4))
    assert compact.ops.to_pylist() == indented.ops.to_pylist()
    assert compact.activities.to_pylist() == indented.activities.to_pylist()
    (row,) = compact.ops.to_pylist()
    assert row["input_shapes"] == "[[4,16],[[2],[3]],[]]"
    assert row["input_dtypes"] == '["float","TensorList","Scalar"]'
    assert row["concrete_inputs"] == '["","","[1, 2]"]'
    assert row["input_strides"] == "[[16,1],[[1],[1]],[]]"


def test_numbers_that_stand_for_none_are_null(tmp_path: Path) -> None:
    arguments = {"Record function id": 0, "External id": 0, "Sequence number": 0, "Fwd thread id": 0}
    (row,) = timeline(tmp_path, op("aten::mul", 0, 9, args=arguments)).ops.to_pylist()
    assert (row["record_function_id"], row["external_id"]) == (None, None)
    assert (row["sequence_number"], row["forward_thread_id"]) == (0, 0)  # 0 is a number here


def test_the_kernel_backend_is_text_without_its_json_quotes(tmp_path: Path) -> None:
    t = timeline(tmp_path, op("triton_poi_0", 0, 9, kernel_backend="triton"), op("aten::mul", 10, 19))
    assert _column(t.ops, "kernel_backend") == ["triton", None]


def test_text_columns_hold_each_text_once_and_none_that_is_not_used(tmp_path: Path) -> None:
    t = timeline(tmp_path, *(op("aten::mul", 10 * i, 10 * i + 5) for i in range(9)), kernel("k", 0, 1, 1))
    assert t.ops.column("name").chunk(0).dictionary.to_pylist() == ["aten::mul"]


# Steps


def test_steps_are_the_profilers_marks_and_activities_belong_to_the_step_that_launched_them(tmp_path: Path) -> None:
    t = timeline(
        tmp_path,
        op("ProfilerStep#3", 100, 200, category="user_annotation"),
        op("ProfilerStep#4", 200, 300, category="user_annotation"),
        event("gpu_user_annotation", "ProfilerStep#3", 150, 999, tid=7),
        call("cudaLaunchKernel", 50, 60, 1),
        call("cudaLaunchKernel", 150, 160, 2),
        call("cudaLaunchKernel", 200, 210, 3),
        *(kernel("k", 400 + i, 401 + i, i) for i in (1, 2, 3)),
        kernel("launched before", 250, 260, None),
    )
    assert _column(t.steps, "number") == [3, 4]
    assert _column(t.steps, "name") == ["ProfilerStep#3", "ProfilerStep#4"]
    assert _column(t.steps, "start_ns") == [BASE_NS + 100, BASE_NS + 200]
    assert _column(t.activities, "step_row") == [None, None, 0, 1]


def test_torchs_own_marks_are_annotations_even_where_old_exports_call_them_operators(tmp_path: Path) -> None:
    t = old_timeline(
        tmp_path,
        op("ProfilerStep#1", 0, 100, category="Operator"),
        op("Optimizer.step#SGD.step", 0, 90, category="Operator"),
        op("aten::add_", 10, 80, category="Operator"),
    )
    assert _column(t.ops, "kind") == ["annotation", "annotation", "op"]
    assert _column(t.steps, "number") == [1]


# Header


def test_nothing_of_the_header_is_copied_but_what_is_listed(tmp_path: Path) -> None:
    secret = "hunter2"  # noqa: S105
    t = timeline(
        tmp_path,
        kernel("k", 0, 1, 1),
        host_name=secret,
        username=secret,
        environment={"TOKEN": secret},
        traceName=f"/home/{secret}/trace.json",
        cupti_version=secret + " and spaces",
        cuda_runtime_version=12060,
        deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132, "uuid": secret, "totalGlobalMem": secret}],
        distributedInfo={"rank": 3, "world_size": 8, "backend": secret, "nccl_version": "2.20.5"},
    )
    assert secret not in repr(t.meta)
    assert t.meta.versions == {"cuda_runtime_version": "12060", "nccl_version": "2.20.5"}
    assert (t.meta.rank, t.meta.world_size) == (3, 8)
    (device,) = t.meta.devices
    assert (device.name, device.sm_count, device.memory_bytes) == ("NVIDIA H200", 132, None)


def test_devices_are_read_under_their_older_names_too(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "", "major": 7, "minor": 0, "numSms": 80}]
    (device,) = timeline(tmp_path, kernel("k", 0, 1, 1), computeProperties=properties).meta.devices
    assert (device.ordinal, device.name, device.compute_capability, device.sm_count) == (0, None, "7.0", 80)


@pytest.mark.parametrize(
    ("described", "recorded", "expected"),
    [
        ({0: "MI300X"}, [9], {9: "MI300X"}),
        ({0: "A", 1: "B"}, [4, 2], {4: "A", 2: "B"}),  # in order of appearance
        ({0: "A", 1: "A"}, [2], {2: "A"}),
        ({0: "A", 1: "B"}, [2], {2: None}),  # which of the two it is cannot be told
        ({0: "A", 1: "B"}, [1], {0: "A", 1: "B"}),
        ({}, [0], {0: None}),
    ],
)
def test_a_device_that_is_numbered_otherwise_is_described_only_where_that_is_certain(
    described: dict[int, str], recorded: list[int], expected: dict[int, str | None], tmp_path: Path
) -> None:
    properties = [{"id": i, "name": name} for i, name in described.items()]
    events = [kernel("k", i, i + 1, None, device=device) for i, device in enumerate(recorded)]
    devices = timeline(tmp_path, *events, deviceProperties=properties).meta.devices
    assert {device.ordinal: device.name for device in devices} == expected


@pytest.mark.parametrize(
    ("file_name", "rank"),
    [("rank-3.json", 3), ("job_rank12_trace.json", 12), ("worker3_step.json", None), ("frank1.json", None)],
)
def test_the_rank_is_read_from_the_file_name_only_where_it_says_rank(
    file_name: str, rank: int | None, tmp_path: Path
) -> None:
    assert timeline(tmp_path, file_name=file_name).meta.rank == rank


def test_options_are_unknown_where_an_old_trace_does_not_say(tmp_path: Path) -> None:
    old = old_timeline(tmp_path, op("aten::mul", 0, 9, category="Operator")).meta
    assert (old.record_shapes, old.with_stack, old.profile_memory) == (None, None, None)
    new = timeline(tmp_path, op("aten::mul", 0, 9), record_shapes=1).meta
    assert (new.record_shapes, new.with_stack, new.profile_memory) == (True, False, False)


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ({}, ["No shapes, no stacks, so no source line: profile with record_shapes=True, with_stack=True."]),
        (
            {"record_shapes": 1},
            ["Stacks were not recorded, so no source line can be named: profile with with_stack=True."],
        ),
        ({"record_shapes": 1, "with_stack": 1}, []),
    ],
)
def test_what_was_not_switched_on_is_one_note(recorded: dict[str, Any], said: list[str], tmp_path: Path) -> None:
    warnings = timeline(tmp_path, op("aten::mul", 0, 9), **recorded).meta.ingest.warnings
    assert [text for text in warnings if "profile with" in text] == said


def test_the_producer_is_the_oldest_torch_that_writes_what_is_there(tmp_path: Path) -> None:
    assert timeline(tmp_path, op("aten::mul", 0, 9)).meta.producer == "PyTorch 2.4 or later"
    assert timeline(tmp_path, op("aten::mul", 0, 9), trace_id="A1").meta.producer == "PyTorch 2.6 or later"
    assert old_timeline(tmp_path, op("aten::mul", 0, 9)).meta.producer == "PyTorch 1.10 or later"
    assert old_timeline(tmp_path, op("aten::mul", 0, 9, args={"Ev Idx": 1})).meta.producer == "PyTorch 2.0 or later"


def test_events_of_unknown_categories_are_counted_and_said(tmp_path: Path) -> None:
    t = timeline(tmp_path, kernel("k", 0, 1, 1), event("quantum_op", "entangle", 0, 1))
    assert t.meta.ingest.events["quantum_op"] == 1
    assert any("quantum_op (1)" in text for text in t.meta.ingest.warnings)


# Whatever is in the file

_KEYS = st.sampled_from(["deviceProperties", "distributedInfo", "record_shapes", "with_stack", "cupti_version"])
_NUMBERS = (
    st.integers(-(2**70), 2**70) | st.integers(-2, 40) | st.sampled_from(["inf", "N/A", "", None, 1.5, True, [1]])
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(
        [argument.key for table in TABLES.values() for argument in table.arguments] + ["Call stack", "anything"]
    ),
    _NUMBERS | st.sampled_from([[1, 2, 3], [1, 2], [2**40, 1, 1], [[4, 4], []], "a;b", "\ud800", {"a": 1}]),
    max_size=5,
)
_EVENTS = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(sorted(CATEGORIES)),
        "name": st.sampled_from(
            ["k", "ProfilerStep#1", "Memcpy HtoD (Pageable -> Device)", "cudaGraphLaunch", "", None]
        ),
        "ts": st.integers(0, 20) | st.integers(-(2**70), 2**70),
        "dur": st.integers(0, 20) | st.integers(-(2**70), 2**70),
        "pid": st.integers(0, 1) | _NUMBERS,
        "tid": st.integers(0, 1) | _NUMBERS,
        "args": _ARGUMENTS,
    }
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(_EVENTS, max_size=12), base=st.sampled_from([0, BASE_NS]), header=st.dictionaries(_KEYS, _NUMBERS)
)
def test_whatever_the_events_say_each_activity_has_an_owner_or_a_reason(
    events: list[dict[str, Any]], base: int, header: dict[str, Any], tmp_path: Path
) -> None:
    t = timeline(tmp_path, *events, **{"baseTimeNanoseconds": base, **header})
    report = t.meta.ingest
    gpu = [e for e in events if CATEGORIES[e["cat"]][0] == "gpu"]
    assert t.activities.num_rows <= len(gpu)
    assert t.activities.num_rows == len(gpu) or report.dropped
    for row in t.activities.to_pylist():
        assert (row["op_row"] is None) == (row["unowned_reason"] is not None)
    assert min(_column(t.activities, "dur_ns"), default=0) >= 0


def test_a_gpus_name_is_text_that_any_file_can_hold(tmp_path: Path) -> None:
    found = timeline(tmp_path, kernel("k", 0, 10, 1), deviceProperties=[{"id": 0, "name": "\ud800H200"}])
    assert [device.name for device in found.meta.devices] == ["?H200"]


@pytest.mark.parametrize(("text", "kept"), [("6.2.41133-dd7f95766", True), (130001, True), ("hf_aBcDeF0123", False)])
def test_a_version_is_kept_where_it_looks_like_one(tmp_path: Path, text: object, kept: bool) -> None:
    found = timeline(tmp_path, kernel("k", 0, 10, 1), hip_driver_version=text)
    assert found.meta.versions == ({"hip_driver_version": str(text)} if kept else {})


def test_a_launch_call_keeps_the_name_of_its_kernel_where_that_is_recorded(tmp_path: Path) -> None:
    t = timeline(tmp_path, call("hipLaunchKernel", 0, 9, 1, kernel="gemm"), call("cudaLaunchKernel", 10, 19, 2))
    assert _column(t.api, "kernel") == ["gemm", None]
