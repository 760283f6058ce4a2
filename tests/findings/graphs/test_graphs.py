"""What stands in the way of one graph, each with a near miss that does not; and programs that were tried on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.timelines import Trace
from tracemine.findings.accounting import measure
from tracemine.findings.graphs import Graphs, Span, answer, graphs_of
from tracemine.findings.graphs.judge import overwritten
from tracemine.findings.graphs.obstacles import find_obstacles
from tracemine.findings.graphs.record import WAYS
from tracemine.host.waits import waits_of
from tracemine.pipeline import Analysis, analyse, analysed
from tracemine.rows.host import host_calls

RECORDED = Path(__file__).parents[3] / "benchmarks/results/h200"
US, STEP = 1_000, 1_000_000
LETTERS = {"works": "y", "fails": "n", "unknown": "?"}


def graphs_in(analysis: Analysis) -> Graphs:
    timeline = analysis.timeline
    waits = waits_of(timeline, *host_calls(timeline))
    activities = analysis.rows["activities"]
    return graphs_of(timeline, activities, measure(timeline), find_obstacles(timeline, activities, waits))


class Program:
    """Three steps of a function `forward` that launches eight kernels; `inside` is called in the middle of each."""

    def __init__(self, inside: Callable[[Program, int], Any] | None = None, *, steps: int = 3) -> None:
        self.trace = Trace(with_stack=True)
        self.step = self.trace.frame("train.py(9): step")
        self.forward = self.trace.frame("train.py(3): forward", self.step)
        self.number, self.mark = 0, None
        for self.number in range(steps):
            self.at = self.number * STEP
            self.mark = self.trace.step(self.at, STEP)
            for place in range(8):
                if place == 4 and inside is not None:
                    inside(self, self.at + 350 * US)
                self.kernel(self.at + (100 * place + 10) * US)

    def kernel(self, at: int, op: str = "aten::mm", **more: Any) -> None:
        more = {"shapes": [[8, 8], [8, 8]], "dtypes": ["float", "float"], "stack": self.forward} | more
        more = {"step_row": self.mark} | more
        self.trace.kernel("gemm", at + 8 * US, US, launch=(at, 5 * US), op=op, **more)

    def calls(self, op: str, at: int, stack: dict[str, Any] | None = None) -> dict[str, Any]:
        """An operator that launches nothing."""
        return self.trace.op(op, at - US, 20 * US, stack_row=stack or self.forward)

    def waits(self, name: str, op: str | None, at: int, stack: dict[str, Any] | None = None) -> None:
        """A call, in an operator or in none."""
        around = None if op is None else self.calls(op, at, stack)
        self.trace.call(name, at, 10 * US, op_row=around, stack_row=stack or self.forward)

    def copy(self, kind: str, at: int, *, pageable: bool) -> None:
        around = self.trace.op("aten::copy_", at - US, 20 * US, stack_row=self.forward)
        launch = self.trace.call("cudaMemcpyAsync", at, 10 * US, op_row=around, stack_row=self.forward)
        self.trace.copy(
            kind, at + 20 * US, US, 1 << 20, pageable=pageable, op=around, launch=launch, step_row=self.mark
        )

    @property
    def graphs(self) -> Graphs:
        analysis = analysed(self.trace.timeline())
        return graphs_in(analysis)


def verdict(span: Span) -> str:
    """A letter a way: y, n or ?. A mark where a step begins matters only where something is called several times."""
    letters = {way: LETTERS[span.way(way).outcome] for way in WAYS}
    assert letters.pop("graphs_by_step") == letters["reduce_overhead"]
    return "".join(letters.values())


def named(graphs: Graphs, name: str) -> Span:
    (found,) = (span for span in graphs.spans if span.name == name)
    return found


def item(program: Program, at: int) -> None:
    program.waits("cudaStreamSynchronize", "aten::_local_scalar_dense", at)


def item_of_step(program: Program, at: int) -> None:
    program.waits("cudaStreamSynchronize", "aten::_local_scalar_dense", at + 600 * US, program.step)
    program.kernel(at + 630 * US, stack=program.step)


def optimizer(name: str, *ops: str) -> Callable[[Program, int], Any]:
    def inside(program: Program, at: int) -> None:
        around = program.trace.op(f"Optimizer.step#{name}.step", at - US, 60 * US, stack_row=program.forward)
        around["kind"] = "annotation"
        for place, op in enumerate(ops or ("aten::add_",)):
            begin = at + 10 * place * US
            own = program.trace.op(op, begin - US, 8 * US, parent_row=around, stack_row=program.forward)
            call = program.trace.call("cudaLaunchKernel", begin, 5 * US, op_row=own, stack_row=program.forward)
            program.trace.kernel("add", begin + 8 * US, US, launch=call, op=own, step_row=program.mark)

    return inside


def replays(count: int) -> Callable[[Program, int], Any]:
    def inside(program: Program, at: int) -> None:
        call = program.trace.call("cudaGraphLaunch", at, 5 * US, stack_row=program.forward)
        for place in range(count):
            program.trace.kernel(
                "gemm",
                at + (10 + 2 * place) * US,
                US,
                launch=call,
                graph_id=1,
                graph_node_id=place,
                step_row=program.mark,
            )

    return inside


CASES: dict[str, tuple[Callable[[Program, int], Any] | None, str, str]] = {
    # what is inside of `forward`: verdicts on forward and on the step
    "nothing": (None, "yyyy", "yyyy"),
    "item": (item, "nnnn", "nnnn"),
    "item outside of it": (item_of_step, "yyyy", "nnnn"),
    "boolean index": (lambda p, at: p.waits("cudaStreamSynchronize", "aten::nonzero", at), "nnnn", "nnnn"),
    "if tensor": (lambda p, at: p.waits("cudaStreamSynchronize", "aten::is_nonzero", at), "nnnn", "nnnn"),
    "a call that waits for nothing": (lambda p, at: p.waits("cudaFuncGetAttributes", "aten::mm", at), "yyyy", "yyyy"),
    "synchronize": (lambda p, at: p.waits("cudaDeviceSynchronize", None, at), "nnnn", "nnnn"),
    "copy from pageable memory": (lambda p, at: p.copy("HtoD", at, pageable=True), "nynn", "nynn"),
    "copy to pageable memory": (lambda p, at: p.copy("DtoH", at, pageable=True), "nynn", "nynn"),
    "copy from pinned memory": (lambda p, at: p.copy("HtoD", at, pageable=False), "?ynn", "?ynn"),
    "copy on the device": (lambda p, at: p.copy("DtoD", at, pageable=False), "yyyy", "yyyy"),
    "memory given back": (lambda p, at: p.waits("cudaFree", "aten::empty", at), "nnnn", "nnnn"),
    "memory given": (lambda p, at: p.waits("cudaMalloc", "aten::empty", at), "yyyy", "yyyy"),
    "random numbers on the CPU": (lambda p, at: p.calls("aten::randn", at), "nynn", "nynn"),
    "random numbers on the device": (lambda p, at: p.kernel(at, "aten::randn"), "yyyy", "yyyy"),
    "Adam": (optimizer("Adam"), "nyyy", "nyyy"),
    "Adam made with capturable": (optimizer("Adam", "aten::_foreach_pow"), "yyyy", "yyyy"),
    "SGD": (optimizer("SGD"), "yyyy", "yyyy"),
    "collective": (lambda p, at: p.kernel(at, "c10d::allreduce_", collective="all_reduce"), "?y??", "?y??"),
    "operator of a library": (lambda p, at: p.kernel(at, "mine::fused"), "y???", "y???"),
    "operator of torchvision": (lambda p, at: p.kernel(at, "torchvision::nms"), "yyyy", "yyyy"),
    "sizes that differ": (lambda p, at: p.kernel(at, shapes=[[8, 8 + p.number], [8, 8]]), "nynn", "nynn"),
    "operators that differ": (lambda p, at: p.kernel(at, f"aten::{'mm' if p.number else 'bmm'}"), "n?nn", "n?nn"),
    "next batch": (lambda p, at: p.calls("enumerate(DataLoader)#_Iter.__next__", at), "nnnn", "nnnn"),
    "replays": (replays(20), "yyyy", "yyyy"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_obstacle_and_its_near_miss(name: str) -> None:
    inside, of_forward, of_step = CASES[name]
    graphs = Program(inside).graphs
    assert (verdict(named(graphs, "forward")), verdict(graphs.step)) == (of_forward, of_step)


def test_an_obstacle_has_its_line_and_how_often_it_was_met() -> None:
    (one,) = named(Program(item).graphs, "forward").obstacles
    assert (one.kind, one.line, one.times, one.effects["default"]) == ("number", "train.py:3 forward", 3, "breaks")


def test_most_has_to_be_replayed_already() -> None:
    assert Program(replays(20)).graphs.step.way("cuda_graph").effect == "already"
    assert Program(replays(2)).graphs.step.way("cuda_graph").effect is None


def test_memory_that_is_given_is_a_note() -> None:
    asks = Program(lambda p, at: p.waits("cudaMalloc", "aten::empty", at)).graphs
    assert (len(asks.step.notes), len(Program().graphs.step.notes)) == (1, 0)


def test_a_wait_behind_all_launches_of_a_step_is_not_in_it() -> None:
    def behind(program: Program, at: int, after: int = 550) -> None:
        program.trace.call("cudaDeviceSynchronize", at + after * US, US, stack_row=program.step)

    assert verdict(Program(behind).graphs.step) == "yyyy"
    assert verdict(Program(lambda program, at: behind(program, at, 10)).graphs.step) == "nnnn"


def test_sizes_that_each_step_repeats_are_compiled_each() -> None:
    program = Program(steps=0)
    for number in range(2):
        program.mark = program.trace.step(number * STEP, STEP)
        for call in range(2):
            for place in range(4):
                shapes = [[8, 8 + call], [8, 8]]
                program.kernel(number * STEP + (100 * (4 * call + place) + 10) * US, shapes=shapes)
            program.kernel(number * STEP + (400 * call + 390) * US, stack=program.step)
    forward = named(program.graphs, "forward")
    assert (forward.way("default").effect, forward.way("cuda_graph").effect) == ("recompiles", "records_again")
    assert "mm of [8, 8], then [8, 9]" in forward.obstacles[-1].says


def test_no_steps_are_no_step_to_capture() -> None:
    program = Program(steps=0)
    for place in range(8):
        program.kernel((place * 100 + 10) * US, op=f"aten::op{place}")
    assert program.graphs.steps == 0


def test_parts_lie_between_obstacles_and_add_up_to_no_more_than_was_launched() -> None:
    graphs = Program(item).graphs
    assert [(part.first, part.times, part.launches) for part in graphs.parts] == [("train.py:3 forward", 6, 24)]
    assert [(part.times, part.launches) for part in Program().graphs.parts] == [(3, 24)]


# What was given to torch.compile, and what came of its mode reduce-overhead on an H200: RECORDED/programs*/runs.json.
TRIED = {
    ("programs", "power_iteration", "round_of"): "n",  # an error: overwritten
    ("programs", "point_cloud", "one"): "n",
    ("programs", "bodies", "force_on"): "n",
    ("programs", "adversarial", "Sequential_1"): "n",
    ("programs", "equation", "Sequential_0"): "n",  # an error: double backward
    ("programs", "beam_search", "scores_of"): "y",  # many calls, of which each is done with before the next
    ("programs", "gated_mixer", "forward"): "y",  # a loop inside of one call
    ("programs", "clip_in_loop", "Sequential_0"): "y",  # the waits are outside of it
    ("programs_unseen", "adaptive_solver", "Sequential_0"): "n",
}


@pytest.mark.parametrize(("folder", "program", "span"), TRIED)
def test_programs_that_were_tried(folder: str, program: str, span: str) -> None:
    analysis = analyse(RECORDED / folder / program)
    graphs = graphs_in(analysis)
    assert LETTERS[named(graphs, span).way("reduce_overhead").outcome] == TRIED[folder, program, span]


class Calls:
    """Four calls of a span, two a step of 100 ns, that each write one tensor; `read`: by whom it is, at what time."""

    def __init__(self, *read: tuple[int, int], in_place: bool = False) -> None:
        begin, readers = np.array([0, 50, 100, 150]), np.array([at for _, at in read])
        span, count = len(begin), len(begin) + len(readers)
        self.rows, self.op_begin = np.arange(len(begin)), begin
        self.launched_ns = np.concatenate((begin + 1, readers))
        self.backward, self.place = np.zeros(count, np.bool_), np.arange(span)
        self.forward = np.concatenate((np.arange(span), np.full(len(readers), -1)))
        producer, consumer = np.array([call for call, _ in read]), span + np.arange(len(readers))
        self.graph = SimpleNamespace(
            first_activity=np.arange(count),
            producer=producer,
            consumer=consumer,
            passed=np.full(len(read), not in_place),
        )

    def step_at(self, moment: Any) -> Any:
        return moment // 100

    def lost(self, *, by_step: bool) -> bool:
        calls: Any = np.arange(4)
        return bool(len(overwritten(self, calls, self.graph, by_step=by_step)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "each_call", "each_step"),
    [
        ((0, 40), False, False),  # before the next call
        ((0, 90), True, False),  # behind it, in the same step
        ((1, 99), False, False),
        ((1, 101), True, True),  # in the next step
        ((0, 160), True, True),
    ],
)
def test_a_mark_where_a_step_begins_keeps_results_until_the_next(
    read: tuple[int, int], each_call: bool, each_step: bool
) -> None:
    calls = Calls(read)
    assert (calls.lost(by_step=False), calls.lost(by_step=True)) == (each_call, each_step)
    in_place = Calls(read, in_place=True)  # as a cache of fixed size
    assert not in_place.lost(by_step=False) and not in_place.lost(by_step=True)


def test_an_answer_says_which_share_of_the_launches_is_held() -> None:
    def asks(program: Program, at: int) -> None:
        program.waits("cudaStreamSynchronize", "aten::item", at)

    behind = Program()  # a number is asked for once the function has returned
    for number in range(3):
        behind.waits("cudaStreamSynchronize", "aten::item", number * STEP + 850 * US, behind.step)
        behind.kernel(number * STEP + 900 * US, stack=behind.step)
    found = [answer(graphs_in(analysed(each.trace.timeline())), STEP) for each in (Program(), Program(asks), behind)]
    assert [(one.kind, one.held) for one in found[:2]] == [("works", 1.0), ("fails", 0.0)]
    assert found[2].kind == "part"
    assert found[2].held == pytest.approx(8 / 9, abs=1e-3)
