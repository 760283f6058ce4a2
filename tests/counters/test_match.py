"""A profiled kernel is the activity with its name, grid, block and place in the order; else it is counted, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timelines import Trace
from tracemine.counters import CounterReport, Counters, ProfiledKernel, match
from tracemine.counters.match import in_order, occurrences
from tracemine.timeline import RecordedDevice

GRID, BLOCK = (8, 1, 1), (128, 1, 1)
STEP = ("mm", "add", "mul", "add")


def kernel(
    name: str, order: int = 0, grid: tuple[int, int, int] | None = GRID, nbytes: int = 1_000_000, **more: Any
) -> ProfiledKernel:
    return ProfiledKernel(name=name, order=order, grid=grid, block=BLOCK if grid else None, dram_bytes=nbytes, **more)


def report(*names: str, **more: Any) -> CounterReport:
    return CounterReport(
        source="r.csv", page="raw", kernels=tuple(kernel(name, i, **more) for i, name in enumerate(names))
    )


def trace(names: Sequence[str], shapes: Sequence[Any] | None = None, **meta: Any) -> Trace:
    made = Trace(**meta)
    for i, name in enumerate(names):
        with_op: dict[str, Any] = {}
        if shapes is not None:
            with_op = {"op": "aten::any", "shapes": shapes[i], "dtypes": ["float"], "launch": (100 * i, 5)}
        made.kernel(name, 100 * i + 10, 50, grid=GRID, block=BLOCK, **with_op)
    return made


def joined(made: Trace, *reports: CounterReport) -> Counters:
    return match(made.timeline(), reports)


# --- order -----------------------------------------------------------------------------------------------------------


def test_a_report_of_one_step_is_found_in_every_step() -> None:
    found = joined(trace(STEP * 3), report(*STEP))
    assert found.of.tolist() == [0, 1, 2, 3] * 3
    assert found.exact.all()
    assert (found.matched, found.unmatched) == ({"exact": 4}, {})


def test_a_window_that_begins_and_ends_within_a_step_is_found() -> None:
    found = joined(trace([*STEP[2:], *STEP, *STEP, *STEP[:1]]), report(*STEP))
    assert found.of.tolist() == [2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert found.exact.all()


def test_a_report_of_more_steps_than_the_trace_is_found() -> None:
    found = joined(trace(STEP), report(*STEP * 2))
    assert found.of.tolist() == [0, 1, 2, 3]
    # The other step's launches are of the same classes, whose counters agree.
    assert found.matched == {"exact": 4, "name_and_grid": 4}


def test_a_report_of_some_kernels_only_is_compared_with_those() -> None:
    found = joined(trace(STEP * 2), report("add", "mul", "add"))
    assert found.of.tolist() == [-1, 0, 1, 2] * 2
    assert found.exact[found.of >= 0].all()


def test_names_differ_by_demangler_and_still_fit() -> None:
    found = joined(
        trace(["void at::native::f<4, at::native::g(int)::{lambda()#2}>(float*)"]),
        report("void f<(int)4, g(int)::[lambda() (instance 2)]>(T1 *)"),
    )
    assert found.matched == {"exact": 1}


def test_the_order_of_launches_counts_where_streams_run_out_of_it() -> None:
    made = Trace()
    for i, (name, start) in enumerate((("a", 500), ("b", 400), ("a", 300), ("b", 200))):
        made.kernel(name, start, 10, launch=(10 * i, 5), grid=GRID, block=BLOCK, stream=i)
    found = joined(made, report("a", "b", "a", "b"))
    assert found.of.tolist() == [3, 2, 1, 0]
    assert found.exact.all()


def test_each_device_has_an_order_of_its_own() -> None:
    made = Trace()
    for i, name in enumerate(("a", "a", "b", "b")):
        made.kernel(name, 10 * i, 5, grid=GRID, block=BLOCK, device=i % 2)
    assert joined(made, report("a", "b")).of.tolist() == [0, 0, 1, 1]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=4), st.lists(st.integers(0, 2), max_size=30))
def test_occurrences_are_those_that_comparing_everywhere_finds(pattern: list[int], text: list[int]) -> None:
    everywhere = [i for i in range(len(text) - len(pattern) + 1) if text[i : i + len(pattern)] == pattern]
    assert occurrences(pattern, text) == everywhere


@given(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 4), st.integers(0, 4))
def test_whole_steps_and_the_pieces_around_them_are_placed(
    step: list[int], times: int, before: int, after: int
) -> None:
    before, after = min(before, len(step)), min(after, len(step))
    text = step[len(step) - before :] + step * times + step[:after]
    places = in_order(step, text)
    placed = places >= 0
    assert [step[place] for place in places[placed]] == [text[i] for i in np.flatnonzero(placed)]
    assert placed.all() or len(set(step)) == 1


# --- name and grid ---------------------------------------------------------------------------------------------------


def test_another_order_leaves_name_and_grid() -> None:
    found = joined(trace(["add", "mul", "add"]), report("mul", "mul", "add", "add"))
    assert found.of.tolist() == [2, 0, 2]
    assert not found.exact.any()
    assert found.matched == {"name_and_grid": 4}


def test_one_kernel_alone_has_no_order() -> None:
    found = joined(trace(["add"] * 3, shapes=[[[4]]] * 3), report("add"))
    assert found.of.tolist() == [0, 0, 0]
    assert not found.exact.any()


def test_equal_launches_with_different_inputs_are_not_matched() -> None:
    found = joined(trace(["add", "add"], shapes=[[[4]], [[8]]]), report("add"))
    assert (found.of.tolist(), found.unmatched) == ([-1, -1], {"several_inputs": 1})


def test_a_place_that_steps_fill_with_different_inputs_is_no_place() -> None:
    found = joined(trace(["a", "b", "a", "b"], shapes=[[[4]], [[4]], [[4]], [[8]]]), report("a", "b"))
    assert found.of.tolist() == [0, -1, 0, -1]
    assert (found.matched, found.unmatched) == ({"exact": 1}, {"several_inputs": 1})


def test_profiled_launches_that_differ_are_not_matched_without_order() -> None:
    kernels = (kernel("add", 0), kernel("add", 1, nbytes=2_000_000), kernel("mul", 2))
    found = joined(trace(["add", "mul", "mul"]), CounterReport(source="r", page="raw", kernels=kernels))
    assert found.of.tolist() == [-1, 2, 2]
    assert found.unmatched == {"several_counters": 2}


def test_the_same_name_with_another_grid_is_not_matched() -> None:
    found = joined(trace(STEP), report("add", grid=(9, 1, 1)))
    assert (found.of.max(), found.unmatched) == (-1, {"other_grid": 1})


def test_what_the_trace_does_not_have_is_counted() -> None:
    found = joined(trace(STEP), report("softmax", "add", "mul", "add"))
    assert (found.matched, found.unmatched) == ({"exact": 3}, {"not_in_timeline": 1})


def test_the_order_of_few_says_nothing_where_most_is_not_here() -> None:
    found = joined(trace(["add", "mul"] * 2), report("a", "b", "c", "add", "mul"))
    assert found.of.tolist() == [3, 4, 3, 4]
    assert found.matched == {"name_and_grid": 2}


def test_a_kernel_without_a_grid_is_counted() -> None:
    assert joined(trace(STEP), report("add", grid=None)).unmatched == {"no_grid": 1}


# --- bare names ------------------------------------------------------------------------------------------------------

FULL = ("void f<1>(int)", "void f<2>(int)", "void g<1>(int)")


def test_a_bare_name_is_told_by_the_order_and_never_exact() -> None:
    found = joined(trace(FULL * 2), report("f", "f", "g"))
    assert found.of.tolist() == [0, 1, 2] * 2
    assert not found.exact.any()
    assert found.matched == {"name_and_grid": 3}


@pytest.mark.parametrize("names", [("f",), ("f", "g", "f"), ("_Z1fILi1EEvi",)])
def test_a_bare_name_of_several_kernels_is_not_matched_without_order(names: tuple[str, ...]) -> None:
    found = joined(trace(FULL), report(*names))
    assert found.of.tolist()[:2] == [-1, -1]
    assert found.unmatched["several_names"] == sum(name != "g" for name in names)


def test_a_name_without_arguments_is_a_whole_one() -> None:
    assert joined(trace(["triton_0", "triton_1"]), report("triton_0", "triton_1")).exact.all()


# --- several reports, several GPUs -----------------------------------------------------------------------------------


def test_the_first_report_that_knows_an_activity_is_believed() -> None:
    found = joined(trace(STEP), report("mul"), report(*STEP))
    assert found.of.tolist() == [1, 2, 0, 4]
    assert len(found.kernels) == 5


@pytest.mark.parametrize(
    ("gpu", "fits"), [("NVIDIA H200", True), ("nvidia  h200", True), ("NVIDIA A100", False), (None, True)]
)
def test_a_report_of_another_gpu_is_not_used(gpu: str | None, fits: bool) -> None:
    made = trace(STEP, devices=(RecordedDevice(ordinal=0, name="NVIDIA H200"),))
    found = joined(made, report(*STEP, gpu=gpu))
    assert found.unmatched == ({} if fits else {"other_gpu": 4})


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abcd"), max_size=12))
def test_every_profiled_kernel_is_matched_or_counted_and_names_always_agree(
    timeline: list[str], profiled: list[str]
) -> None:
    found = joined(trace(timeline), report(*profiled))
    assert sum(found.matched.values()) + sum(found.unmatched.values()) == len(profiled)
    for name, of, exact in zip(timeline, found.of.tolist(), found.exact.tolist(), strict=True):
        assert of < 0 or found.kernels[of].name == name
        assert of >= 0 or not exact
