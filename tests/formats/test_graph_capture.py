"""Replayed kernels get the operators of the graph's capture, or stay without where the two do not fit."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.timelines import Trace
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.graph_capture import captures_beside, with_capture, with_known_captures
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


def beside(tmp_path: Path, *names: str) -> Path:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    return tmp_path / "trace.json"


def known(timeline: Timeline, path: Path, *captures: Timeline) -> tuple[Timeline, list[str]]:
    """The timeline with what its own capture, or one of those beside it, says; and the files that were read."""
    read: list[str] = []

    def reader(file: Path) -> Timeline:
        read.append(file.name)
        return captures[len(read) - 1]

    return with_known_captures(timeline, path, reader), read


def counted(timeline: Timeline) -> Timeline:
    """The timeline with its replayed kernels counted, as formats count them."""
    ingest = replace(timeline.meta.ingest, unowned={"graph_replay": 4})
    return replace(timeline, meta=replace(timeline.meta, ingest=ingest))


def test_a_capture_beside_the_trace_is_found_by_its_name(tmp_path: Path) -> None:
    path = beside(tmp_path, "trace.json", "graph_capture_rank_0.json", "capture_traces/bs_32.json.gz", "other.json")
    assert [file.name for file in captures_beside(path)] == ["graph_capture_rank_0.json", "bs_32.json.gz"]
    capture, stranger = Captured().graph(*LAYER).timeline(), Captured().graph(*LAYER[:2]).timeline()
    found, read = known(counted(replayed(NAMES)), path, stranger, capture)
    assert owners(found)[:4] == [operator for _, operator, _ in LAYER]
    assert read == ["graph_capture_rank_0.json", "bs_32.json.gz"]
    assert found.meta.ingest.warnings[-1] == "That trace is bs_32.json.gz, which lies next to it."


def test_a_ranks_own_capture_is_tried_first(tmp_path: Path) -> None:
    beside(tmp_path, *(f"graph_capture_rank_{rank}.json.gz" for rank in range(8)))
    tried = [file.name for file in captures_beside(tmp_path / "trace_rank_6.json.gz")]
    assert tried[:2] == ["graph_capture_rank_6.json.gz", "graph_capture_rank_0.json.gz"]
    assert len(tried) == 4


def test_a_stranger_beside_the_trace_is_left_out_with_the_reason(tmp_path: Path) -> None:
    path = beside(tmp_path, "trace.json", "graph_capture.json", "capture.json")  # the last is what a capture measured
    stranger = Captured().graph(*LAYER[:2]).timeline()
    found, read = known(counted(replayed(NAMES)), path, stranger)
    assert (read, owners(found)[0]) == (["graph_capture.json"], None)
    (says,) = found.meta.ingest.warnings
    assert says.startswith("graph_capture.json, which lies next to it, does not explain the replays")
    assert "is of other graphs: of 2 kernels, and those replayed have 4" in says
    assert known(replayed(NAMES), path) == (replayed(NAMES), [])  # nothing is asked where nothing is unknown


def test_a_capture_in_the_trace_itself_is_taken(tmp_path: Path) -> None:
    both = Captured().graph(*LAYER)
    call = both.trace.call("cudaGraphLaunch", 500_005, 50)
    for number, name in enumerate(NAMES):
        both.trace.kernel(name, 500_100 + 10 * number, 5, launch=call, unowned_reason="graph_replay")
    found, read = known(counted(both.timeline()), beside(tmp_path, "graph_capture.json"))
    assert (read, owners(found)) == ([], [operator for _, operator, _ in LAYER])


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
