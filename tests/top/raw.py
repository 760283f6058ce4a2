"""Raw Kineto events for tests, and sums over them that no code of tracemine makes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Events = list[dict[str, Any]]
GPU = ("kernel", "gpu_memcpy", "gpu_memset")


class Recording:
    """Events of one process: what the host calls lies on one thread, in order."""

    def __init__(self) -> None:
        self.events: Events = []
        self._correlation = 0

    def step(self, begin: int, end: int, number: int) -> None:
        self._add("user_annotation", f"ProfilerStep#{number}", begin, end - begin, tid=1)

    def around(self, name: str, begin: int, end: int, cat: str = "cpu_op", tid: int = 1, **args: Any) -> None:
        self._add(cat, name, begin, end - begin, tid=tid, **args)

    def kernel(
        self,
        name: str,
        launch: int,
        begin: int,
        dur: int,
        *,
        op: str | None = "aten::add",
        device: int = 0,
        stream: int = 7,
        tid: int = 1,
        **args: Any,
    ) -> None:
        """A kernel, its launch (2 µs) and its operator (4 µs around that)."""
        self._correlation += 1
        ids = {"correlation": self._correlation}
        if op is not None:
            self._add("cpu_op", op, launch - 1, 4, tid=tid, **args)
        self._add("cuda_runtime", "cudaLaunchKernel", launch, 2, tid=tid, **ids)
        self._add("kernel", name, begin, dur, pid=device, tid=stream, device=device, stream=stream, **ids)

    def written(self, folder: Path, **more: Any) -> Path:
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events, **more}), encoding="utf-8")
        return path

    def _add(self, cat: str, name: str, ts: int, dur: int, *, tid: int, pid: int = 10, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )


def brute(path: Path) -> dict[str, Any]:
    """Sums over a file's events, event by event: of kernels launched in a step, by what they are; and of the others."""
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["name"].startswith("ProfilerStep#")]
    launched = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    found: dict[str, Any] = {by: defaultdict(int) for by in ("kernel", "operator", "stream", "device")}
    outside = 0
    busy: dict[int, set[int]] = defaultdict(set)
    for e in (e for e in events if e["cat"] in GPU):
        call = launched[e["args"]["correlation"]]
        if steps and not any(begin <= call["ts"] < end for begin, end in steps):
            outside += 1000 * e["dur"]
            continue
        around = [
            o
            for o in events
            if o["cat"] == "cpu_op" and o["tid"] == call["tid"] and o["ts"] <= call["ts"] < o["ts"] + o["dur"]
        ]
        device = e["args"]["device"]
        found["kernel"][e["name"]] += 1000 * e["dur"]
        found["operator"][max(around, key=lambda o: o["ts"])["name"] if around else None] += 1000 * e["dur"]
        found["stream"][f"device {device} stream {e['args']['stream']}"] += 1000 * e["dur"]
        found["device"][f"device {device}"] += 1000 * e["dur"]
        busy[device].update(range(e["ts"], e["ts"] + e["dur"]))
    return {**found, "outside": outside, "busy": 1000 * sum(map(len, busy.values()))}
