"""Traces and trees as Proton lays them out: an event or a node a line here, written down by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

H200 = {"arch": "90", "bus_width": 6144, "clock_rate": 1980000, "memory_clock_rate": 3201000, "num_sms": 132}
CPU, GPU = 1000, 3000  # lanes


class Trace:
    """A trace that grows by scopes and kernels. Times in µs."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "Trace"}},
            {"ph": "M", "pid": 0, "tid": CPU, "name": "thread_name", "args": {"name": "CPU Thread 4"}},
            {"ph": "M", "pid": 0, "tid": GPU, "name": "thread_name", "args": {"name": "GPU Stream 7"}},
        ]
        self._flows = 0

    def scope(self, *stack: str, at: float, dur: float) -> None:
        args = {"call_stack": ["ROOT", *stack]}
        self.events.append(
            {"name": stack[-1], "cat": "scope", "ph": "X", "pid": 0, "tid": CPU, "ts": at, "dur": dur, "args": args}
        )

    def launched(self, *stack: str, at: float, kernels: list[tuple[str, float, float]], **metrics: float) -> None:
        """Add one launch in these scopes, of one kernel, or of a graph's: name, start and duration of each."""
        self._flows += 1
        self.scope(*stack, kernels[0][0], at=at, dur=2.5)
        flow = {"name": "launch->kernel", "cat": "flow", "pid": 0, "id": self._flows, "bp": "e"}
        self.events.append(flow | {"ph": "s", "tid": CPU, "ts": at})
        self.events.append(flow | {"ph": "f", "tid": GPU, "ts": kernels[0][1]})
        for name, start, dur in kernels:
            self.kernel(*stack, name, at=start, dur=dur, **metrics)

    def kernel(self, *stack: str, at: float, dur: float, **metrics: float) -> None:
        args = {"call_stack": ["ROOT", *stack]} | ({"metrics": metrics} if metrics else {})
        self.events.append(
            {"name": stack[-1], "cat": "kernel", "ph": "X", "pid": 0, "tid": GPU, "ts": at, "dur": dur, "args": args}
        )

    def written(self, folder: Path, name: str = "run.chrome_trace") -> Path:
        path = folder / name
        path.write_text(json.dumps({"displayTimeUnit": "us", "traceEvents": self.events}) + "\n", encoding="utf-8")
        return path

    def written_by_stream(self, folder: Path) -> Path:
        """Write kernels alone, as older versions do: an object a stream, whose number is the thread's."""
        kernels = [
            {key: e[key] for key in e if key != "pid"} | {"tid": 7} for e in self.events if e.get("cat") == "kernel"
        ]
        other = {"name": "copy_kernel", "cat": "kernel", "ph": "X", "ts": 1.0, "dur": 2.0, "tid": 13}
        lines = [
            {"displayTimeUnit": "us", "traceEvents": kernels},
            {"displayTimeUnit": "us", "traceEvents": [other | {"args": {"call_stack": ["ROOT", "copy_kernel"]}}]},
        ]
        path = folder / "old.chrome_trace"
        path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
        return path


def three_steps() -> Trace:
    """Three steps of a norm, a product and a replay of two kernels, and Proton's own sum."""
    trace = Trace()
    for at in (0.0, 100.0, 200.0):
        trace.scope("step", at=at, dur=90.0)
        trace.scope("step", "mlp", at=at + 1, dur=40.0)
        trace.launched("step", "mlp", at=at + 2, kernels=[("norm_kernel", at + 30, 6.125)], bytes=8_388_608.0)
        trace.launched("step", "mlp", at=at + 8, kernels=[("matmul_kernel", at + 37.5, 20.0)], bytes=1e6, flops16=1e9)
        trace.kernel("step", "mlp", "__proton_launch_metadata:matmul_kernel", "at::sum", at=at + 58, dur=1.0)
        replayed = [("vectorized_elementwise_kernel", at + 60, 2.0), ("reduce_kernel", at + 62.5, 3.0)]
        trace.launched("step", "replay", at=at + 50, kernels=replayed)
    return trace


def node(name: str, *children: dict[str, Any], **metrics: Any) -> dict[str, Any]:
    """Return a node of a tree; `time` is nanoseconds."""
    said = {"time (ns)" if key == "time" else key: value for key, value in metrics.items()}
    if "time" in metrics:
        said |= {"device_id": "0", "device_type": "CUDA"}
    return {"frame": {"name": name, "type": "function"}, "metrics": said, "children": list(children)}


def tree(folder: Path, *children: dict[str, Any], device: dict[str, Any] | None = None) -> Path:
    """Write a tree."""
    root = node("ROOT", *children)
    root["metrics"] = {"count": 0, "time (ns)": 0}
    path = folder / "run.hatchet"
    path.write_text(json.dumps([root, {"CUDA": {"0": H200 if device is None else device}}]), encoding="utf-8")
    return path


def summed(nodes: list[dict[str, Any]]) -> int:
    """Return the time of a tree as Proton's viewer adds it up: of all nodes but those of its own work."""
    total = 0
    for each in nodes:
        if each["frame"]["name"].split(":")[0] != "__proton_launch_metadata":
            total += each["metrics"].get("time (ns)", 0) + summed(each["children"])
    return total
