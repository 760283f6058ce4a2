"""Idle time: what is left when every activity of a device is taken out of its span, and why it was idle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.timelines import Trace
from tracemine.rows import Categories, Flags, Numbers, Rows
from tracemine.rows.gaps import gap_rows
from tracemine.rows.host import Intervals, last_of
from tracemine.rows.idle_causes import CAUSES

spans = st.tuples(st.integers(0, 60), st.integers(0, 12), st.integers(0, 1), st.integers(0, 2))


def column(rows: Rows, name: str) -> list[Any]:
    """A column as Python values, null as None."""
    found = rows.columns[name]
    if isinstance(found, Categories):
        return [None if code < 0 else found.values[code] for code in found.codes.tolist()]
    if isinstance(found, Flags):
        flags: list[bool] = found.values.tolist()
        return flags
    assert isinstance(found, Numbers)
    known = [True] * len(found.values) if found.valid is None else found.valid.tolist()
    return [value if valid else None for value, valid in zip(found.values.tolist(), known, strict=True)]


def causes(trace: Trace) -> list[str]:
    return column(gap_rows(trace.timeline()), "cause")


# --- the union -------------------------------------------------------------------------------------------------------


def idle_by_counting(activities: list[tuple[int, int, int, int]], device: int) -> set[int]:
    """Each nanosecond between a device's first begin and last end in which nothing ran, counted one by one."""
    mine = [(start, start + dur) for start, dur, on, _ in activities if on == device]
    if not mine:
        return set()
    whole = set(range(min(start for start, _ in mine), max(end for _, end in mine)))
    return whole - {moment for start, end in mine for moment in range(start, end)}


@given(st.lists(spans, max_size=25))
@settings(max_examples=200)
def test_gaps_are_the_nanoseconds_in_which_no_stream_of_the_device_ran(
    activities: list[tuple[int, int, int, int]],
) -> None:
    trace = Trace()
    for start, dur, device, stream in activities:
        trace.kernel("k", start, dur, device=device, stream=stream)
    rows = gap_rows(trace.timeline())
    starts, durs, devices = (column(rows, name) for name in ("start_ns", "dur_ns", "device"))
    assert all(dur > 0 for dur in durs)
    for device in (0, 1):
        mine = [(s, d) for s, d, on in zip(starts, durs, devices, strict=True) if on == device]
        counted = {moment for start, dur in mine for moment in range(start, start + dur)}
        assert counted == idle_by_counting(activities, device)
        assert sum(dur for _, dur in mine) == len(counted), "two gaps overlap"


@given(st.lists(spans, max_size=25))
@settings(max_examples=100)
def test_a_gap_lies_between_the_activity_that_ended_last_and_the_next_to_start(
    activities: list[tuple[int, int, int, int]],
) -> None:
    trace = Trace()
    for start, dur, device, stream in activities:
        trace.kernel("k", start, dur, device=device, stream=stream)
    timeline = trace.timeline()
    rows = gap_rows(timeline)
    table = timeline.activities.to_pylist()
    for begin, dur, previous, following in zip(
        *(column(rows, name) for name in ("start_ns", "dur_ns", "previous_row", "next_row")), strict=True
    ):
        assert table[previous]["start_ns"] + table[previous]["dur_ns"] == begin
        assert table[following]["start_ns"] == begin + dur
        assert table[previous]["device"] == table[following]["device"]


def test_copies_and_collectives_on_other_streams_are_not_idle_time() -> None:
    trace = Trace()
    trace.kernel("a", 0, 10)
    trace.copy("HtoD", 10, 40, 4096, stream=20)
    trace.kernel("ncclAllReduce", 45, 30, stream=30, collective="allreduce")
    trace.kernel("b", 80, 10)
    assert column(gap_rows(trace.timeline()), "dur_ns") == [5]


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 30), st.integers(0, 1), st.integers(0, 2)),
        min_size=1,
        max_size=30,
    )
)
def test_each_gap_knows_how_long_its_device_was_busy_before_it(activities: list[tuple[int, int, int, int]]) -> None:
    trace = Trace()
    for start, dur, device, stream in activities:
        trace.kernel("k", start, dur, device=device, stream=stream)
    rows = gap_rows(trace.timeline())
    gaps = list(zip(*(column(rows, name) for name in ("device", "start_ns", "dur_ns", "busy_before_ns")), strict=True))
    for device, begin, _, busy in gaps:
        ends = [b + length for d, b, length, _ in gaps if d == device and b < begin]
        first = min(start for start, _, d, _ in activities if d == device)
        assert busy == begin - max([first, *ends])


def test_devices_do_not_fill_each_others_gaps() -> None:
    trace = Trace()
    trace.kernel("a", 0, 10, device=0)
    trace.kernel("b", 10, 80, device=1)
    trace.kernel("c", 90, 10, device=0)
    rows = gap_rows(trace.timeline())
    assert column(rows, "dur_ns") == [80]
    assert column(rows, "device") == [0]


# --- causes ----------------------------------------------------------------------------------------------------------


def test_work_queued_before_the_device_went_idle_waited_for_the_launch_latency_only() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 1600, 500, launch=(960, 50))
    assert causes(trace) == ["launch_latency"]


def test_a_launch_made_after_the_device_went_idle_is_the_hosts() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 9000, 500, launch=(8800, 50), op="aten::add")
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["host_bound"]
    assert column(rows, "op") == ["aten::add"]
    assert column(rows, "launch_late_ns") == [7300]


def test_a_launch_call_that_took_long_itself_is_the_hosts() -> None:
    trace = Trace()  # a kernel's first launch loads its module: the call begins early and ends late
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 90_000, 500, launch=(1200, 88_000))
    assert causes(trace) == ["host_bound"]


def test_a_host_that_waited_for_the_device_before_launching_is_a_synchronisation() -> None:
    trace = Trace()
    line = trace.frame("train.py(12): step")
    waits = trace.op("aten::_local_scalar_dense", 1000, 700)
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaStreamSynchronize", 1010, 600, op_row=waits, stack_row=line)
    trace.kernel("b", 2300, 500, launch=(2100, 50), op="aten::add")
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["synchronisation"]
    assert column(rows, "sync") == ["cudaStreamSynchronize"]
    assert column(rows, "op") == ["aten::_local_scalar_dense"]
    assert column(rows, "next_op") == ["aten::add"]
    assert column(rows, "source") == ["train.py:12 step"]
    assert column(rows, "blocked_ns") == [600]


def test_a_synchronisation_that_found_the_device_idle_drained_nothing() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaStreamSynchronize", 2000, 10)
    trace.kernel("b", 4000, 500, launch=(3800, 50))
    assert causes(trace) == ["host_bound"]


def test_a_synchronisation_with_a_launch_after_it_is_not_the_cause_of_a_later_gap() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaDeviceSynchronize", 1010, 600)
    trace.kernel("b", 1650, 500, launch=(1620, 20))
    trace.kernel("c", 9000, 500, launch=(8800, 50))
    assert causes(trace) == ["synchronisation", "host_bound"]


def test_a_host_that_waited_for_a_moment_and_launched_long_after_was_behind_without_the_wait() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaStreamSynchronize", 1450, 70)
    trace.kernel("b", 9000, 500, launch=(8800, 50))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["host_bound"]
    assert (column(rows, "sync"), column(rows, "blocked_ns")) == (["cudaStreamSynchronize"], [70])
    assert column(rows, "sync_row") == [None]


def test_blocking_calls_one_after_another_block_together() -> None:
    trace = Trace()  # a pageable copy blocks while it is staged, and the synchronisation after it only for the rest
    trace.kernel("a", 0, 50, launch=(-100, 50))
    trace.copy("HtoD", 1000, 500, 4096, pageable=True, launch=(100, 1350))
    trace.call("cudaStreamSynchronize", 1460, 60)
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["host_bound", "synchronisation"]
    assert column(rows, "blocked_ns") == [None, 1410]


def test_another_threads_synchronisation_is_not_the_cause() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaEventSynchronize", 1010, 600, tid=99)
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    assert causes(trace) == ["host_bound"]


def test_the_forward_threads_synchronisation_delays_the_backward_threads_first_launch() -> None:
    trace = Trace()
    trace.kernel("loss", 1000, 500, launch=(900, 50), tid=1)
    trace.call("cudaStreamSynchronize", 1010, 600, tid=1)
    trace.kernel("grad", 2300, 500, launch=(2100, 50), tid=2)
    assert causes(trace) == ["synchronisation"]


def test_a_copy_to_pageable_memory_blocks_the_host_though_its_call_says_async() -> None:
    trace = Trace()
    trace.copy("DtoH", 1000, 500, 4, pageable=True, launch=(900, 700), op="aten::copy_")
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["synchronisation"]
    assert column(rows, "sync") == ["cudaMemcpyAsync"]


def test_an_asynchronous_copy_to_pinned_memory_blocks_nobody() -> None:
    trace = Trace()
    trace.copy("DtoH", 1000, 500, 4, launch=(900, 700))
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    assert causes(trace) == ["host_bound"]


def test_a_recorded_sync_counts_where_no_host_call_was_recorded() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("Stream Sync", 1010, 600, tid=None, kind="sync")
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    assert causes(trace) == ["synchronisation"]


def test_a_stream_that_waits_for_an_event_does_not_block_the_host() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("Stream Wait Event", 1010, 600, tid=None, kind="sync")
    trace.kernel("b", 2300, 500, launch=(2100, 50))
    assert causes(trace) == ["host_bound"]


def test_the_profilers_own_synchronisation_after_the_last_activity_makes_no_gap() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaDeviceSynchronize", 1010, 600)
    assert causes(trace) == []


def test_gaps_inside_one_graph_replay_are_the_graphs_own() -> None:
    trace = Trace()
    replay = trace.call("cudaGraphLaunch", 100, 50)
    trace.kernel("before", 0, 50, launch=(0, 5))
    for start in (200, 300, 400):
        trace.kernel("k", start, 50, launch=replay)
    assert causes(trace) == ["graph_launch", "graph_replay", "graph_replay"]


def test_a_gap_before_an_activity_whose_launch_is_not_recorded_has_no_known_cause() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500)
    trace.kernel("b", 4000, 500)
    assert causes(trace) == ["unknown"]


def test_gaps_within_the_clocks_resolution_are_not_explained() -> None:
    trace = Trace(resolution=1000)
    trace.kernel("a", 1000, 1000, launch=(0, 500))
    trace.kernel("b", 3000, 1000, launch=(2000, 500))
    trace.kernel("c", 9000, 1000, launch=(8000, 500))
    assert causes(trace) == ["unknown", "host_bound"]


def test_work_that_stood_launched_for_long_waited_for_something_that_is_not_recorded() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("behind an event", 900_000, 500, launch=(960, 50))
    trace.kernel("behind a module", 463_000_000, 500, launch=(938_000, 5_000))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["unknown", "unknown"]
    assert column(rows, "sync_row") == [None, None]


def test_a_host_that_came_late_is_not_excused_by_a_slow_launch() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 300_000, 500, launch=(200_000, 5_000))
    assert causes(trace) == ["host_bound"]


def test_a_gap_within_the_next_step_belongs_to_it_though_the_device_was_still_at_the_last() -> None:
    trace = Trace()  # a batch is read at the step's begin, while the device works off what the last step queued
    first, second = trace.step(0, 1000), trace.step(1000, 90_000)
    trace.kernel("a", 900, 600, launch=(800, 50), step_row=first)
    trace.kernel("b", 80_000, 50, launch=(79_000, 50), step_row=second)
    rows = gap_rows(trace.timeline())
    assert column(rows, "between_steps") == [False]
    assert column(rows, "step") == [1]


def test_a_gap_between_two_steps_belongs_to_neither() -> None:
    trace = Trace()
    first, second = trace.step(0, 1000), trace.step(1000, 1000)
    trace.kernel("a", 100, 50, step_row=first)
    trace.kernel("b", 200, 50, step_row=first)
    trace.kernel("c", 1200, 50, step_row=second)
    rows = gap_rows(trace.timeline())
    assert column(rows, "step") == [0, None]
    assert column(rows, "between_steps") == [False, True]
    assert column(rows, "segment") == [1, 0]
    assert column(rows, "within_steps_ns") == [None, 950]  # all of it: the second step begins where the first one ends


def test_a_device_whose_step_another_holds_up_has_nothing_of_the_step_that_is_left() -> None:
    trace = Trace()
    first, second = trace.step(0, 1000), trace.step(1000, 1000)
    trace.kernel("a", 100, 50, step_row=first, device=1)
    trace.kernel("b", 200, 800, step_row=first, device=0)
    trace.kernel("c", 1200, 50, step_row=second, device=1)
    rows = gap_rows(trace.timeline())
    assert column(rows, "within_steps_ns") == [200]


def test_a_gap_that_ends_in_no_step_has_nothing_of_one() -> None:
    trace = Trace()
    first = trace.step(0, 1000)
    trace.kernel("a", 100, 50, step_row=first)
    trace.kernel("b", 5_000, 50)
    rows = gap_rows(trace.timeline())
    assert (column(rows, "between_steps"), column(rows, "within_steps_ns")) == ([True], [0])


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 40), st.integers(1, 300), st.booleans()), max_size=15))
@settings(max_examples=100)
def test_every_gap_has_one_cause_and_names_the_calls_it_rests_on(kernels: list[tuple[int, int, int, bool]]) -> None:
    trace = Trace()
    for start, dur, ahead, recorded in kernels:
        trace.kernel("k", start + 400, dur, launch=(start + 400 - ahead, 5) if recorded else None)
        trace.call("cudaStreamSynchronize", start + 300, dur)
    timeline = trace.timeline()
    rows = gap_rows(timeline)
    api, table = timeline.api.to_pylist(), timeline.activities.to_pylist()
    for cause, launch, sync, following, begin in zip(
        *(column(rows, name) for name in ("cause", "launch_row", "sync_row", "next_row", "start_ns")), strict=True
    ):
        assert cause in CAUSES
        assert launch == table[following]["launch_row"]
        assert (sync is not None) == (cause in ("synchronisation", "after_wait"))
        if cause == "after_wait":
            assert api[sync]["start_ns"] + api[sync]["dur_ns"] <= api[launch]["start_ns"]
        if cause == "synchronisation":
            assert api[sync]["start_ns"] < begin <= api[sync]["start_ns"] + api[sync]["dur_ns"]
            assert api[sync]["start_ns"] + api[sync]["dur_ns"] <= api[launch]["start_ns"]
        if cause == "launch_latency":
            assert api[launch]["start_ns"] + api[launch]["dur_ns"] <= begin


def test_the_columns_all_have_as_many_rows_as_there_are_gaps() -> None:
    trace = Trace()
    trace.kernel("a", 0, 10)
    trace.kernel("b", 20, 10)
    rows = gap_rows(trace.timeline())
    for found in rows.columns.values():
        assert len(found.codes if isinstance(found, Categories) else found.values) == rows.count
    assert np.issubdtype(rows.columns["dur_ns"].values.dtype, np.int64)  # type: ignore[union-attr]


@given(
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-9, 9)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 5), st.integers(-10, 10)), max_size=12),
    st.booleans(),
)
def test_the_last_call_of_a_thread_before_a_moment_is_found_for_all_at_once(
    calls: list[tuple[int, int]], asked: list[tuple[int, int]], inclusive: bool
) -> None:
    thread, time = (np.array([each[i] for each in calls], np.int64) for i in (0, 1))
    wanted, until = (np.array([each[i] for each in asked], np.int64) for i in (0, 1))
    rows = np.arange(len(calls))[::2]  # of some calls only
    found = last_of(rows, thread, time, wanted, until, inclusive=inclusive)
    for row, (on, moment) in zip(found.tolist(), asked, strict=True):
        before = [
            at
            for i, (t, at) in enumerate(calls)
            if i % 2 == 0 and t == on and (at < moment or (at == moment and inclusive))
        ]
        assert (row < 0) == (not before)
        assert row < 0 or (thread[row] == on and time[row] == max(before) and row % 2 == 0)


# --- what the host did instead of launching ---------------------------------------------------------------------------


def one_late_gap(dur: int = 300_000) -> Trace:
    """The device is idle from 1,500 on; the next launch comes just before 1,500 + dur."""
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 1500 + dur, 500, launch=(1500 + dur - 8_000, 5_000), op="aten::add")
    return trace


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaMalloc", "allocator"),
        ("cudaHostAlloc", "allocator"),
        ("cuMemCreate", "allocator"),
        ("hipMalloc", "allocator"),
        ("cuModuleLoadDataEx", "module_load"),
        ("cuLibraryLoadData", "module_load"),
        ("cudaLibraryLoadData", "module_load"),
        ("hipModuleLoadData", "module_load"),
        ("cudaFuncSetAttribute", "host_bound"),
        ("cudaMemcpyPeerAsync", "host_bound"),
    ],
)
def test_calls_that_take_half_of_the_gap_are_its_cause(call: str, cause: str) -> None:
    trace = one_late_gap()
    line = trace.frame("model.py(7): grow")
    trace.call(call, 10_000, 200_000, stack_row=line, op_row=trace.op("aten::empty", 9_000, 202_000))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == [cause]
    if cause != "host_bound":
        assert column(rows, "host_work") == [call]
        assert column(rows, "host_work_ns") == [200_000]
        assert (column(rows, "op"), column(rows, "next_op")) == (["aten::empty"], ["aten::add"])
        assert column(rows, "source") == ["model.py:7 grow"]


def test_many_short_allocations_count_together_and_one_within_another_once() -> None:
    trace = one_late_gap()
    for start in range(10_000, 210_000, 20_000):
        trace.call("cudaMalloc", start, 15_000)
        trace.call("cuMemCreate", start + 1_000, 10_000)
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == ["allocator"]
    assert column(rows, "host_work_ns") == [150_000]


def test_allocating_for_less_than_half_of_a_gap_is_not_its_cause() -> None:
    trace = one_late_gap()
    trace.call("cudaMalloc", 10_000, 100_000)
    assert causes(trace) == ["host_bound"]


def test_what_another_thread_allocates_is_not_the_cause() -> None:
    trace = one_late_gap()
    trace.call("cudaHostAlloc", 10_000, 200_000, tid=99)
    assert causes(trace) == ["host_bound"]


def test_freeing_memory_that_waits_for_the_device_is_the_allocators() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500_000, launch=(900, 50))
    trace.call("cudaFree", 1010, 600_000)
    trace.kernel("b", 640_000, 500, launch=(620_000, 5_000))
    assert causes(trace) == ["allocator"]


def test_an_allocation_in_the_first_call_of_a_librarys_operator_is_set_up() -> None:
    trace = one_late_gap()
    trace.call("cudaMalloc", 10_000, 200_000, op_row=trace.op("aten::cudnn_convolution", 9_000, 202_000))
    assert causes(trace) == ["module_load"]


def test_a_call_that_frees_memory_in_the_first_call_of_a_librarys_operator_is_set_up() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500_000, launch=(900, 50))
    trace.call("cudaFree", 1010, 600_000, op_row=trace.op("aten::cudnn_convolution", 1005, 600_100))
    trace.kernel("b", 640_000, 500, launch=(620_000, 5_000))
    assert causes(trace) == ["module_load"]


@pytest.mark.parametrize("inner", ["aten::cudnn_convolution", "aten::empty"])
def test_the_same_in_a_later_call_or_by_the_allocator_itself_stays_the_allocators(inner: str) -> None:
    trace = one_late_gap()
    trace.op("aten::cudnn_convolution", 0, 100)
    trace.call("cudaMalloc", 10_000, 200_000, op_row=trace.op(inner, 9_000, 202_000))
    assert causes(trace) == ["allocator"]


@pytest.mark.parametrize(
    ("mark", "cause"),
    [("train|warmup|forward", "module_load"), ("Warm-up", "module_load"), ("train|step|forward", "allocator")],
)
def test_an_allocation_in_an_annotated_warm_up_is_set_up(mark: str, cause: str) -> None:
    trace = one_late_gap()
    around = trace.op(mark, 8_000, 210_000)
    inner = trace.op("aten::empty", 9_000, 202_000, parent_row=around)
    trace.call("cudaMalloc", 10_000, 200_000, op_row=inner)
    assert causes(trace) == [cause]


@pytest.mark.parametrize(
    ("operator", "cause"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data_loading"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data_loading"),
        ("_compile.compile_inner (dynamo_timed)", "compilation"),
        ("TorchDynamo Cache Lookup", "host_bound"),
        ("## Call CompiledFxGraph f0 ##", "host_bound"),
        ("aten::stack", "host_bound"),
    ],
)
def test_annotations_of_loaders_and_compilers_are_believed(operator: str, cause: str) -> None:
    trace = one_late_gap()
    trace.op(operator, 5_000, 250_000, stack_row=trace.frame("train.py(30): epoch"))
    rows = gap_rows(trace.timeline())
    assert column(rows, "cause") == [cause]
    if cause != "host_bound":
        assert column(rows, "op") == [operator]
        assert column(rows, "source") == ["train.py:30 epoch"]


def test_a_loader_that_pins_memory_is_allocating_for_as_long_as_it_does() -> None:
    trace = one_late_gap()
    trace.op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5_000, 280_000)
    trace.call("cudaHostAlloc", 6_000, 240_000)
    assert causes(trace) == ["allocator"]


def test_the_first_launch_of_a_kernel_that_takes_long_loads_its_module() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.kernel("b", 900_000, 500, launch=(5_000, 890_000))
    trace.kernel("b", 1_900_000, 500, launch=(1_000_000, 890_000))
    assert causes(trace) == ["module_load", "host_bound"]


def test_a_launch_after_a_wait_for_an_event_waits_for_that() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaStreamWaitEvent", 955, 3)
    trace.kernel("b", 900_000, 500, launch=(960, 50))
    trace.kernel("c", 1_900_000, 500, launch=(1_020, 50))
    assert causes(trace) == ["event_wait", "unknown"]


# --- replays whose kernels are missing --------------------------------------------------------------------------------


def test_a_graph_whose_kernels_were_not_recorded_may_have_kept_the_device_busy() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaGraphLaunch", 960, 80)
    trace.kernel("b", 900_000, 500, launch=(1_100, 50))
    trace.kernel("c", 990_000, 500, launch=(980_000, 50))
    assert causes(trace) == ["graph_not_recorded", "host_bound"]


def test_once_the_host_has_waited_for_the_device_the_replay_is_over() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaGraphLaunch", 960, 80)
    trace.kernel("on another stream", 200_000, 500, launch=(199_000, 50), stream=20)
    trace.call("cudaStreamSynchronize", 199_100, 50_000)
    trace.kernel("c", 990_000, 500, launch=(980_000, 50), stream=20)
    trace.kernel("d", 999_000, 500, launch=(998_000, 50))
    assert causes(trace) == ["graph_not_recorded", "graph_not_recorded", "host_bound"]


def test_a_wait_for_an_event_does_not_say_that_the_replay_is_over() -> None:
    trace = Trace()
    trace.kernel("a", 1000, 500, launch=(900, 50))
    trace.call("cudaGraphLaunch", 960, 80)
    trace.call("cudaEventSynchronize", 1_100, 50)
    trace.kernel("b", 900_000, 500, launch=(880_000, 50))
    assert causes(trace) == ["graph_not_recorded"]


def test_a_replay_of_fewer_kernels_than_another_of_the_same_graph_is_not_all_there() -> None:
    trace = Trace()
    for at, kernels in ((0, 4), (100_000, 2), (200_000, 4)):
        replay = trace.call("cudaGraphLaunch", at, 50)
        for k in range(kernels):
            trace.kernel("k", at + 1_000 + 100 * k, 90, launch=replay, graph_id=5, graph_node_id=k)
    found = causes(trace)
    assert found == [*["graph_replay"] * 3, *["graph_not_recorded"] * 3, *["graph_replay"] * 3]


def test_a_hole_within_a_replay_says_that_kernels_are_missing() -> None:
    trace = Trace()
    replay = trace.call("cudaGraphLaunch", 0, 50)
    trace.kernel("k", 1_000, 90, launch=replay)
    trace.kernel("k", 1_200, 90, launch=replay)
    trace.kernel("k", 6_000_000, 90, launch=replay)
    trace.kernel("after", 6_100_000, 90, launch=(6_099_000, 50))
    assert set(causes(trace)) == {"graph_not_recorded"}


def test_a_replay_of_which_everything_was_recorded_hides_no_gap() -> None:
    trace = Trace()
    for at in (0, 100_000):
        replay = trace.call("cudaGraphLaunch", at, 50)
        for k in range(3):
            trace.kernel("k", at + 7_000 + 100 * k, 90, launch=replay)
    assert causes(trace) == [*["graph_replay"] * 2, "host_bound", *["graph_replay"] * 2]


intervals = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15)), max_size=12)


@given(intervals, st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 60), st.integers(0, 30)), max_size=8))
def test_time_that_intervals_cover_is_counted_once(
    made: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    group, begin, length = (np.array([each[i] for each in made], np.int64) for i in range(3))
    found = Intervals.of(np.arange(len(made)), group, begin, begin + length)
    wanted, since, window = (np.array([each[i] for each in asked], np.int64) for i in range(3))
    covered = found.covered(wanted, since, since + window)
    for each, on, start, wide in zip(covered.tolist(), wanted.tolist(), since.tolist(), window.tolist(), strict=True):
        moments = {m for g, b, n in made if g == on for m in range(b, b + n)}
        assert each == len(moments & set(range(start, start + wide)))
