"""A library's call as a short file, and what a verdict on another way to make it says."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.verdicts.test_evidence import FINDING, H200, printed, put
from tests.verify.repro import emitted
from tests.verify.repro.emitted import run
from tracemine.causes import CAUSES
from tracemine.cli import main
from tracemine.documents.verdict_words import times_text
from tracemine.findings.record import CALL, Alike, Finding
from tracemine.perfmodel import Range
from tracemine.verdicts.evidence import read_evidence
from tracemine.verify.fixes.by_rule import fix_of
from tracemine.verify.fixes.calls import Ways, fixed_call
from tracemine.verify.fixes.record import Fixed, NoFixedForm
from tracemine.verify.fixes.reproduction import call_reproduction, library_call
from tracemine.verify.gpu.marks import name_digest
from tracemine.verify.rebuild.arguments import NotRecorded
from tracemine.verify.rebuild.recorded import Recorded

TRAINING = Path(__file__).parents[3] / "fixtures" / "captures" / "convnet_train"
MARK = "0123456789abcdef"
CONVOLUTION: Mapping[str, Any] = {
    "call": "aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)",
    "tensors": (("x", (4, 8, 6, 6), "float16", (288, 36, 6, 1)), ("weight", (8, 8, 3, 3), "float16", (72, 9, 3, 1))),
    "fixed": Fixed(ways=("channels_last",)),
    "kernels": (("nchwToNhwcKernel", [7, 8, 4]), ("fprop", [1, 1, 1])),
}


def ways_of(rule: str) -> Ways:
    ways = fix_of(rule, CAUSES)
    assert isinstance(ways, Ways)
    return ways


def written(call: Mapping[str, Any]) -> str:
    return call_reproduction(FINDING, **call, fingerprint=MARK)


def checked(text: str | None) -> dict[str, Any]:
    """What a reproduction gives its check."""
    assert text is not None
    (call,) = (
        node.value for node in ast.parse(text).body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    )
    return {word.arg or "": word.value for word in call.keywords}


def test_the_call_around_a_layout_conversion_is_told_with_its_arguments_and_all_its_kernels() -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(TRAINING)
    recorded = Recorded(analysis.dataflow)
    found = [each for each in mined(analysis).findings if each.rule == "channels_last"]
    calls = [
        call for each in found for _ in each.variants or [each] if (call := library_call(each, recorded, CAUSES, MARK))
    ]
    assert calls
    names = recorded.timeline.activities.column("name").to_pylist()
    for call in calls:
        given = checked(call.source)
        tensors = [ast.unparse(each).split(", ") for each in given["inputs"].elts]
        kernels = ast.literal_eval(given["trace"])
        first = ast.literal_eval(given["inputs"].elts[0].elts[0])
        assert re.search(rf"return aten\.convolution(_backward)?\(\s*{first}, ", call.source or "")
        assert any("nchwToNhwc" in name or "nhwcToNchw" in name for name, *_ in kernels)
        assert len(kernels) > 1
        assert {digest for _, digest, _ in kernels} <= set(map(name_digest, names))
        assert all({"torch.float16", "torch.float32", "torch.bfloat16"} & set(each) for each in tensors)


def test_a_kernel_of_a_long_name_is_held_against_the_whole_name() -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(TRAINING)
    (found,) = [each for each in mined(analysis).findings if each.rule == "channels_last"]
    call = library_call(found, Recorded(analysis.dataflow), CAUSES, MARK)
    assert call is not None
    activities = analysis.timeline.activities
    long = activities.column("name").to_pylist()[found.activities[0][0]] + "<float, 4>" * 100
    named = pa.array([long] * activities.num_rows).dictionary_encode().cast(activities.schema.field("name").type)
    renamed = activities.set_column(activities.column_names.index("name"), "name", named)
    timeline = replace(analysis.timeline, activities=renamed)
    again = library_call(found, Recorded(replace(analysis.dataflow, timeline=timeline)), CAUSES, MARK)
    assert again is not None
    kernels, before = (ast.literal_eval(checked(each.source)["trace"]) for each in (again, call))
    assert [digest for _, digest, _ in kernels] == [name_digest(long)] * len(before)


def test_other_rules_findings_are_no_calls_and_a_call_without_shapes_says_what_is_missing() -> None:
    from tracemine.pipeline import analyse, mined

    analysis = analyse(TRAINING)
    recorded = Recorded(analysis.dataflow)
    (found,) = [each for each in mined(analysis).findings if each.rule == "channels_last"]
    assert library_call(msgspec.structs.replace(found, rule="memory_bound_chain"), recorded, CAUSES, MARK) is None
    ops = recorded.timeline.ops
    kind = ops.column("input_shapes").type
    blank = ops.set_column(
        ops.column_names.index("input_shapes"), "input_shapes", pa.nulls(ops.num_rows, pa.string()).cast(kind)
    )
    without = Recorded(replace(recorded.flow, timeline=replace(recorded.timeline, ops=blank)))
    with pytest.raises(NotRecorded, match="shapes, dtypes or strides"):
        library_call(found, without, CAUSES, MARK)


def test_without_a_gpu_a_call_is_written_and_not_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("triton")
    options = ["--rule", "channels_last", "--format", "json", "--quiet", "--emit", str(tmp_path)]
    assert main(["verify", str(TRAINING), *options]) == 0
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    assert {(each["level"], each["by"]) for each in verdicts} == {("L0", CALL)}
    assert {each["not_tested"][1] for each in verdicts} == {
        "L2: a library's call has no kernel that could be validated on a CPU"
    }
    written = sorted(tmp_path.glob("*channels_last*.py"))
    assert sorted(each["source"] for each in verdicts) == sorted(path.read_text() for path in written)
    assert all(len(path.read_text().splitlines()) < 60 for path in written)


def test_its_file_is_short_and_without_a_gpu_says_what_is_right(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    text = written(CONVOLUTION)
    assert len(text.splitlines()) < 45
    ran = run(emitted.put(tmp_path, "call.py", text), "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["on_cpu"]
    assert found["ways"]["channels_last"]["faults"] == []
    tensors = (("x", (1 << 20, 8, 6, 6), "float16", (288, 36, 6, 1)), CONVOLUTION["tensors"][1])
    large = {**CONVOLUTION, "tensors": tensors}
    ran = run(emitted.put(tmp_path, "large.py", written(large)), "--json")
    assert (ran.returncode, ran.stderr.strip()) == (1, "this needs a GPU, and torch finds none")


def test_a_grouped_convolution_is_tried_as_one_batched_product(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    tensors = (("x", (2, 8, 7, 6), "float32", (336, 42, 6, 1)), ("weight", (4, 4, 3, 2), "float32", (24, 6, 2, 1)))
    given = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "transposed": False, "groups": 2}
    names = {"input": "x", "weight": "weight"}
    fixed = fixed_call(ways_of("grouped_convolution"), "aten::convolution", given, names, tensors)
    assert list(fixed.own) == ["unfold, bmm"]
    text = "aten.convolution(x, weight, None, [2, 1], [1, 0], [1, 2], False, [0, 0], 2)"
    call = {**CONVOLUTION, "tensors": tensors, "call": text, "fixed": fixed}
    found = json.loads(run(emitted.put(tmp_path, "call.py", written(call)), "--json").stdout)
    assert found["ways"]["unfold, bmm"]["faults"] == []
    spoiled = written(call).replace("(1, 2), 2)", "(1, 1), 2)").replace("(1, 0), (1", "(1, 0), (1")
    said = json.loads(run(emitted.put(tmp_path, "spoiled.py", spoiled), "--json").stdout)["ways"]["unfold, bmm"]
    assert said["faults"]  # another dilation
    for change in ({"transposed": True}, {"groups": 1}, {"groups": 8}):
        assert not fixed_call(ways_of("grouped_convolution"), "aten::convolution", given | change, names, tensors).own


def test_patches_are_multiplied_where_windows_lie_side_by_side() -> None:
    tensors = (("x", (2, 3, 9, 8), "float32", (216, 72, 8, 1)), ("weight", (4, 3, 4, 4), "float32", (48, 16, 4, 1)))
    given = {"stride": (4, 4), "padding": (0, 0), "dilation": (1, 1), "transposed": False, "groups": 1}
    names = {"input": "x", "weight": "weight"}
    fixed = fixed_call(ways_of("patch_convolution"), "aten::convolution", given, names, tensors)
    assert list(fixed.own) == ["patches, linear"]
    for change in ({"stride": (4, 2)}, {"padding": (0, 1)}, {"groups": 3}, {"dilation": (1, 2)}):
        assert not fixed_call(ways_of("patch_convolution"), "aten::convolution", given | change, names, tensors).own


def test_no_name_of_a_trace_becomes_code() -> None:
    name = 'x"""\nimport os; os.system("true")  # \\'
    text = written({**CONVOLUTION, "kernels": ((name, None),)})
    given = checked(text)
    ((shown, digest, grid),) = ast.literal_eval(given["trace"])
    assert "\n" not in shown
    assert (digest, grid) == (name_digest(name), None)


def test_a_measured_call_takes_off_no_more_than_the_finding_counts_of_it(tmp_path: Path) -> None:
    said: dict[str, Any] = printed() | {"by": CALL}
    verified = read_evidence([put(tmp_path / "out.json", said)]).on(FINDING, H200)
    assert verified is not None
    assert (verified.basis, verified.by) == ("measured", CALL)
    assert "another way 5.00 µs" in times_text(verified)
    eager_ns = verified.eager_ns
    assert eager_ns is not None

    def counted(ns: int) -> Finding:
        alike = Alike(occurrences=1, measured_ns=ns, gpu_saving_ns=Range(0, ns // 2, ns))
        return msgspec.structs.replace(FINDING, occurrences=1, measured_ns=ns, alike=alike)

    for ns in (eager_ns, 4 * eager_ns, 1_000):
        again = read_evidence([tmp_path / "out.json"]).on(counted(ns), H200)
        assert again is not None
        assert again.saved_share is not None
        assert again.eager_ns is not None
        assert again.fused_ns is not None
        assert again.saved_share.mid * ns == pytest.approx(min(again.eager_ns - again.fused_ns, ns), rel=1e-3)


def test_a_call_below_its_rate_is_tried_in_the_ways_that_are_for_such_calls() -> None:
    def ways(operator: str) -> set[str]:
        return set(fixed_call(ways_of("library_below_rate"), operator, {}, {}, ()).ways)

    assert ways("aten::mm") == {"padded", "cublasLt"}
    assert "channels_last" in ways("aten::convolution")
    assert not ways("aten::convolution") & ways("aten::mm")
    with pytest.raises(NoFixedForm, match="names the backend"):
        ways("aten::_scaled_dot_product_flash_attention")
