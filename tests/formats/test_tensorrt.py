"""What trtexec exports of an engine: read in pairs, refused alone, added up as an independent reader adds it up."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.formats.damaged import answers
from tests.formats.tensorrt_files import VECTOR8, closed_engine, exported, gap_engine, layer
from tracemine.errors import InputError
from tracemine.flow import Evidence, flow
from tracemine.formats import open_trace
from tracemine.formats.discover import traces

_JOINED = "is a profile of TensorRT layers, which does not say how they are joined"
_LAYERS_TOO = "put the layers next to it, or pass --layers FILE: trtexec … --exportLayerInfo=FILE"
_SHARED = Path(os.environ.get("TRACEMINE_COMPAT_TRACES", "/nowhere")) / "compilers/tensorrt"
_ENGINES = sorted(_SHARED.glob("*/*.profile.json"))


def independent(profile: Path) -> dict[str, float]:
    """Return counts and sums by another reading: layers, those that take time, their time in a run, tensors."""
    rows = [row for row in json.loads(profile.read_text()) if "name" in row]
    layers = json.loads(Path(str(profile).replace(".profile.", ".graph.")).read_text())["Layers"]
    about = Path(str(profile).replace(".profile.", ".profile.metadata."))
    run_ms = json.loads(about.read_text())["performance_summary"]["GPU Compute Time"][3]
    spent = {row["name"]: row["averageMs"] for row in rows}
    quantised = sum(spent[one["Name"]] for one in layers if one.get("Origin") == "QDQ") / sum(spent.values()) * run_ms
    return {
        "layers": len(layers),
        "timed": sum(ms > 0 for ms in spent.values()),
        "run_ms": run_ms,
        "quantised_ms": quantised,
        "tensors": sum(len(one["Inputs"]) + len(one["Outputs"]) for one in layers),
        "joined": sum(
            any(each["Name"] == read["Name"] for other in layers for each in other["Outputs"])
            for one in layers
            for read in one["Inputs"]
        ),
    }


@pytest.mark.skipif(not _ENGINES, reason="TRACEMINE_COMPAT_TRACES names no folder with engines")
@pytest.mark.parametrize("profile", _ENGINES, ids=lambda path: path.parent.name)
def test_counts_and_sums_equal_an_independent_readers(profile: Path) -> None:
    expected, timeline = independent(profile), open_trace(profile)
    spent = dict.fromkeys(timeline.ops["name"].to_pylist(), 0)
    for row, ns in zip(
        timeline.activities["op_row"].to_pylist(), timeline.activities["dur_ns"].to_pylist(), strict=True
    ):
        spent[timeline.ops["name"][row].as_py()] += ns
    assert timeline.ops.num_rows == expected["layers"]
    assert timeline.activities.num_rows == expected["timed"]
    assert sum(spent.values()) / 1e6 == pytest.approx(expected["run_ms"], rel=1e-3)
    converted = spent.get("TensorRT::Quantize", 0) + spent.get("TensorRT::Dequantize", 0)
    assert converted / 1e6 == pytest.approx(expected["quantised_ms"], rel=1e-3)
    assert timeline.tensors.num_rows == expected["tensors"]
    written = set(timeline.tensors.filter(timeline.tensors["is_output"])["storage_id"].to_pylist())
    reads = timeline.tensors.to_pylist()
    assert sum(not row["is_output"] and row["storage_id"] in written for row in reads) == expected["joined"]


def test_layers_are_operators_and_what_takes_time_is_an_activity_too(tmp_path: Path) -> None:
    layers = [
        *gap_engine(),
        layer(
            "reshape",
            "NoOp",
            [("y", [32, 10, 1, 1], "Row major linear FP32")],
            [("z", [32, 10], "Row major linear FP32")],
            0,
        ),
    ]
    timeline = open_trace(exported(tmp_path, layers, run_ms=0.25, gpu="NVIDIA A100 80GB PCIe"))
    assert timeline.meta.format == "tensorrt"
    assert [device.name for device in timeline.meta.devices] == ["NVIDIA A100 80GB PCIe"]
    assert (timeline.ops.num_rows, timeline.activities.num_rows) == (10, 9)
    assert sum(timeline.activities["dur_ns"].to_pylist()) == pytest.approx(250_000, abs=10)
    starts, spent = (timeline.activities[name].to_pylist() for name in ("start_ns", "dur_ns"))
    assert starts == [sum(spent[:at]) for at in range(9)]
    assert timeline.ops["name"].to_pylist()[:3] == ["TensorRT::Quantize", "TensorRT::Convolution", "TensorRT::Quantize"]
    assert timeline.ops["module"].to_pylist()[3:5] == ["layer1.conv1", "layer1.conv2"]
    assert any("gaps between them are not known" in one for one in timeline.meta.ingest.warnings)
    assert any("scaled by 0.80" in one for one in timeline.meta.ingest.warnings)


def test_layers_are_joined_by_their_tensors_and_that_is_proven(tmp_path: Path) -> None:
    dataflow = flow(open_trace(exported(tmp_path, gap_engine())))
    joined = zip(dataflow.edges.producer.tolist(), dataflow.edges.consumer.tolist(), strict=True)
    assert sorted(joined) == sorted([*((at, at + 1) for at in range(8)), (1, 4)])  # the sum reads the first product too
    assert set(dataflow.reads.evidence[dataflow.edges.read].tolist()) == {Evidence.PROVEN}


def test_channels_fill_whole_vectors(tmp_path: Path) -> None:
    timeline = open_trace(exported(tmp_path, gap_engine()))
    elements = {
        row["tensor_id"]: row["numel"] for row in timeline.tensors.to_pylist() if row["shape"] == [32, 3, 112, 112]
    }
    assert sorted(elements.values()) == [32 * 3 * 112 * 112, 32 * 32 * 112 * 112]


def test_without_times_of_runs_layers_keep_their_own_and_that_is_said(tmp_path: Path) -> None:
    timeline = open_trace(exported(tmp_path, gap_engine()))
    assert sum(timeline.activities["dur_ns"].to_pylist()) == 313_000
    assert any("--exportTimes" in one for one in timeline.meta.ingest.warnings)


def test_any_of_the_files_and_their_folder_are_one_recording(tmp_path: Path) -> None:
    profile = exported(tmp_path, gap_engine(), run_ms=0.25, gpu="NVIDIA A100 80GB PCIe")
    for given in (tmp_path, *tmp_path.iterdir()):
        assert list(traces(str(given))) == [profile]
    of_each = [open_trace(path).activities for path in tmp_path.iterdir()]
    assert all(one.equals(of_each[0]) for one in of_each)


def test_layers_may_lie_elsewhere(tmp_path: Path) -> None:
    profile = exported(tmp_path / "run", gap_engine(), run_ms=0.25)
    together = open_trace(profile).activities
    layers = (tmp_path / "run" / "model.graph.json").replace(tmp_path / "engine.json")
    assert list(traces(str(tmp_path / "run"))) == [profile]  # its times are no trace of their own
    exported(tmp_path / "other", closed_engine())
    for given, part in ((profile, layers), (profile, tmp_path), (layers, tmp_path / "run")):
        assert open_trace(given, execution_trace=part).activities.equals(together)
    with pytest.raises(InputError, match="is no export of trtexec"):
        open_trace(profile, execution_trace=Path(__file__))
    with pytest.raises(InputError, match="there is no such file"):
        open_trace(profile, execution_trace=tmp_path / "none.json")


def test_scales_that_narrow_are_quantisations_and_others_none(tmp_path: Path) -> None:
    """TensorRT 8.2 writes them so."""
    engine = gap_engine()
    for one in engine:
        if one.pop("Origin", None):
            one |= {"LayerType": "Scale", "ParameterType": "Scale"}
    engine.insert(
        -1, layer("scale", "Scale", [("g", [32, 64, 1, 1], VECTOR8)], [("g2", [32, 64, 1, 1], VECTOR8)], 0.01)
    )
    kinds = [name.partition("::")[2] for name in open_trace(exported(tmp_path, engine)).ops["name"].to_pylist()]
    assert (kinds.count("Quantize"), kinds.count("Scale")) == (3, 1)


def test_two_engines_in_one_folder_are_told_apart_by_their_names(tmp_path: Path) -> None:
    before = exported(tmp_path, gap_engine(), run_ms=0.25, name="before")
    after = exported(tmp_path, closed_engine(), run_ms=0.2, name="after")
    assert list(traces(str(tmp_path))) == [after, before]
    assert [open_trace(path).ops.num_rows for path in (before, after)] == [9, 8]


def test_gzipped_exports_are_read(tmp_path: Path) -> None:
    profile = exported(tmp_path, gap_engine())
    for path in list(tmp_path.iterdir()):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert open_trace(profile.with_name(f"{profile.name}.gz")).ops.num_rows == 9


@pytest.mark.parametrize(
    ("kept", "says", "hint"),
    [
        ("profile.json", _JOINED, _LAYERS_TOO),
        ("times.json", _JOINED, _LAYERS_TOO),
        ("graph.json", "is TensorRT's layers, which have no times", "pass the profile, and these by --layers"),
        ("metadata.json", "is a summary of TensorRT runs, which names no layer", _LAYERS_TOO),
    ],
)
def test_alone_a_file_is_refused_with_what_is_missing(tmp_path: Path, kept: str, says: str, hint: str) -> None:
    exported(tmp_path, gap_engine(), run_ms=0.25, gpu="NVIDIA A100 80GB PCIe")
    for path in list(tmp_path.iterdir()):
        if not path.name.endswith(kept):
            path.unlink()
    (path,) = tmp_path.iterdir()
    with pytest.raises(InputError) as refused:
        open_trace(path)
    assert refused.value.message == says
    assert (refused.value.hint or "").startswith(hint)
    assert refused.value.exit_code == 2


def test_layers_by_their_names_alone_and_layers_of_another_engine_are_refused(tmp_path: Path) -> None:
    profile = exported(tmp_path, gap_engine())
    layers = tmp_path / "model.graph.json"
    layers.write_text(json.dumps({"Layers": ["conv", "pool"], "Bindings": []}))
    with pytest.raises(InputError, match="layers by their names alone"):
        open_trace(profile)
    layers.write_text(
        json.dumps({"Layers": [{"Name": "other", "LayerType": "Pooling", "Inputs": [], "Outputs": []}], "Bindings": []})
    )
    with pytest.raises(InputError, match="of another engine"):
        open_trace(profile)


def test_layers_that_stand_for_whole_regions_are_said_to_hide_them(tmp_path: Path) -> None:
    tensor = ("x", [-1, 64], "Row major linear FP16 format")
    timeline = open_trace(
        exported(tmp_path, [layer("{ForeignNode[a...b]}", "Myelin", [tensor], [("y", [-1, 64], tensor[2])], 1.0)])
    )
    assert any(
        one.startswith("100% of the time is in layers that are whole regions") for one in timeline.meta.ingest.warnings
    )
    assert any("only a run knows" in one for one in timeline.meta.ingest.warnings)


def test_cut_off_anywhere_it_is_an_error_or_a_report(tmp_path: Path) -> None:
    profile = exported(tmp_path / "whole", gap_engine(), run_ms=0.25, gpu="NVIDIA A100 80GB PCIe")
    for path in sorted(profile.parent.iterdir()):
        whole = path.read_bytes()
        for part in range(20):
            cut = tmp_path / f"{path.name}{part}"
            shutil.copytree(profile.parent, cut)
            (cut / path.name).write_bytes(whole[: len(whole) * part // 20])
            answers(cut / profile.name)


def test_changed_bytes_are_each_an_error_or_a_report(tmp_path: Path) -> None:
    profile = exported(tmp_path, gap_engine(), run_ms=0.25, gpu="NVIDIA A100 80GB PCIe")
    chosen, read = random.Random(43), 0
    for path in sorted(tmp_path.iterdir()):
        whole = bytearray(path.read_bytes())
        for turn in range(25):
            at = chosen.randrange(len(whole))
            kept, whole[at] = whole[at], chosen.randrange(256)
            path.write_bytes(whole)
            whole[at] = kept
            read += answers(profile, report=not turn % 25)
        path.write_bytes(whole)
    assert read > 10  # of 100: names and numbers may be other ones


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (
            "graph",
            {
                "Layers": [
                    {"Name": "conv", "Inputs": 3, "Outputs": [{"Name": 7}, {"Name": "y", "Dimensions": ["a", 1e30]}]}
                ]
            },
        ),
        ("graph", {"Layers": [7, None]}),
        ("profile", [{"count": 1}, {"name": "conv", "averageMs": 1e300}]),
        ("profile", [{"count": 1}, {"name": "conv", "averageMs": -1}]),
        ("profile", {"name": "conv"}),
        ("times", [{"startEnqMs": 1, "computeMs": "soon"}, 3]),
        (
            "profile.metadata",
            {"performance_summary": [], "device_information": {"Selected Device": "GPU", "SMs": "many"}},
        ),
    ],
)
def test_values_of_other_types_are_an_error_or_a_report(tmp_path: Path, kind: str, content: Any) -> None:
    profile = exported(tmp_path, [layer("conv", "Pooling", [], [], 0.1)], run_ms=0.25, gpu="NVIDIA A100 80GB PCIe")
    (tmp_path / f"model.{kind}.json").write_text(json.dumps(content))
    answers(profile)
