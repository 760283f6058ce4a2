"""Write profiles as ONNX Runtime's profiler does, and models as ONNX has them. Their kernels are invented."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
SHAPE = [4, 128, 256]


class ProfiledNode(Struct, frozen=True):
    """A node: its operator, what it reads, and how long the host and the device are at it, in microseconds."""

    name: str
    op_type: str
    reads: tuple[str, ...] = ()
    host_us: int = 10
    device_us: int | None = None  # None: no kernel was recorded
    provider: str = CUDA


def chain(*kinds: str, device_us: int | None = 8, host_us: int = 10) -> list[ProfiledNode]:
    """Return nodes that each read what the one before gives."""
    names = [f"{kind}_{at}" for at, kind in enumerate(kinds)]
    before = ["x", *names]
    return [
        ProfiledNode(name, kind, (before[at],), host_us=host_us, device_us=device_us)
        for at, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]


def layer_norm(begins: str, reads: str, device_us: int | None = 8) -> list[ProfiledNode]:
    """Return the nine nodes of a LayerNorm as opset 13 spells it."""
    spelled = [
        ("mean", "ReduceMean", (reads,)),
        ("sub", "Sub", (reads, "mean")),
        ("pow", "Pow", ("sub",)),
        ("var", "ReduceMean", ("pow",)),
        ("eps", "Add", ("var",)),
        ("sqrt", "Sqrt", ("eps",)),
        ("div", "Div", ("sub", "sqrt")),
        ("mul", "Mul", ("div",)),
        ("add", "Add", ("mul",)),
    ]
    own = {name for name, _, _ in spelled}
    return [
        ProfiledNode(
            begins + name, kind, tuple(begins + one if one in own else one for one in given), device_us=device_us
        )
        for name, kind, given in spelled
    ]


def quantised_product(*, taken_in: bool, device_us: int | None = 20) -> list[ProfiledNode]:
    """Return a product between Q and DQ, and a second one; or both as ONNX Runtime takes Q/DQ into them."""
    spelled = [
        ("x_q", "QuantizeLinear", ("x",)),
        ("x_dq", "DequantizeLinear", ("x_q",)),
        ("w_dq", "DequantizeLinear", ("weight",)),
        ("y", "MatMul", ("x_dq", "w_dq")),
        ("y_q", "QuantizeLinear", ("y",)),
        ("y_dq", "DequantizeLinear", ("y_q",)),
    ]
    if taken_in:
        spelled = [spelled[0], ("y", "QLinearMatMul", ("x_q", "weight")), ("y_dq", "DequantizeLinear", ("y",))]
    return [
        ProfiledNode(name, kind, reads, host_us=5, device_us=device_us)
        for name, kind, reads in (*spelled, ("z", "Relu", ("y_dq",)))
    ]


def profiled(
    folder: Path, nodes: Sequence[ProfiledNode], *, runs: int = 3, model: bool = True, tuned_us: int = 5_000
) -> Path:
    """Write the profile of some runs, the first of which tunes, and the model next to it; return the profile's path."""
    folder.mkdir(parents=True, exist_ok=True)
    events: list[dict[str, Any]] = [
        session("model_loading_uri", 4, 900),
        session("session_initialization", 950, 20_000),
    ]
    now = free = 30_000
    for run in range(runs):
        begin, now = now, now + (tuned_us if not run else 5)
        for number, node in enumerate(nodes):
            events.append(node_event(node, number, now))
            if node.device_us is not None:
                free = max(free, now + node.host_us // 2)
                events.append(kernel_event(node, free))
                free += node.device_us
            now += node.host_us
            if node.op_type == "MemcpyToHost":
                now = max(now, free)
        now = max(now, free) + 5
        events.append(session("model_run", begin, now - begin))
        now += 100
    path = folder / "profile.json"
    written(path, events)
    if model:
        (folder / "opt.onnx").write_bytes(model_of(nodes))
    return path


def written(path: Path, events: Sequence[dict[str, Any]]) -> None:
    """Write events as the profiler does: one a line."""
    lines = ",\n".join(json.dumps(one, separators=(",", " :")) for one in events)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def session(name: str, at: int, us: int) -> dict[str, Any]:
    return {"cat": "Session", "pid": 7, "tid": 7, "dur": us, "ts": at, "ph": "X", "name": name, "args": {}}


def node_event(node: ProfiledNode, number: int, at: int) -> dict[str, Any]:
    facts = {
        "op_name": node.op_type,
        "provider": node.provider,
        "node_index": str(number),
        "input_type_shape": [{"float": SHAPE} for _ in node.reads],
        "output_type_shape": [{"float": SHAPE}],
        "output_size": "524288",
        "thread_scheduling_stats": "",
    }
    return {
        "cat": "Node", "pid": 7, "tid": 7, "dur": node.host_us, "ts": at, "ph": "X",
        "name": f"{node.name}_kernel_time", "args": facts,
    }  # fmt: skip


def kernel_event(node: ProfiledNode, at: int) -> dict[str, Any]:
    facts = {"stream": "7", "grid_x": "64", "block_x": "256", "op_name": node.op_type}
    name = (
        "MemcpyDeviceToHost"
        if node.op_type.startswith("Memcpy")
        else f"void onnxruntime::cuda::{node.op_type}Kernel<float>(float*)"
    )
    return {
        "cat": "Kernel",
        "pid": -1,
        "tid": -1,
        "dur": node.device_us,
        "ts": at,
        "ph": "X",
        "name": name,
        "args": facts,
    }


def model_of(nodes: Sequence[ProfiledNode]) -> bytes:
    """Return a model of these nodes: each gives a tensor of its own name, the last one's is the model's."""
    graph = b"".join(
        _field(
            1,
            b"".join(
                [
                    *(_field(1, one.encode()) for one in node.reads),
                    _field(2, node.name.encode()),
                    _field(3, node.name.encode()),
                    _field(4, node.op_type.encode()),
                ]
            ),
        )
        for node in nodes
    )
    weights = {one for node in nodes for one in node.reads if one.startswith("weight")}
    constants = b"".join(_field(5, _field(8, one.encode())) for one in sorted(weights))
    return _field(7, graph + constants + _field(12, _field(1, nodes[-1].name.encode())))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = [value >> shift & 0x7F for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
