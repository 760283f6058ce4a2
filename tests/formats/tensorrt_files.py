"""Write what trtexec exports of an engine: layers, their times, and times of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Tensor = tuple[str, list[int], str]  # name, dimensions, format

LINEAR32, LINEAR16 = "Row major linear FP32", "Row major linear FP16 format"
HALF = "Channel major FP16 format where channel % 8 == 0"
VECTOR32 = "Thirty-two wide channel vectorized row major FP32 format"
VECTOR16 = "Thirty-two wide channel vectorized row major FP16 format"
VECTOR8 = "Thirty-two wide channel vectorized row major Int8 format"


def layer(
    name: str, kind: str, reads: Sequence[Tensor], writes: Sequence[Tensor], ms: float, **more: Any
) -> dict[str, Any]:
    """Return a layer, and its time."""
    types = {"Convolution": "CaskConvolution", "Pooling": "TiledPooling"}
    return {
        "Name": name,
        "LayerType": types.get(kind, kind),
        "ParameterType": "Reformat" if more.get("Origin") else kind,
        "Inputs": [described(one) for one in reads],
        "Outputs": [described(one) for one in writes],
        "ms": ms,
        **more,
    }


def described(tensor: Tensor) -> dict[str, Any]:
    name, dims, layout = tensor
    return {"Name": name, "Location": "Device", "Dimensions": dims, "Format/Datatype": layout}


def convolution(
    name: str, reads: Sequence[Tensor], writes: Tensor, ms: float, *, size: int = 3, tactic: str = "sm80_i8"
) -> dict[str, Any]:
    """Return a convolution of size × size."""
    facts = {"Kernel": [size, size], "Groups": 1, "TacticName": tactic}
    return layer(name, "Convolution", reads, [writes], ms, **facts)


def quantized(name: str, reads: Tensor, writes: Tensor, ms: float) -> dict[str, Any]:
    """Return a quantisation or a dequantisation that is a layer of its own."""
    return layer(name, "Reformat", [reads], [writes], ms, Origin="QDQ")


def reformatted(name: str, reads: Tensor, writes: Tensor, ms: float) -> dict[str, Any]:
    """Return a copy into another format."""
    return layer(name, "Reformat", [reads], [writes], ms, Origin="REFORMAT")


def exported(
    folder: Path,
    layers: Sequence[dict[str, Any]],
    *,
    run_ms: float | None = None,
    gpu: str | None = None,
    runs: int = 100,
    name: str = "model",
) -> Path:
    """Write the exports of an engine; return the profile's path."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{key: value for key, value in one.items() if key != "ms"} for one in layers]
    (folder / f"{name}.graph.json").write_text(json.dumps({"Layers": rows, "Bindings": ["x"]}), encoding="utf-8")
    times = [
        {
            "name": one["Name"],
            "timeMs": one["ms"] * runs,
            "averageMs": one["ms"],
            "medianMs": one["ms"],
            "percentage": 1.0,
        }
        for one in layers
    ]
    profile = folder / f"{name}.profile.json"
    profile.write_text(json.dumps([{"count": runs}, *times]), encoding="utf-8")
    if run_ms is not None:
        queries = [
            {"startEnqMs": at, "endEnqMs": at + 0.01, "computeMs": run_ms, "latencyMs": run_ms} for at in range(5)
        ]
        (folder / f"{name}.times.json").write_text(json.dumps(queries), encoding="utf-8")
    if gpu is not None:
        about = {
            "performance_summary": {"GPU Compute Time": []},
            "device_information": {"Selected Device": gpu, "SMs": 108.0},
        }
        (folder / f"{name}.profile.metadata.json").write_text(json.dumps(about), encoding="utf-8")
    return profile


def wide(name: str, channels: int, layout: str, size: int = 56) -> Tensor:
    """Return a tensor of a batch of 32."""
    return (name, [32, channels, size, size], layout)


def gap_engine() -> list[dict[str, Any]]:
    """Return an INT8 engine whose residual is not quantised: products write FP16, and a layer narrows each result."""
    return [
        quantized("QuantizeLinear_0", wide("x", 3, LINEAR32, 112), wide("q0", 3, VECTOR8, 112), 0.03),
        convolution("conv1.weight + Conv_1", [wide("q0", 3, VECTOR8, 112)], wide("a", 64, VECTOR16), 0.09),
        quantized("QuantizeLinear_2", wide("a", 64, VECTOR16), wide("b", 64, VECTOR8), 0.028),
        convolution("layer1.conv1.weight + Conv_3", [wide("b", 64, VECTOR8)], wide("c", 64, VECTOR8), 0.033),
        convolution(
            "layer1.conv2.weight + Conv_4 + Add_5",
            [wide("c", 64, VECTOR8), wide("a", 64, VECTOR16)],
            wide("d", 64, VECTOR16),
            0.05,
        ),
        quantized("QuantizeLinear_6", wide("d", 64, VECTOR16), wide("e", 64, VECTOR8), 0.028),
        convolution("layer2.conv1.weight + Conv_7", [wide("e", 64, VECTOR8)], wide("f", 64, VECTOR8), 0.033),
        layer("GlobalAveragePool_8", "Pooling", [wide("f", 64, VECTOR8)], [("g", [32, 64, 1, 1], VECTOR8)], 0.009),
        convolution(
            "fc.weight + Gemm_9", [("g", [32, 64, 1, 1], VECTOR8)], ("y", [32, 10, 1, 1], LINEAR32), 0.012, size=1
        ),
    ]


def closed_engine() -> list[dict[str, Any]]:
    """Return the same with its residual quantised: nothing between products is wide."""
    return [
        quantized("QuantizeLinear_0", wide("x", 3, LINEAR32, 112), wide("q0", 3, VECTOR8, 112), 0.03),
        convolution("conv1.weight + Conv_1", [wide("q0", 3, VECTOR8, 112)], wide("b", 64, VECTOR8), 0.07),
        convolution("layer1.conv1.weight + Conv_3", [wide("b", 64, VECTOR8)], wide("c", 64, VECTOR8), 0.033),
        convolution(
            "layer1.conv2.weight + Conv_4 + Add_5",
            [wide("c", 64, VECTOR8), wide("b", 64, VECTOR8)],
            wide("e", 64, VECTOR8),
            0.035,
        ),
        convolution("layer2.conv1.weight + Conv_7", [wide("e", 64, VECTOR8)], wide("f", 64, VECTOR16), 0.036),
        layer("GlobalAveragePool_8", "Pooling", [wide("f", 64, VECTOR16)], [("g", [32, 64, 1, 1], VECTOR16)], 0.009),
        quantized("QuantizeLinear_9", ("g", [32, 64, 1, 1], VECTOR16), ("h", [32, 64, 1, 1], VECTOR8), 0.006),
        convolution(
            "fc.weight + Gemm_9", [("h", [32, 64, 1, 1], VECTOR8)], ("y", [32, 10, 1, 1], LINEAR32), 0.012, size=1
        ),
    ]
