"""Replayed kernels get the operators of the graph's capture, or stay without where the two do not fit."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.timelines import Trace
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.graph_capture import with_capture
from tracemine.formats.stored import checked
from tracemine.timeline import Timeline

COMPAT = os.environ.get("TRACEMINE_COMPAT_TRACES")
PUBLIC = "tracelens_vllm_{}.json.gz"
LAYER = (
    ("rms_kernel", "aten::rms_norm", [[4, 8], [8]]),
    ("sm90_xmma_gemm", "aten::mm", [[4, 8], [8, 8]]),
    ("silu_kernel", "aten::silu", [[4, 8]]),
    ("sm90_xmma_gemm", "aten::mm", [[4, 8], [8, 8]]),
)
NAMES = tuple(kernel for kernel, _, _ in LAYER)


class Captured:
    """A trace in which graphs are captured: launches inside operators, and no activities."""

    def __init__(self, *, named: bool = True) -> None:
        self.trace = Trace()
        self.named = named
        self.now = 1_000

    def graph(self, *kernels: tuple[str, str, object]) -> Captured:
        for kernel, operator, shapes in kernels:
            frame = self.trace.frame(f"model.py({len(self.trace.rows['stacks']) + 1}): forward")
            op = self.trace.op(operator, self.now, 20, shapes, module="Model_0.Layer_1", stack_row=frame)
            name: dict[str, Any] = {"kernel": kernel} if self.named else {}
            self.trace.call("cudaLaunchKernel", self.now + 5, 5, op_row=op, **name)
            self.trace.call("cuLaunchKernel", self.now + 6, 2, kind="driver", op_row=op, **name)  # within the other
            self.now += 30
        self.trace.call("cudaStreamEndCapture", self.now, 5)
        self.now += 30
        return self

    def timeline(self) -> Timeline:
        return self.trace.timeline()


def replayed(*replays: tuple[str, ...]) -> Timeline:
    """Replays within an operator each, of kernels one after another."""
    trace, now = Trace(), 500_000
    trace.frame("serve.py(3): loop")
    for names in replays:
        op = trace.op("run_graph", now, 60)
        call = trace.call("cudaGraphLaunch", now + 5, 50, op_row=op)
        for at, name in enumerate(names):
            trace.kernel(name, now + 100 + 10 * at, 8, launch=call, unowned_reason="graph_replay")
        trace.kernel("top_k", now + 900, 8, launch=(now + 70, 5), op="aten::topk", owner_evidence="nesting")
        now += 1_000
    return trace.timeline()


def owners(timeline: Timeline) -> list[str | None]:
    names = timeline.ops["name"].to_pylist()
    return [None if row is None else names[row] for row in timeline.activities["op_row"].to_pylist()]


def test_every_replay_gets_the_operators_of_its_capture() -> None:
    found = with_capture(replayed(NAMES, NAMES), Captured().graph(*LAYER).timeline(), "c.json")
    assert checked(found, Path("x")) is found
    assert owners(found) == ["aten::rms_norm", "aten::mm", "aten::silu", "aten::mm", "aten::topk"] * 2
    assert found.activities["owner_evidence"].to_pylist() == [*["graph_capture"] * 4, "nesting"] * 2
    assert found.activities["unowned_reason"].null_count == 10
    assert found.meta.ingest.warnings[-1] == (
        "The trace of the graph's capture names the operators of 8 of 8 replayed kernels, in 2 of 2 replays."
    )


def test_operators_bring_shapes_modules_and_lines_and_stand_at_the_call_that_replays() -> None:
    found = with_capture(replayed(NAMES), Captured().graph(*LAYER).timeline(), "c.json")
    row = found.activities["op_row"].to_pylist()[1]
    op = {name: found.ops[name].to_pylist()[row] for name in found.ops.column_names}
    assert (op["name"], op["input_shapes"], op["module"]) == ("aten::mm", "[[4,8],[8,8]]", "Model_0.Layer_1")
    assert (op["start_ns"], op["dur_ns"], op["tid"]) == (500_005, 0, 1)
    assert found.ops["name"].to_pylist()[op["parent_row"]] == "run_graph"
    assert found.stacks["line"].to_pylist()[op["stack_row"]] == 2
    assert found.api["op_row"].to_pylist() == [0, found.ops["name"].to_pylist().index("aten::topk")]


def test_other_kernels_other_order_and_other_numbers_of_them_are_refused() -> None:
    capture = Captured().graph(*LAYER).timeline()
    for ran, says in (
        (NAMES[:3], "is of other graphs: of 4 kernels, and those replayed have 3"),
        ((*NAMES[:3], "other"), "kernel 3 is `sm90_xmma_gemm` where `other` was replayed"),
        ((NAMES[1], NAMES[0], *NAMES[2:]), "kernel 0 is `rms_kernel` where `sm90_xmma_gemm` was replayed"),
    ):
        with pytest.raises(InputError, match=says):
            with_capture(replayed(ran), capture, "c.json")


def test_a_trace_without_replays_and_one_without_a_capture_are_refused() -> None:
    capture = Captured().graph(*LAYER).timeline()
    with pytest.raises(InputError, match="belongs to replays of a CUDA graph, and the trace has none"):
        with_capture(replayed(()), capture, "c.json")
    with pytest.raises(InputError, match="holds no launch that went into a graph"):
        with_capture(replayed(("a",)), Trace().timeline(), "c.json")


def test_replays_of_a_graph_that_was_not_captured_stay_without() -> None:
    found = with_capture(replayed(NAMES, ("other", "kernels")), Captured().graph(*LAYER).timeline(), "c.json")
    assert owners(found)[5:7] == [None, None]
    assert "4 of 6 replayed kernels, in 1 of 2 replays" in found.meta.ingest.warnings[-1]


def test_graphs_of_the_same_kernels_on_other_shapes_cannot_be_distinguished() -> None:
    larger = tuple((kernel, operator, [[16, 8]]) for kernel, operator, _ in LAYER)
    with pytest.raises(InputError, match="several graphs of the same kernels whose operators differ"):
        with_capture(replayed(NAMES), Captured().graph(*LAYER).graph(*larger).timeline(), "c.json")
    twice = with_capture(replayed(NAMES), Captured().graph(*LAYER).graph(*LAYER).timeline(), "c.json")
    assert owners(twice)[1] == "aten::mm"


def test_where_launches_do_not_name_their_kernels_the_classes_must_agree() -> None:
    capture = Captured(named=False).graph(*LAYER, *LAYER).timeline()
    found = with_capture(replayed(NAMES * 2), capture, "c.json")
    assert owners(found)[:4] == [operator for _, operator, _ in LAYER]
    with pytest.raises(InputError, match="kernel 0 is other classes of kernels"):
        with_capture(replayed((*(NAMES * 2)[1:], NAMES[0])), capture, "c.json")


@pytest.mark.skipif(not COMPAT, reason="TRACEMINE_COMPAT_TRACES is not set")
def test_a_public_pair_fits_kernel_by_kernel_and_a_stranger_is_refused() -> None:
    folder = Path(str(COMPAT)) / "kineto"
    capture = folder / PUBLIC.format("decode_full_capture")
    found = open_trace(folder / PUBLIC.format("decode_full_graph"), graph_capture=capture)
    evidence = Counter(found.activities["owner_evidence"].to_pylist())
    assert evidence["graph_capture"] == 421
    assert Counter(owners(found))["vllm::unified_attention_with_output"] == 36
    with pytest.raises(InputError, match="is of other graphs"):
        open_trace(folder / PUBLIC.format("piecewise_graph"), graph_capture=capture)
