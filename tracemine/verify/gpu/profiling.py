"""Profile a GPU by torch.profiler, and separate samples."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tracemine.verify.gpu.correctness import Described, copies, make_inputs
from tracemine.verify.gpu.marks import name_digest

_MARK = "spin_kernel"  # of torch.cuda._sleep: stands between samples


def traced(work: Callable[[], object]) -> list[dict[str, Any]]:
    """Return what the GPU did during `work`, as torch.profiler saw it: name, start_ns, dur_ns, grid; by start."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text("utf-8"))["traceEvents"]
    found = [
        {
            "name": e["name"],
            "start_ns": round(e["ts"] * 1000),
            "dur_ns": round(e["dur"] * 1000),
            "grid": e["args"].get("grid"),
        }
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    return sorted(found, key=lambda e: e["start_ns"])


def replayed(eager: Any, described: Described, recorded: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return whether eager launches the trace's own kernels. recorded: of each a short name, a digest, a grid."""
    inputs = make_inputs(described)
    eager(*copies(inputs))  # libraries load, memory is taken
    torch.cuda.synchronize()
    ours = copies(inputs)
    torch.cuda.synchronize()
    found = traced(lambda: eager(*ours))
    ours_by_digest = sorted((name_digest(e["name"]), tuple(e["grid"] or ())) for e in found)
    theirs = sorted((str(digest), tuple(grid or ())) for _, digest, grid in recorded)
    names = [digest for digest, _ in ours_by_digest] == [digest for digest, _ in theirs]
    grids = ours_by_digest == theirs
    return {
        "same_count": len(found) == len(recorded),
        "same_names": names,
        "same_grids": grids,
        "kernels": [[e["name"], e["grid"]] for e in found],
    }


def between_marks(events: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the events between every first and second mark."""
    inside: list[Mapping[str, Any]] | None = None
    for event in events:
        if _MARK in event["name"]:
            if inside is not None:
                yield inside
            inside = [] if inside is None else None
        elif inside is not None:
            inside.append(event)


def flusher() -> Callable[[], None]:
    """Empty the L2 cache without leaving lines that must be written back: twice its size is written, then read."""
    nbytes = 2 * torch.cuda.get_device_properties(0).L2_cache_size
    memory = torch.empty(nbytes // 4, dtype=torch.float32, device="cuda")

    def flush() -> None:
        memory.fill_(1.0)
        memory.sum()

    return flush


@cache  # it is the GPU's, and not a file's
def peak_bytes_per_second() -> float:
    """Return what this GPU's memory moves at most: of a large copy and a large read, the faster."""
    memory = torch.empty(1 << 29, dtype=torch.uint8, device="cuda").view(torch.float32).fill_(1.0)
    other = torch.empty_like(memory)

    def work() -> None:
        for _ in range(4):
            other.copy_(memory)
            torch.cuda._sleep(1)
        for _ in range(4):
            memory.sum()
            torch.cuda._sleep(1)

    found: list[int] = [0]
    for event in traced(work):
        if _MARK in event["name"]:
            found.append(0)
        else:
            found[-1] += event["dur_ns"]
    return float(memory.numel() * 4 / min(min(found[1:4]) / 2, min(found[5:8])) * 1e9)
