"""A recorded step as a program: what it covers, where its tensors lie, and that fused chains in place change no bit."""

from __future__ import annotations

import ast
import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.report.scans import SCAN
from tracemine.causes import CAUSES
from tracemine.columns import string_ids
from tracemine.findings.record import GRAPH, Scan
from tracemine.flow import flow
from tracemine.flow.record import Flow
from tracemine.formats import open_trace
from tracemine.fusion import Groups, groups
from tracemine.perfmodel import NOTHING, Range
from tracemine.pipeline import analyse, mined
from tracemine.verdicts.candidate import Candidate
from tracemine.verdicts.evidence import read_evidence
from tracemine.verdicts.verdict import StepVerdict, Verdicts, verdict
from tracemine.verify.pipeline import fusable
from tracemine.verify.rebuild.arguments import told
from tracemine.verify.rebuild.rebuilder import Rebuilder
from tracemine.verify.rebuild.recorded import Recorded
from tracemine.verify.repro import standalone
from tracemine.verify.repro.harness import EMBEDDED as REPRO_TEXTS
from tracemine.verify.step.build import NoStep, build
from tracemine.verify.step.compared import CALL_NS, LAUNCHER_NS, Expected, expected, step_verdict, summary
from tracemine.verify.step.pipeline import gaps_closed, prepared, raised, recorded_names
from tracemine.verify.step.placing import Placed, place
from tracemine.verify.step.program import StepCall
from tracemine.verify.step.text import EMBEDDED as STEP_TEXTS
from tracemine.verify.step.text import step_file

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"
NAMES = ("chain", "clean_gemms", "convnet_train", "decoder_decode", "decoder_prefill")
Run = Callable[..., tuple[int, str, str]]


@cache
def read(name: str) -> tuple[Flow, Groups, Scan]:
    analysis = analyse(CAPTURES / name)
    return analysis.dataflow, analysis.groups, mined(analysis)


@cache
def placed(name: str) -> Placed:
    flow, groups, scan = read(name)
    return place(fusable(scan.findings), Rebuilder(flow, groups))


def calls(name: str, operator: str) -> list[StepCall]:
    return [c for c in placed(name).program.calls if c.operator == f"aten::{operator}"]


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_replayed_but_for_what_gives_no_tensor(name: str) -> None:
    program = placed(name).program
    assert program.step == "ProfilerStep#2"
    assert program.share > 0.99
    assert {left.reason for left in program.left} <= {"it gives no tensor"}
    assert sum(len(c.activities) for c in program.calls) == program.replayed_launches
    assert program.gpu_ns == program.replayed_ns + sum(left.gpu_ns for left in program.left)


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_lies_within_its_buffer_and_no_call_reads_what_is_not_there(name: str) -> None:
    program = placed(name).program
    there = {number for number, buffer in enumerate(program.buffers) if buffer.outside}
    for call in program.calls:
        for tensor in call.reads:
            assert tensor.buffer in there
            assert tensor.layout.reach[1] <= program.buffers[tensor.buffer].elements
        there.update(call.makes)
        assert {p.buffer for _, _, p in call.outputs} <= there


def test_views_and_writes_in_place_share_the_memory_that_they_shared() -> None:
    for call in calls("decoder_prefill", "chunk"):
        (whole,) = call.reads
        halves = [p for _, _, p in call.outputs]
        assert [h.buffer for h in halves] == [whole.buffer] * 2
        assert [h.offset - whole.offset for h in halves] == [0, whole.shape[-1] // 2]
        assert call.is_view
    for call in calls("convnet_train", "mul_"):
        assert call.writes == (next(call.reads),)
        assert not call.makes


def test_a_call_is_taken_apart_where_others_read_what_is_made_inside_it() -> None:
    operators = [c.operator for c in placed("convnet_train").program.calls]
    assert "aten::batch_norm" not in operators  # its backward reads the means that it saved
    assert "aten::conv2d" in operators
    assert "aten::linear" in [c.operator for c in placed("decoder_prefill").program.calls]


def test_calls_of_two_threads_run_in_order_of_time() -> None:
    operators = [c.operator for c in placed("convnet_train").program.calls]
    backward = [at for at, name in enumerate(operators) if "backward" in name]  # in a thread of autograd's
    optimizer = [at for at, name in enumerate(operators) if name == "aten::mul_"]
    assert operators.index("aten::conv2d") < min(backward)
    assert max(backward) < min(optimizer)


def test_a_number_that_became_a_tensor_is_the_one_that_the_call_around_it_recorded() -> None:
    flow, groups, _ = read("convnet_train")
    recorded = Rebuilder(flow, groups).recorded
    names, ids = string_ids(flow.timeline.ops.column("name"))[::-1]
    inner = [row for row, name in enumerate(ids.tolist()) if name >= 0 and names[name] == "aten::div"]
    calls_ = [recorded.call(row, ()) for row in inner]
    assert {c.overload for c in calls_} == {"Scalar", "Tensor"}
    assert {told(c, 1) for c in calls_} == {256}


def test_index_tensors_from_outside_stay_within_what_they_point_into() -> None:
    (call,) = calls("decoder_prefill", "embedding")
    table, indices = call.reads
    assert placed("decoder_prefill").program.buffers[indices.buffer].below == table.shape[0]


def test_every_occurrence_in_the_step_is_replaced() -> None:
    _, _, scan = read("decoder_prefill")
    found = placed("decoder_prefill")
    for number, finding in enumerate(found.findings):
        assert found.occurrences(number) == finding.occurrences / scan.trace.steps


def namespace(name: str, device: str) -> dict[str, Any]:
    """A step's file, run as far as its definitions."""
    flow, _, _ = read(name)
    found = placed(name)
    text = step_file(found, summary(found).counts, recorded_names(found, flow), b"{}").replace(
        'DEVICE = "cuda"', f'DEVICE = "{device}"'
    )
    defined: dict[str, Any] = {"__name__": __name__}
    exec(compile(text, "repro_step.py", "exec"), defined)  # noqa: S102  (our own text)
    return defined


@pytest.mark.parametrize("name", ["chain", "convnet_train", "decoder_prefill"])
def test_the_calls_fit_each_other_without_data(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    assert namespace(name, "meta")["on_meta"](tmp_path) == {"eager": "fits", "fused": "fits"}


def test_a_convolution_of_cudnn_has_the_shape_of_any_other_without_data() -> None:
    torch = pytest.importorskip("torch")
    x, weight = (torch.empty(shape, device="meta") for shape in ((2, 6, 9, 8), (4, 3, 3, 3)))
    found = namespace("chain", "meta")["meta_convolution"](x, weight, [1, 0], [2, 1], [1, 1], 2, False, False, True)
    assert found.shape == torch.nn.functional.conv2d(x, weight, stride=(2, 1), padding=(1, 0), groups=2).shape


def on_cpu(folder: Path) -> tuple[dict[str, Any], Any, list[Any]]:
    """A decoder's step on a CPU, which has no such attention: that is spelled out. Its inputs and its chains."""
    found = namespace("decoder_decode", "cpu")

    def attention(query: Any, key: Any, value: Any, *_: Any, scale: float | None = None) -> Sequence[Any]:
        """What only a backward pass reads is left out."""
        scores = query.float() @ key.float().transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
        return ((scores.softmax(-1) @ value.float()).to(query.dtype), *[None] * 8)

    found.update({n: attention for n in found if n.startswith("_scaled_dot_product_cudnn_attention")})
    return found, found["Inputs"](found["BUFFERS"], found["VIEWS"], "cpu"), found["modules"](folder)


def test_chains_in_the_place_of_calls_change_no_bit_of_what_is_left(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    found, inputs, modules = on_cpu(tmp_path)
    with torch.no_grad():
        eager = found["run"](found["eager_step"], inputs, ())
        graphs = found["run"](found["fused_step"], inputs, [m.eager for m in modules])
    assert len(eager) == len(found["LIVE"]) > 0
    for one, other in zip(eager, graphs, strict=True):
        assert one.isfinite().all()
        assert torch.equal(one, other)


def test_a_chain_that_is_wrong_is_seen_at_the_end_of_the_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    found, inputs, modules = on_cpu(tmp_path)
    graphs = [m.eager for m in modules]

    def wrong(*given: Any, **named: Any) -> Any:
        return tuple(t * 1.5 for t in graphs[0](*given, **named))

    def seen(rebuilt: Sequence[Any], kernels: Sequence[Any]) -> tuple[int, int]:
        with torch.no_grad():
            came_to = found["checked"](found["eager_step"], found["fused_step"], inputs, rebuilt, kernels)
        return came_to["wired_otherwise"], came_to["beyond"]

    assert seen(graphs, graphs) == (0, 0)
    assert seen([wrong, *graphs[1:]], [wrong, *graphs[1:]]) == (1, 1)


def test_what_a_step_counts_is_as_it_was_when_the_step_has_been_checked() -> None:
    torch = pytest.importorskip("torch")
    found = namespace("chain", "cpu")
    counts = (False, 8, torch.int64, 5, False, 1, True)
    weights = (False, 16, torch.float32, None, False, 1, True)
    views = [(0, torch.int64, (1,), (1,), 0), (1, torch.float32, (4,), (1,), 0)]
    inputs = found["Inputs"]([counts, weights], views, "cpu")
    before = [t.clone() for t in inputs.tensors]

    def step(t: Any, k: Any) -> Any:
        return [t[0].add_(1), t[1].mul_(t[0] + 1)]

    result = found["checked"](step, step, inputs, (), ())
    assert (result["tensors"], result["beyond"], result["wired_otherwise"]) == (2, 0, 0)
    inputs.restore()
    assert all(map(torch.equal, inputs.tensors, before))


def test_a_kernel_is_judged_within_the_file_as_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    found, _, modules = on_cpu(tmp_path)
    graph = min(modules, key=lambda m: sum(math.prod(shape) for _, shape, *_ in m.INPUTS))

    def wrong(*given: Any, **named: Any) -> Any:
        return tuple(t * 1.5 for t in graph.eager(*given, **named))

    judged = found["right"](graph.eager, {"same": graph.eager, "wrong": wrong}, graph.INPUTS, 0.0, "cpu")
    assert judged["same"]["faults"] == []
    assert judged["wrong"]["faults"]


def test_a_kernel_is_judged_on_numbers_as_its_own_reproduction_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    modules = namespace("convnet_train", "cpu")["modules"](tmp_path)
    holds = {(name, below) for module in modules for name, *_, below in module.INPUTS}
    assert {("running_var", "positive"), ("save_mean", "moderate"), ("save_var", "deviation")} <= holds


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")
@pytest.mark.parametrize(
    ("text", "limit_s", "says"),
    [
        ("import time\ntime.sleep(2)\nx = bytearray(8 << 30)", 60.0, "the step ended with 1: MemoryError"),
        ("import time\ntime.sleep(600)", 1.0, "the step took longer than 1 s"),
        ("raise SystemExit('no')", 60.0, "the step ended with 1: no"),
    ],
)
def test_a_file_gets_so_much_memory_and_time(text: str, limit_s: float, says: str) -> None:
    assert standalone.run(text, [], limit_s, what="the step", most_bytes=1 << 30) == says


def test_names_of_a_trace_stay_strings() -> None:
    name = "'''\"\"\"\n); import os  # \\ \u2028 {0}"
    found = placed("chain")
    tree = ast.parse(step_file(found, summary(found).counts, [name], b"{}"))
    strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    about = next(json.loads(s) for s in strings if s.startswith('{"ulps"'))
    assert about["recorded"] == [name]
    assert not any(isinstance(n, ast.Import) and n.names[0].name == "os" for n in ast.walk(tree))


def test_without_an_execution_trace_it_says_so_in_one_line(run: Run) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    code, out, err = run("verify", CAPTURES / "chain" / "trace.json.gz", "--step", "--top", "1")
    assert (code, out) == (2, "")
    first, second = err.strip().splitlines()[-2:]
    assert "there is none" in first
    assert second.strip().startswith("hint: record one")


def test_a_damaged_execution_trace_is_refused_in_one_line(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    shutil.copy(CAPTURES / "chain" / "trace.json.gz", tmp_path / "trace.json.gz")
    (tmp_path / "et.json").write_text('{"schema": "1.1.1-chakra.0.0.4", "nodes": 7}')
    code, _, err = run("verify", tmp_path / "trace.json.gz", "--et", tmp_path / "et.json", "--step", "--top", "1")
    assert code == 2
    assert "Traceback" not in err


def test_a_step_of_another_trace_is_none() -> None:
    flow, groups, scan = read("chain/trace.json.gz")
    with pytest.raises(NoStep, match="there is none"):
        place(fusable(scan.findings), Rebuilder(flow, groups))


def without(*operators: str, by: str = "custom::thing") -> tuple[Flow, Recorded]:
    """A decoder's recording in which operators have another name, else one that no table has."""
    names = re.compile(rf"aten::({'|'.join(operators)})(?=[.(]|$)")
    timeline = open_trace(CAPTURES / "decoder_prefill")
    changed = {}
    for column in ("name", "op_schema"):
        values = timeline.ops[column].to_pylist()
        changed[column] = [v and names.sub(by, v) for v in values]
    ops = timeline.ops
    for column, values in changed.items():
        at = ops.schema.get_field_index(column)
        encoded = pa.chunked_array([pa.array(values, pa.string()).dictionary_encode()])
        ops = ops.set_column(at, ops.schema.field(at), encoded.cast(ops.schema.field(at).type))
    found = flow(replace(timeline, ops=ops))
    return found, Recorded(found)


def test_what_cannot_be_called_is_left_out_and_counted_and_what_it_gave_comes_from_outside() -> None:
    whole = build(read("decoder_prefill")[0], Recorded(read("decoder_prefill")[0]), {}).program
    program = build(*without("silu"), {}).program
    (left,) = program.left
    assert (left.reason, left.calls) == ("it is not in the operator table", 2)
    assert left.gpu_ns > 0
    assert program.gpu_ns == whole.gpu_ns == program.replayed_ns + left.gpu_ns
    assert sum(b.outside for b in program.buffers) == sum(b.outside for b in whole.buffers) + 2


def test_whatever_draws_random_numbers_keeps_its_order() -> None:
    program = build(*without("silu", by="aten::poisson"), {}).program
    assert {c.operator for c in program.calls if c.draws} == {
        "aten::poisson",
        "aten::_scaled_dot_product_cudnn_attention",
    }
    assert not any(c.draws for c in placed("convnet_train").program.calls)


def test_below_the_least_share_no_step_is_replayed() -> None:
    found, _ = without("linear")
    kept, _ = without("linear", "addmm", "mm")  # most of the time
    _, _, scan = read("decoder_prefill")
    about, _, _ = prepared((), Rebuilder(found, groups(found)), scan)
    assert about.share > 0.99  # what is inside an operator of another name is called instead
    with pytest.raises(NoStep, match="of the step's GPU time can be replayed, 80% are asked for: it is not in the"):
        prepared((), Rebuilder(kept, groups(kept)), scan)


# What it comes to.


def answer(eager: int, fused: int, gpu: int, kept: bool = True) -> dict[str, Any]:
    """As a step's file prints it."""
    return {
        "device": "a GPU",
        "replay": {"same_names": 1.0, "gpu_ns": gpu},
        "kernels": [{"kept": kept, "says": "" if kept else "not faster than its subgraph"}],
        "fused_gpu_ns": gpu - 10,
        "times": {n: {"step_ns": [t] * 4, "host_ns": [t] * 4} for n, t in (("eager", eager), ("fused", fused))},
        "savings": {
            "fused": {"ns": eager - fused, "low": eager - fused - 5, "high": eager - fused + 5},
            "eager_noise_ns": 10,
        },
    }


def came_to(
    ran: dict[str, Any] | str | None, alone: int | None = 100_000, mid: int = 1000, busy: int = 95_000
) -> StepVerdict:
    mark = placed("chain").findings[0].fingerprint
    saving = {mark: Range(low=mid - 500, mid=mid, high=mid + 500)}
    return step_verdict(
        summary(placed("chain")),
        Expected(step_ns=saving, gpu_ns=saving, graph=NOTHING, busy_ns=busy, alone_step_ns=alone),
        ran,
    )


def test_a_saving_is_compared_where_the_same_sets_the_pace_of_model_and_replay() -> None:
    (change,) = came_to(answer(100_000, 99_000, 95_000)).changes
    assert (change.within, change.says) == (True, "")
    (change,) = came_to(answer(100_000, 96_000, 95_000)).changes
    assert change.within is False
    (change,) = came_to(answer(100_000, 99_000, 20_000)).changes
    assert change.within is None
    assert change.says == "the device sets the model's pace, the host the replay's"
    (change,) = came_to(answer(100_000, 99_000, 95_000), alone=None).changes
    assert change.within is None


def test_where_a_replay_s_host_is_slower_than_the_model_s_no_more_is_saved_than_the_model_has() -> None:
    ran = answer(4_000_000, 3_000_000, 400_000)
    ran["savings"] |= {name: {"ns": 3_600_000, "low": 3_500_000, "high": 3_700_000} for name in ("graph", "all")}
    ran["savings"]["fused_graph"] = {"ns": 100_000, "low": 99_000, "high": 101_000}
    step = came_to(ran, alone=2_000_000, busy=400_000)
    found = {c.change: (c.measured_ns, c.replay_ns) for c in step.changes}
    assert found == {
        "fused": (500_000 - 13_500, 1_000_000),  # half as long a call, and a launcher as long as it is
        "graph": (1_600_000, 3_600_000),  # what it takes as a graph, less than what the model takes
        "all": (1_600_000, 3_600_000),
        "fused_graph": (100_000, 100_000),
    }
    assert "got shorter by 486.5 µs (486.5 to 486.5), predicted 1.0 µs; the replay, whose host is slower," in step.says
    assert came_to(ran, alone=5_000_000, busy=400_000).changes[0].measured_ns == 1_000_000  # a faster one is no reason


def test_a_step_that_only_a_slow_replay_made_shorter_confirms_nothing() -> None:
    ran = answer(4_000_000, 3_990_000, 400_000)
    assert came_to(ran, alone=4_000_000, busy=400_000).shorter is True
    slow = came_to(ran, alone=2_000_000, busy=400_000)
    assert slow.shorter is False
    assert "saved -8.5 µs" in slow.says


def test_launch_gaps_are_confirmed_by_a_graph_that_has_none(tmp_path: Path) -> None:
    (finding,) = (f for f in SCAN.findings if f.rule == "launch_gap")
    fusion = next(f for f in SCAN.findings if f.on_gpu)
    for saved, level, says in ((40_000, "L6", "got shorter by 40.0 µs"), (-40_000, "L0", "did not get shorter")):
        ran = answer(100_000, 99_000, 95_000)
        ran["savings"]["graph"] = {"ns": saved, "low": saved - 9_000, "high": saved + 9_000}
        step = came_to(ran)
        (closed,) = gaps_closed(SCAN, step, CAUSES)
        assert (closed.fingerprint, closed.level, closed.by) == (finding.fingerprint, level, GRAPH)
        assert says in closed.says
        path = tmp_path / "v.json"
        path.write_bytes(msgspec.json.encode(Verdicts(trace="t", gpu="a GPU", verdicts=(closed,), skipped={})))
        verified = read_evidence([path]).on(finding, "a GPU")
        assert verified is not None
        assert (verified.basis, verified.level, verified.by) == ("predicted", level, GRAPH)
        assert (
            read_evidence([path]).on(msgspec.structs.replace(fusion, fingerprint=finding.fingerprint), "a GPU") is None
        )
    assert gaps_closed(SCAN, came_to(answer(100_000, 99_000, 95_000)), CAUSES) == ()  # no graph was captured


def test_a_finding_is_confirmed_where_its_kernel_stood_in_a_step_that_got_shorter_beyond_noise() -> None:
    finding = placed("chain").findings[0]
    plain = verdict(finding, [Candidate(calls=4, evidence="proven")])
    fast = msgspec.structs.replace(plain, level="L5", says="not slower", not_tested=("L6: not tried",))

    def level(ran: dict[str, Any] | str | None, before: Any = fast) -> str:
        return raised([before], came_to(ran))[0].level

    assert level(answer(100_000, 99_000, 95_000)) == "L6"
    assert level(answer(100_000, 99_988, 95_000)) == "L5"  # within noise
    assert level(answer(100_000, 101_000, 95_000)) == "L5"
    assert level(answer(100_000, 99_000, 95_000, kept=False)) == "L5"
    assert level("the step took longer than 300 s") == "L5"
    slower = msgspec.structs.replace(fast, level="L4", says="slower than torch.compile")
    assert level(answer(100_000, 99_000, 95_000), slower) == "L4"
    untried = msgspec.structs.replace(fast, level="L4", not_tested=("L5: torch.compile was left out", "L6: not tried"))
    assert level(answer(100_000, 99_000, 95_000), untried) == "L6"
    (found,) = raised([fast], came_to(answer(100_000, 99_000, 95_000)))
    assert found.says == "with 1 fused kernels in place the step got shorter by 1.0 µs (1.0 to 1.0), predicted 1.0 µs"
    assert "the step got longer: saved -1.0 µs" in came_to(answer(100_000, 101_000, 95_000)).says
    assert "not get shorter beyond noise" in came_to(answer(100_000, 99_988, 95_000)).says
    (found,) = raised([fast], came_to("the step took longer than 300 s"))
    assert found.not_tested == ("L6: the step took longer than 300 s",)


def test_what_is_predicted_of_a_step_is_a_step_s_share_of_the_scan() -> None:
    analysis = analyse(CAPTURES / "decoder_prefill")
    scan = mined(analysis)
    found = expected(scan, analysis, scan.findings)
    assert found.busy_ns == scan.summary.gpu_busy_ns // 2
    for finding in scan.findings:
        assert found.gpu_ns[finding.fingerprint].mid == finding.gpu_saving_ns.mid // finding.occurrences


@pytest.mark.parametrize(("share", "more_ns"), [(0.5, LAUNCHER_NS - CALL_NS), (0.9, 0)])
def test_where_the_host_sets_the_pace_a_launcher_takes_longer_than_the_call_that_it_stands_for(
    share: float, more_ns: int
) -> None:
    analysis = analyse(CAPTURES / "decoder_prefill")
    scan = mined(analysis)
    plain = expected(scan, analysis, scan.findings)
    alone = msgspec.structs.replace(analysis.timeline.meta, alone_step_ns=round(plain.busy_ns / share))
    analysis = replace(analysis, timeline=replace(analysis.timeline, meta=alone))
    for mark, saving in expected(scan, analysis, scan.findings).step_ns.items():
        before = plain.step_ns[mark]
        assert saving == Range(low=before.low - more_ns, mid=before.mid - more_ns, high=before.high)
    assert more_ns >= 0


@pytest.mark.parametrize("names", [sum(texts.values(), ()) for texts in (STEP_TEXTS, REPRO_TEXTS)])
def test_texts_that_are_pasted_into_one_file_have_no_name_twice(names: tuple[str, ...]) -> None:
    found: Counter[str] = Counter()
    for name in names:
        for node in ast.parse((resources.files("tracemine") / name).read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found[node.name] += 1
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                found.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    assert [name for name, count in found.items() if count > 1] == []
