"""Proton's traces: kernels, launches, scopes, replays, and what is Proton's own."""

from __future__ import annotations

import json
from pathlib import Path

from tests.formats.proton.make import Trace, three_steps
from tracemine.formats import open_trace
from tracemine.pipeline import analysed, mined, scan


def test_each_kernel_has_its_launch_scopes_and_what_was_stated_of_it(tmp_path: Path) -> None:
    timeline = open_trace(three_steps().written(tmp_path))
    rows = timeline.activities.to_pylist()
    assert timeline.meta.format == "proton"
    assert [row["name"] for row in rows[:4]] == [
        "norm_kernel",
        "matmul_kernel",
        "vectorized_elementwise_kernel",
        "reduce_kernel",
    ]
    assert [(row["start_ns"], row["dur_ns"]) for row in rows[:2]] == [(30_000, 6_125), (37_500, 20_000)]
    assert {row["stream"] for row in rows} == {7}
    assert [row["module"] for row in rows[:4]] == ["step.mlp", "step.mlp", "step.replay", "step.replay"]
    assert (rows[1]["stated_bytes"], rows[1]["stated_flops"]) == (1_000_000, 1_000_000_000)
    assert rows[2]["stated_flops"] is None
    called = [timeline.api["name"][row["launch_row"]].as_py() for row in rows[:4]]
    assert called == ["LaunchKernel", "LaunchKernel", "GraphLaunch", "GraphLaunch"]
    assert [row["unowned_reason"] for row in rows[:3]] == ["outside_any_op", "outside_any_op", "graph_replay"]


def test_outermost_scopes_that_repeat_are_steps(tmp_path: Path) -> None:
    timeline = open_trace(three_steps().written(tmp_path))
    assert timeline.steps["start_ns"].to_pylist() == [0, 100_000, 200_000]
    assert timeline.activities["step_row"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    ops = timeline.ops.to_pylist()
    assert [(op["name"], op["module"], op["parent_row"]) for op in ops[:2]] == [
        ("step", None, None),
        ("mlp", "step", 0),
    ]
    assert {op["tid"] for op in ops} == {4}


def test_scopes_with_numbers_are_steps_and_others_are_none(tmp_path: Path) -> None:
    trace = Trace()
    for number, at in enumerate((0.0, 50.0)):
        trace.scope(f"step_{number}", at=at, dur=40.0)
        trace.launched(f"step_{number}", at=at + 1, kernels=[("k", at + 10, 5.0)])
    trace.scope("report", at=95.0, dur=2.0)
    timeline = open_trace(trace.written(tmp_path))
    assert timeline.steps["name"].to_pylist() == ["step_0", "step_1"]


def test_gpu_time_is_what_the_viewer_adds_up_without_protons_own(tmp_path: Path) -> None:
    path = three_steps().written(tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    own = [e for e in kernels if any(p.startswith("__proton_launch_metadata") for p in e["args"]["call_stack"])]
    timeline = open_trace(path)
    assert len(own) == 3
    assert sum(timeline.activities["dur_ns"].to_pylist()) == round(
        1000 * sum(e["dur"] for e in kernels if e not in own)
    )
    assert timeline.meta.ingest.skipped == {"work of Proton's own": 3}
    assert any("Proton's own kernels took 3.1%" in each for each in timeline.meta.ingest.warnings)


def test_an_older_trace_has_a_line_a_stream_and_no_launches(tmp_path: Path) -> None:
    timeline = open_trace(three_steps().written_by_stream(tmp_path))
    assert sorted(set(timeline.activities["stream"].to_pylist())) == [7, 13]
    assert timeline.activities.num_rows == 13
    assert timeline.activities["launch_row"].null_count == 13
    assert timeline.activities["module"].to_pylist()[1] == "step.mlp"
    assert any("no launches" in each for each in timeline.meta.ingest.warnings)


def _elementwise(at: float) -> Trace:
    """Two steps that begin and end with pointwise kernels, close together."""
    trace = Trace()
    for start in (at, at + 30):
        trace.scope("step", at=start - 20, dur=29.0)
        for number, name in enumerate(("at::native::add_kernel<a>", "at::native::mul_kernel<a>")):
            trace.launched("step", "act", at=start - 19 + 4 * number, kernels=[(name, start + 15 * number, 14.0)])
    return trace


def test_no_chain_holds_kernels_of_two_steps(tmp_path: Path) -> None:
    """Neither where steps have times, nor where call stacks alone tell that they begin anew."""
    trace = _elementwise(100.0)
    for path in (trace.written(tmp_path), trace.written_by_stream(tmp_path)):
        timeline = open_trace(path)
        analysis = analysed(timeline)
        chain = analysis.rows["activities"].columns["chain"].values.tolist()  # type: ignore[union-attr]
        names = timeline.activities["name"].to_pylist()
        of_steps = [each for each, name in zip(chain, names, strict=True) if name != "copy_kernel"]
        assert len(of_steps) == 4
        assert set(of_steps[:2]).isdisjoint(of_steps[2:])
        mined(analysis)


def test_python_frames_are_lines(tmp_path: Path) -> None:
    trace = Trace()
    trace.kernel("/home/me/run.py:3@<module>", "/home/me/model.py:17@forward", "add_kernel", at=0, dur=2)
    trace.kernel("/home/me/run.py:main@4", "add_kernel", at=5, dur=2)
    timeline = open_trace(trace.written(tmp_path))
    stacks = timeline.stacks.to_pylist()
    places = [(s["file"], s["line"], s["function"]) for s in stacks]
    assert places == [
        ("/home/me/run.py", 3, "<module>"),
        ("/home/me/model.py", 17, "forward"),
        ("/home/me/run.py", 4, "main"),
    ]
    assert timeline.activities["stack_row"].to_pylist() == [1, 2]
    assert stacks[1]["parent_row"] == 0


def test_a_triton_kernel_is_written_by_hand_and_is_no_link_of_a_chain(tmp_path: Path) -> None:
    rows = analysed(open_trace(three_steps().written(tmp_path))).rows["activities"]
    by_hand = rows.columns["handwritten"].values.tolist()[:4]  # type: ignore[union-attr]
    assert by_hand[:2] == [True, True]


def _alone(tmp_path: Path, scopes: list[str], rounds: int) -> Path:
    """Kernels alone: in each round two in each of these scopes, the first of all 50 ms late."""
    trace = Trace()
    for at in range(rounds):
        for place, scope in enumerate(scopes):
            for kernel, name in enumerate(("norm_kernel", "gate_kernel")):
                start = 0.0 if not at + place + kernel else 50_000.0 + 100.0 * at + 10.0 * place + 4.0 * kernel
                trace.kernel(*scope.format(at).split("."), name, at=start, dur=3.0)
    return trace.written_by_stream(tmp_path)


def test_numbers_tell_the_steps_of_kernels_alone(tmp_path: Path) -> None:
    timeline = open_trace(_alone(tmp_path, ["step_{}.attention", "step_{}.mlp"], 4))
    assert timeline.steps["name"].to_pylist() == ["step_0", "step_1", "step_2", "step_3"]
    assert timeline.steps["dur_ns"].to_pylist()[1:] == [17_000] * 3
    by_name = zip(timeline.activities["name"].to_pylist(), timeline.activities["step_row"].to_pylist(), strict=True)
    assert [row for name, row in by_name if name == "gate_kernel"] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_equal_layers_of_one_pass_are_no_steps(tmp_path: Path) -> None:
    scopes = ["forward.attention", "forward.mlp"]
    assert scan(_alone(tmp_path, scopes, 6)).summary.per_step is None
    found = scan(_alone(tmp_path, [scope.replace("forward", "train_step") for scope in scopes], 6)).summary.per_step
    assert found is not None
    assert (found.count, len(found.apart)) == (5, 1)


def test_a_late_first_run_of_a_kernel_is_said_where_no_launch_is_recorded(tmp_path: Path) -> None:
    noted = " ".join(scan(_alone(tmp_path, ["forward"], 1)).warnings)
    assert "50.0 ms of it before kernels that run for the first time" in noted
    assert "launched long before" not in noted
