"""Profiles of ONNX Runtime: nodes are the host's, kernels the GPU's, and the optimised model joins them."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.formats.damaged import answers
from tests.formats.onnxruntime_files import (
    CPU,
    ProfiledNode,
    chain,
    layer_norm,
    profiled,
    quantised_product,
    session,
    written,
)
from tracemine.comparison import diff
from tracemine.errors import InputError
from tracemine.formats import open_trace
from tracemine.formats.onnxruntime.model import Graph, read_model
from tracemine.pipeline import scan
from tracemine.report import Drawing, renderer
from tracemine.timeline import Timeline

_SHARED = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere")) / "compilers/onnxruntime"
shared = pytest.mark.skipif(not _SHARED.is_dir(), reason="TRACEMINE_COMPAT_TRACES names no folder of profiles")
_GELU = ("Div", "Erf", "Add", "Mul", "Mul")


def said(timeline: Timeline) -> str:
    return "\n".join(timeline.meta.ingest.warnings)


def independent(path: Path) -> tuple[Counter[str], float]:
    """Return how often each operator runs behind the first run, and for how many microseconds of the host in all."""
    events = json.loads(gzip.decompress(path.read_bytes()))
    runs = sorted((one["ts"], one["dur"]) for one in events if one["name"] == "model_run")[1:]
    nodes = [one for one in events if one["cat"] == "Node" and any(at <= one["ts"] < at + us for at, us in runs)]
    return Counter(one["args"]["op_name"] for one in nodes), sum(one["dur"] for one in nodes)


@shared
@pytest.mark.parametrize(
    ("level", "nodes", "pairs", "parts"),
    [("off", 52, 24, {"LayerNorm": 2, "Gelu": 2, "scale and softmax": 2}), ("extended", 24, 0, {})],
)
def test_a_transformer_at_two_levels(level: str, nodes: int, pairs: int, parts: dict[str, int]) -> None:
    path = _SHARED / f"ort_cpu_{level}.json.gz"
    timeline = open_trace(path)
    counts, spent_us = independent(path)
    assert Counter(name.removeprefix("onnx::") for name in timeline.ops["name"].to_pylist()) == counts
    assert sum(timeline.ops["dur_ns"].to_pylist()) / 1e3 == pytest.approx(spent_us, rel=1e-3)
    assert timeline.activities.num_rows == 0  # the host's times are no GPU's
    model = read_model(_SHARED / f"ort_cpu_{level}.optimized.onnx")
    graph = Graph(model, list(model.nodes))
    assert len(graph.types) == nodes
    assert len(graph.pairs()) == pairs
    assert Counter(what for what, _ in graph.fused()) == parts
    assert ("ort_optimisation_level" in said(timeline)) == (level == "off")
    assert "is a profile of the CPU provider: shares, no savings" in said(timeline)


@shared
def test_each_profiled_node_is_one_of_the_model_beside() -> None:
    for level in ("off", "extended"):
        timeline = open_trace(_SHARED / f"ort_cpu_{level}.json.gz")
        model = read_model(_SHARED / f"ort_cpu_{level}.optimized.onnx")
        names = {
            word.removeprefix("node=")
            for text in timeline.ops["concrete_inputs"].to_pylist()
            for word in json.loads(text)
            if word.startswith("node=")
        }
        assert names == set(model.nodes)
        written_rows = {row["storage_id"] for row in timeline.tensors.to_pylist() if row["is_output"]}
        assert all(row["storage_id"] in written_rows for row in timeline.tensors.to_pylist())


def test_kernels_are_the_gpus_and_nodes_the_hosts(tmp_path: Path) -> None:
    timeline = open_trace(profiled(tmp_path, chain("MatMul", *_GELU)))
    assert timeline.meta.format == "onnxruntime"
    assert (timeline.steps.num_rows, timeline.ops.num_rows, timeline.activities.num_rows) == (2, 12, 12)
    assert set(timeline.activities["dur_ns"].to_pylist()) == {8_000}
    owners = [timeline.ops["name"][row].as_py() for row in timeline.activities["op_row"].to_pylist()]
    assert owners[:6] == ["onnx::MatMul", *(f"onnx::{kind}" for kind in _GELU)]
    assert timeline.activities["step_row"].to_pylist() == [0] * 6 + [1] * 6
    assert "Host times only" not in said(timeline)
    assert "The first run, of 5.07 ms, is left out" in said(timeline)


def test_without_kernels_a_gpus_nodes_are_host_times_and_none_is_called_gpu_time(tmp_path: Path) -> None:
    path = profiled(tmp_path, chain("MatMul", *_GELU, device_us=None))
    assert open_trace(path).activities.num_rows == 0
    out = StringIO()
    renderer("text")(scan(path), out, Drawing(whole=False))
    first, *rest = out.getvalue().splitlines()
    assert first.startswith("Host times only")
    assert not any("GPU time" in line or "ProfilerActivity" in line or "torch" in line for line in rest)


def test_without_the_model_no_chain_is_claimed_and_the_way_out_is_said(tmp_path: Path) -> None:
    timeline = open_trace(profiled(tmp_path, chain("MatMul", *_GELU, device_us=None), model=False))
    assert "optimized_model_filepath" in said(timeline)
    assert "ort_optimisation_level" not in said(timeline)
    assert timeline.tensors.num_rows == 0


def test_a_model_of_another_profile_is_left_alone(tmp_path: Path) -> None:
    path = profiled(tmp_path, chain("MatMul", *_GELU, device_us=None))
    profiled(tmp_path / "other", chain("Conv", "Relu"))
    own = (tmp_path / "opt.onnx").read_bytes()
    (tmp_path / "opt.onnx").write_bytes((tmp_path / "other" / "opt.onnx").read_bytes())
    assert "opt.onnx has 0 of the 6 nodes that were profiled: it is not the model that ran" in said(open_trace(path))
    (tmp_path / "elsewhere.onnx").write_bytes(own)
    assert "1 × Gelu of 5" in said(open_trace(path, execution_trace=tmp_path / "elsewhere.onnx"))


def test_a_result_that_another_node_reads_too_is_no_pair(tmp_path: Path) -> None:
    nodes = [*chain("MatMul", "Add", "Relu"), ProfiledNode("Sum_3", "Add", ("Add_1", "Relu_2"))]
    profiled(tmp_path, nodes)
    model = read_model(tmp_path / "opt.onnx")
    assert Graph(model, list(model.nodes)).pairs() == [("Relu_2", "Sum_3")]


def test_layer_norms_and_gelus_are_found_along_the_dataflow_whatever_their_order(tmp_path: Path) -> None:
    nodes = [*chain("MatMul"), *layer_norm("a.", "MatMul_0"), *layer_norm("b.", "a.add")]
    random.Random(4).shuffle(nodes)
    profiled(tmp_path, nodes)
    model = read_model(tmp_path / "opt.onnx")
    assert Counter(what for what, _ in Graph(model, list(model.nodes)).fused()) == {"LayerNorm": 2}
    assert not [*Graph(model, [node.name for node in nodes if node.name != "a.sqrt"]).fused()][1:]


def test_a_quantised_product_that_is_computed_in_float_is_said_with_its_weights_and_conversions(tmp_path: Path) -> None:
    text = said(open_trace(profiled(tmp_path / "apart", quantised_product(taken_in=False, device_us=None))))
    assert "MatMul read dequantised operands. Nothing is computed in 8 bits: set graph_optimization_level" in text
    assert "no operator takes in (ort_quantised_apart): QuantizeLinear ×2, DequantizeLinear ×2" in text
    assert "Weights are dequantised in every run (ort_quantised_apart): DequantizeLinear" in text
    assert "compare the task's accuracy" in text
    taken = said(open_trace(profiled(tmp_path / "in", quantised_product(taken_in=True, device_us=None))))
    assert "dequantised" not in taken
    assert "accuracy" not in taken


def test_float_operators_between_integers_are_islands_and_no_gelu(tmp_path: Path) -> None:
    kinds = ("DynamicQuantizeLinear", "MatMulIntegerToFloat", "Gelu", "DynamicQuantizeLinear", "MatMulIntegerToFloat")
    timeline = open_trace(profiled(tmp_path, chain(*kinds, device_us=None)))
    assert "Float islands: Gelu computes in floating point" in said(timeline)
    assert "ort_optimisation_level" not in said(timeline)


def _with_fallback(*, copied_us: int | None = 4) -> list[ProfiledNode]:
    """Return a model of which one node runs on the CPU between two copies."""
    return [
        *chain("MatMul", "Relu"),
        ProfiledNode("Memcpy", "MemcpyToHost", ("Relu_1",), device_us=copied_us),
        ProfiledNode("NonZero_2", "NonZero", ("Memcpy",), host_us=120, provider=CPU),
        ProfiledNode("Memcpy_token_1", "MemcpyFromHost", ("NonZero_2",), device_us=copied_us),
        ProfiledNode("MatMul_3", "MatMul", ("Memcpy_token_1",), device_us=80),
    ]


def test_a_fallback_is_named_with_both_copies(tmp_path: Path) -> None:
    told = said(open_trace(profiled(tmp_path, _with_fallback())))
    assert "ort_cpu_fallback): NonZero runs on the CPU between nodes on the GPU, with 2 copies" in told
    assert "disable_cpu_ep_fallback" in told


def test_nodes_on_the_cpu_before_and_behind_the_gpus_are_no_fallback(tmp_path: Path) -> None:
    nodes = [
        ProfiledNode("Cast_0", "Cast", provider=CPU),
        *chain("MatMul", "Relu"),
        ProfiledNode("Cast_1", "Cast", ("Relu_1",), provider=CPU),
    ]
    assert "ort_cpu_fallback" not in said(open_trace(profiled(tmp_path, nodes)))


def test_runs_without_nodes_are_a_graphs_replays(tmp_path: Path) -> None:
    path = profiled(tmp_path, chain("MatMul", "Relu"))
    events = [*json.loads(path.read_text()), session("model_run", 80_000, 50), session("model_run", 80_100, 50)]
    written(path, events)
    timeline = open_trace(path)
    assert "2 runs have no nodes: a CUDA graph was replayed" in said(timeline)
    assert timeline.steps.num_rows == 2


def test_an_empty_profile_says_how_it_gets_its_end(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    with pytest.raises(InputError, match="is empty"):
        open_trace(tmp_path / "empty.json")
    written(tmp_path / "loaded.json", [session("model_loading_uri", 4, 900)])
    with pytest.raises(InputError, match="holds no node of ONNX Runtime") as refused:
        open_trace(tmp_path / "loaded.json")
    assert "end_profiling" in (refused.value.hint or "")


def test_a_cut_file_keeps_what_came_before(tmp_path: Path) -> None:
    path = profiled(tmp_path, chain("MatMul", *_GELU))
    path.write_bytes(path.read_bytes()[:-700])
    timeline = open_trace(path)
    assert timeline.meta.ingest.truncated
    assert timeline.ops.num_rows >= 6


def test_another_layout_of_the_same_json_is_read(tmp_path: Path) -> None:
    path = profiled(tmp_path, chain("MatMul", *_GELU))
    plain = open_trace(path).activities
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert open_trace(path).activities.equals(plain)


@pytest.mark.parametrize("name", ["profile.json", "opt.onnx"])
def test_cut_off_anywhere_it_is_an_error_or_a_report(tmp_path: Path, name: str) -> None:
    path = profiled(tmp_path, _with_fallback())
    whole = (tmp_path / name).read_bytes()
    read = 0
    for part in range(20):
        (tmp_path / name).write_bytes(whole[: len(whole) * part // 20])
        read += answers(path)
    assert read >= (20 if name == "opt.onnx" else 10)


@pytest.mark.parametrize("name", ["profile.json", "opt.onnx"])
def test_changed_bytes_are_each_an_error_or_a_report(tmp_path: Path, name: str) -> None:
    path = profiled(tmp_path, _with_fallback())
    chosen, whole, read = random.Random(43), bytearray((tmp_path / name).read_bytes()), 0
    for turn in range(50):
        at = chosen.randrange(len(whole))
        kept, whole[at] = whole[at], chosen.randrange(256)
        (tmp_path / name).write_bytes(whole)
        whole[at] = kept
        read += answers(path, report=not turn % 25)
    assert read >= 44  # a line that is none is left out


@pytest.mark.parametrize(
    "changed",
    [
        {"ts": 1e300},
        {"ts": -5},
        {"dur": "long"},
        {
            "args": {
                "op_name": "Add",
                "provider": CPU,
                "output_type_shape": [{"float": [-1, "a"]}, 3],
                "input_type_shape": {"x": 1},
            }
        },
        {"args": {"op_name": 7}},
        {"pid": 1 << 70},
    ],
)
def test_values_of_other_types_are_an_error_or_a_report(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = profiled(tmp_path, chain("MatMul", "Add"))
    events = json.loads(path.read_text())
    events[-3] |= changed
    written(path, events)
    assert answers(path)


def test_runs_of_the_host_compare_where_no_gpu_was_recorded(tmp_path: Path) -> None:
    slow, fast = (
        profiled(tmp_path / name, chain("MatMul", "Relu", device_us=None, host_us=us))
        for name, us in (("slow", 4_000), ("fast", 1_000))
    )
    difference = diff(*(scan(path) for path in (slow, fast)))
    assert not difference.incomparable
    assert difference.step.status == "improved"
