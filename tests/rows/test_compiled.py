"""torch.compile in a timeline: which graph launched what, where graphs broke, and what is no break."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows.test_gaps import column
from tests.timelines import Trace
from tracemine.causes import CAUSES, columns_of, load_rules
from tracemine.formats import open_trace
from tracemine.matching import mine
from tracemine.rows import Rows, row_sets
from tracemine.rows.ancestors import nearest, within
from tracemine.rows.compiled import compilations, compiled
from tracemine.rows.graph_breaks import REASONS
from tracemine.timeline import Timeline

PUBLIC = os.environ.get("TRACEMINE_COMPAT_TRACES")
FIXTURES = Path(__file__).parents[2] / "fixtures"
FUSING = ("memory_bound_chain", "eager_island", "rmsnorm_unfused", "rotary_unfused")
BREAKS = {  # in each of the two steps
    "compiled_breaks": [(25, ".item()", "value"), (28, "print(", "print")],
    "compiled_islands": [(48, "nonzero(", "size"), (50, "soft_cap(", "disabled")],
    # torch.compile gave up on the whole function: between its three blocks, which are compiled, it is eager.
    "compiled_loop": [(87, "def forward(", "value"), (87, "def forward(", "value")],
}


@cache
def recorded(name: str) -> tuple[Timeline, dict[str, Rows]]:
    timeline = open_trace(FIXTURES / "kineto" / f"{name}.json.gz")
    return timeline, row_sets(timeline, columns=columns_of(CAUSES))


def reasons(timeline: Timeline) -> list[str]:
    return [REASONS[code] for code in compiled(timeline).breaks.reason.tolist()]


# --- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BREAKS)
def test_every_break_is_found_with_its_line_and_what_broke_it_and_no_other(name: str) -> None:
    timeline, rows = recorded(name)
    assert reasons(timeline) == [reason for _, _, reason in BREAKS[name]] * 2
    gaps = rows["gaps"]
    numbers, lines = column(gaps, "graph_break"), column(gaps, "break_source")
    found = dict(sorted((n, line) for n, line in zip(numbers, lines, strict=True) if n is not None))
    assert found == dict(enumerate([f"compiled_models.py:{at} forward" for at, _, _ in BREAKS[name]] * 2))


def test_the_lines_are_those_that_the_model_breaks_at() -> None:
    source = (FIXTURES / "compiled_models.py").read_text().splitlines()
    for at, text, _ in (each for breaks in BREAKS.values() for each in breaks):
        assert text in source[at - 1]


@pytest.mark.parametrize("name", ["compiled_breaks", "compiled_islands"])
def test_what_ran_between_two_graphs_is_an_island_and_no_compiled_kernel_is(name: str) -> None:
    _, rows = recorded(name)
    activities = rows["activities"]
    island, by_graph, region = (column(activities, each) for each in ("island", "compiled", "region"))
    assert set(island) == {None, 0, 1, 2, 3}
    assert all(by_graph[at] == (island[at] is None) for at in range(activities.count))
    assert None not in region


def test_behind_the_last_graph_of_a_function_there_is_no_island() -> None:
    _, rows = recorded("compiled_loop")
    activities = rows["activities"]
    eager = [
        island
        for island, by_graph in zip(column(activities, "island"), column(activities, "compiled"), strict=True)
        if not by_graph
    ]
    assert eager == [number for number in (0, 1, None, 2, 3, None) for _ in range(4)]


def test_a_break_has_no_more_of_a_gap_than_passed_between_its_graphs() -> None:
    timeline, rows = recorded("compiled_breaks")
    breaks, gaps = compiled(timeline).breaks, rows["gaps"]
    between = (breaks.end_ns - breaks.begin_ns).tolist()
    for number, length in enumerate(between):
        parts = [
            (part, dur)
            for n, part, dur in zip(*(column(gaps, c) for c in ("graph_break", "break_ns", "dur_ns")), strict=True)
            if n == number
        ]
        assert 0 < sum(part for part, _ in parts) <= length
        assert all(0 < part <= dur for part, dur in parts)


def test_a_model_that_compiles_in_one_piece_has_no_break() -> None:
    timeline, rows = recorded("decoder_prefill_compiled")
    assert reasons(timeline) == []
    assert set(column(rows["activities"], "compiled")) == {True}
    assert set(column(rows["activities"], "region")) == {"0/0"}
    assert set(column(rows["gaps"], "graph_break")) == {None}


@pytest.mark.parametrize("name", [*BREAKS, "decoder_prefill_compiled", "triton_kernel"])
def test_no_fusing_rule_touches_what_a_compiled_graph_launched_or_somebody_wrote(name: str) -> None:
    _, rows = recorded(name)
    fused = np.array(column(rows["activities"], "compiled")) | np.array(column(rows["activities"], "handwritten"))
    assert fused.any()
    for found in mine(rows, load_rules()):
        if found.rule.id in FUSING:
            assert not fused[found.rows].any()


def test_a_triton_kernel_of_ones_own_is_handwritten_and_not_generated() -> None:
    _, rows = recorded("triton_kernel")
    named = zip(*(column(rows["activities"], c) for c in ("name", "handwritten", "generated")), strict=True)
    assert {(written, made) for name, written, made in named if name == "scale_shift_kernel"} == {(True, False)}
    named = zip(*(column(rows["activities"], c) for c in ("name", "handwritten")), strict=True)
    assert not any(written for name, written in named if name != "scale_shift_kernel")


@pytest.mark.parametrize(
    "name", ["decoder_prefill", "decoder_decode", "decoder_decode_graph", "convnet_train", "chain"]
)
def test_in_an_eager_model_there_is_nothing_compiled_and_nothing_handwritten(name: str) -> None:
    _, rows = recorded(name)
    for flag in ("compiled", "handwritten"):
        assert set(column(rows["activities"], flag)) == {False}
    assert set(column(rows["activities"], "island")) == set(column(rows["gaps"], "graph_break")) == {None}


@pytest.mark.parametrize(
    "name",
    [
        "kineto/tracelens_torch_compile_triton",
        "kineto/hta_triton_example",  # a region and no graph call in it
        "h200/seed_chains/compiled",
        "h200/splade_head/compiled",
    ],
)
def test_public_traces_of_compiled_models_are_compiled_in_one_piece(name: str) -> None:
    if PUBLIC is None:
        pytest.skip("TRACEMINE_COMPAT_TRACES does not say where the public traces are")
    timeline = open_trace(Path(PUBLIC) / f"{name}.json.gz")
    rows = row_sets(timeline, columns=columns_of(CAUSES))
    assert set(column(rows["activities"], "compiled")) == {True}
    assert reasons(timeline) == []
    matches = [found for found in mine(rows, load_rules()) if len(found)]
    fused = [found.rule.id for found in matches if found.rule.saving in ("fuse", "one_pass", "attention")]
    assert fused == []


# --- what is a break and what is not ---------------------------------------------------------------------------------


class Calls(Trace):
    """Regions and graph calls, each with one kernel launched in the middle."""

    def region(self, start: int, dur: int, name: str = "0/0", **columns: Any) -> dict[str, Any]:
        return self.op(f"Torch-Compiled Region: {name}", start, dur, **columns)

    def graph(
        self, start: int, dur: int, within: dict[str, Any] | None, tid: int = 1, **columns: Any
    ) -> dict[str, Any]:
        call = self.op("## Call CompiledFxGraph f00 ##", start, dur, parent_row=within, tid=tid, **columns)
        self.run("triton_poi_fused_add_0", start + dur // 2, within, tid)
        return call

    def run(self, name: str, at: int, within: dict[str, Any] | None, tid: int = 1) -> None:
        """One kernel, launched at a moment and run at once, for 2 ns."""
        op = self.op("aten::add", at - 1, 4, parent_row=within, tid=tid)
        self.kernel(name, at + 3, 2, launch=(at, 2), op=op, tid=tid)


def broken() -> Calls:
    """0/0 with a graph, an eager kernel, and the region of the rest with another graph."""
    trace = Calls()
    outer = trace.region(0, 100)
    trace.graph(10, 10, outer)
    trace.run("eager", 30, outer)
    trace.graph(50, 10, trace.region(45, 50, "1/0", parent_row=outer))
    return trace


def test_two_graphs_in_one_run_of_a_function_have_a_break_between_them() -> None:
    timeline = broken().timeline()
    breaks = compiled(timeline).breaks
    assert list(zip(breaks.begin_ns.tolist(), breaks.end_ns.tolist(), strict=True)) == [(20, 50)]
    rows = row_sets(timeline)
    assert column(rows["activities"], "island") == [None, 0, None]
    assert column(rows["activities"], "region") == ["0/0", "0/0", "1/0"]
    assert column(rows["activities"], "compiled") == [True, False, True]
    assert column(rows["gaps"], "graph_break") == [0, 0]
    assert column(rows["gaps"], "break_ns") == [33 - 20, 50 - 35]
    assert column(rows["gaps"], "break_source") == [None, None]  # no stacks, no line


def given_up(entries: int = 1, function: bool = True, stranger: bool = False, eager: bool = True) -> Calls:
    """Two regions beside each other, called by one function that torch.compile entered and did not compile."""
    trace = Calls()
    main = trace.frame("train.py(3): step")
    paths = []
    for _ in range(entries):
        path = trace.frame("torch/_dynamo/eval_frame.py(956): compile_wrapper", main)
        path = trace.frame("model.py(10): forward", path) if function else path
        paths += [(path, trace.frame("torch/nn/modules/module.py(1783): _call_impl", path))]
    for number in (0, 1):
        region = trace.region(5 + 50 * number, 20, f"{number}/0", stack_row=paths[number % entries][1])
        trace.graph(10 + 50 * number, 10, region)
    if eager:
        trace.op("aten::_local_scalar_dense", 30, 4, stack_row=paths[0][0])
    if stranger:
        trace.op("aten::add", 40, 4, stack_row=main)
    return trace


def test_a_function_that_was_given_up_is_a_break_at_its_beginning() -> None:
    timeline = given_up().timeline()
    assert reasons(timeline) == ["value"]
    assert column(row_sets(timeline)["gaps"], "break_source") == ["model.py:10 forward"]


def compiled_one_by_one() -> Calls:
    return given_up(entries=2)


def a_compiled_function_called_twice() -> Calls:
    return given_up(function=False)


def a_model_called_twice_with_work_in_between() -> Calls:
    return given_up(stranger=True)


def nothing_ran_in_the_function_itself() -> Calls:
    return given_up(eager=False)


def one_region() -> Calls:
    trace = Calls()
    trace.run("eager", 5, None)
    trace.graph(20, 10, trace.region(15, 20))
    trace.run("eager", 40, None)
    return trace


def two_models() -> Calls:
    trace = Calls()
    trace.graph(10, 10, trace.region(5, 20, "0/0"))
    trace.run("eager", 30, None)
    trace.graph(45, 10, trace.region(40, 20, "1/0"))
    return trace


def two_threads() -> Calls:
    trace = Calls()
    outer = trace.region(0, 100)
    trace.graph(10, 10, outer)
    trace.graph(50, 10, trace.region(45, 20, "1/0", tid=2), tid=2)
    return trace


def one_function_of_two_graphs() -> Calls:
    """DistributedDataParallel cuts a graph so that gradients can be sent early."""
    trace = Calls()
    outer = trace.region(0, 100)
    trace.graph(10, 10, outer)
    trace.graph(30, 10, outer)
    return trace


def only_the_inner_has_a_graph() -> Calls:
    trace = Calls()
    outer = trace.region(0, 100)
    trace.run("eager", 10, outer)
    trace.graph(50, 10, trace.region(45, 20, "1/0", parent_row=outer))
    trace.run("eager", 80, outer)
    return trace


def a_graph_that_calls_a_graph() -> Calls:
    trace = Calls()
    outer = trace.region(0, 100)
    call = trace.graph(10, 60, outer)
    trace.graph(50, 10, trace.region(45, 20, "1/0", parent_row=call))
    return trace


def compiled_meanwhile() -> Calls:
    trace = broken()
    outer = trace.rows["ops"][0]
    lookup = trace.op("_compile.compile_inner (dynamo_timed)", 36, 8, parent_row=outer)
    trace.op("bytecode_tracing (dynamo_timed)", 37, 3, parent_row=lookup)
    return trace


NEAR_MISSES = (
    one_region, two_models, two_threads, one_function_of_two_graphs, only_the_inner_has_a_graph,
    a_graph_that_calls_a_graph, compiled_meanwhile, compiled_one_by_one, a_compiled_function_called_twice,
    a_model_called_twice_with_work_in_between, nothing_ran_in_the_function_itself,
)  # fmt: skip


@pytest.mark.parametrize("made", NEAR_MISSES, ids=lambda made: made.__name__)
def test_no_break_is_seen_in(made: Any) -> None:
    rows = row_sets(made().timeline())
    assert set(column(rows["activities"], "island")) == {None}
    assert set(column(rows["gaps"], "graph_break")) == {None}
    assert True in column(rows["activities"], "compiled")


def test_a_stretch_of_compilation_is_counted_once() -> None:
    begin, end = compilations(compiled_meanwhile().timeline())
    assert (begin.tolist(), end.tolist()) == ([36], [44])
    assert not len(compilations(broken().timeline())[0])


@pytest.mark.parametrize(
    ("op", "frame", "reason"),
    [
        ("aten::_local_scalar_dense", None, "value"),
        ("aten::nonzero", None, "size"),
        ("aten::_local_scalar_dense", "torch/_tensor_str.py(675): _str", "print"),
        ("aten::copy_", "<built-in method numpy of Tensor object at 0x7f>", "numpy"),
        ("aten::tanh", "torch/_dynamo/eval_frame.py(1240): _fn", "disabled"),
        ("aten::tanh", None, "other"),
    ],
)
def test_what_broke_a_graph_is_told_by_operator_and_frame(op: str, frame: str | None, reason: str) -> None:
    trace = broken()
    # What is above the compiled function says nothing of the break.
    above = trace.frame("torch/_dynamo/eval_frame.py(1240): _fn")
    forward = trace.frame("model.py(10): forward", above)
    path = forward if frame is None else trace.frame(frame, forward)
    outer = trace.rows["ops"][0]
    outer["stack_row"] = above
    inner = next(row for row in trace.rows["ops"] if row["name"].endswith("1/0"))
    inner["stack_row"] = forward
    trace.op(op, 36, 2, parent_row=outer, stack_row=path)
    trace.op("aten::nonzero", 47, 1, parent_row=inner, stack_row=forward)  # belongs to the next graph
    assert reasons(trace.timeline()) == [reason]


# --- trees and intervals ---------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(-1, 30), st.booleans()), max_size=30))
def test_the_nearest_marked_row_is_the_one_that_walking_up_finds(tree: list[tuple[int, bool]]) -> None:
    parent, marked = np.array([p for p, _ in tree], np.int64), np.array([m for _, m in tree], np.bool_)
    parent = np.minimum(parent, len(tree) - 1)

    def walk(row: int) -> int:
        while row >= 0 and not marked[row]:
            row = int(parent[row]) if parent[row] < row else -1  # a damaged parent is none
        return row

    assert nearest(parent, marked).tolist() == [walk(row) for row in range(len(tree))]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 5)), max_size=12),
    st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 60)), max_size=20),
)
def test_the_interval_around_a_moment_is_the_one_that_counting_finds(
    spans: list[tuple[int, int, int]], moments: list[tuple[int, int]]
) -> None:
    until = [0, 0, 0]
    made = []
    for thread, dur, pause in spans:
        begin = until[thread] + pause
        until[thread] = begin + dur
        made.append((thread, begin, begin + dur))
    threads, begins, ends = (np.array([each[i] for each in made], np.int64) for i in range(3))
    on, at = (np.array([each[i] for each in moments], np.int64) for i in range(2))
    counted = [
        next((i for i, (t, low, high) in enumerate(made) if t == who and low <= when < high), -1)
        for who, when in moments
    ]
    assert within(threads, begins, ends, on, at).tolist() == counted


rows_of_paths = st.integers(-1, 9)


@settings(max_examples=40)
@given(st.lists(rows_of_paths, min_size=10, max_size=10), rows_of_paths, rows_of_paths, rows_of_paths)
def test_damaged_call_paths_come_to_an_end(parents: list[int], one: int, other: int, between: int) -> None:
    """Callers stand before callees. Where they do not, nothing runs for ever, and a break still needs its evidence."""
    trace = Calls()
    frames = [trace.frame("torch/_dynamo/eval_frame.py(956): compile_wrapper")]
    frames += [trace.frame(f"model.py({number}): forward") for number in range(1, 10)]
    for frame, parent in zip(frames, parents, strict=True):
        frame["parent_row"] = None if parent < 0 else parent
    paths = [None if at < 0 else frames[at] for at in (one, other, between)]
    for number in (0, 1):
        trace.graph(10 + 50 * number, 10, trace.region(5 + 50 * number, 20, f"{number}/0", stack_row=paths[number]))
    trace.op("aten::add", 30, 4, stack_row=paths[2])
    assert reasons(trace.timeline()) in ([], ["other"])
    if min(one, other, between) < 0:
        assert reasons(trace.timeline()) == []
