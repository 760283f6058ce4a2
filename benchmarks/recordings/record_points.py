"""Record patterns on a CUDA machine: eager and torch.compile, cold and warm.

    python -m benchmarks record_points -o points.json [--group third] [--autotune] [--seconds 60] [PATTERN...]

A point holds the durations of its kernels (each the median of a few runs, as the profiler reports them).
describe_points.py adds what they do, which needs no GPU, and prediction_points.py reads both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
import triton
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.patterns import PATTERNS

REPEATS = 5
B, H, S = torch.bfloat16, torch.float16, torch.float32
SIZES = {
    "first": ((B, 512, 1024), (B, 4096, 4096), (B, 16384, 5120), (S, 2048, 768), (S, 8192, 4096), (H, 64, 32000)),
    "fresh": ((B, 1024, 2048), (B, 6144, 12288), (S, 4096, 1024), (H, 32768, 640)),
    "third": ((B, 768, 1536), (B, 8192, 7168), (S, 3072, 2048), (H, 20480, 1280)),
    "native": (
        *((B, 1024, 128), (B, 16384, 128), (B, 262144, 128), (S, 65536, 64), (B, 65536, 256), (S, 32768, 512)),
        *((B, 4096, 768), (B, 16384, 1024), (S, 8192, 2048), (B, 4096, 4096), (H, 8192, 8192), (B, 2048, 32000)),
    ),
    "gemm": ((B, 4096, 4096), (B, 512, 2048), (H, 16384, 1024)),
}
AUTOTUNE = "max-autotune-no-cudagraphs"


def kernels(run) -> list[tuple[str, int]]:
    """(name, ns) of the GPU's activities while `run` runs."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    events = [e for e in profiled.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]
    return [(e.name(), e.duration_ns()) for e in sorted(events, key=lambda e: e.start_ns())]


def timed(function, inputs, flush, cold: bool) -> list[tuple[str, int]]:
    """(name, median ns) of each kernel of one call."""
    clearing = len(kernels(flush)) if cold else 0

    def run() -> None:
        for _ in range(REPEATS):
            if cold:
                flush()
            function(*inputs)

    seen = kernels(run)
    each = len(seen) // REPEATS
    if each * REPEATS != len(seen):
        raise RuntimeError(f"{len(seen)} kernels in {REPEATS} runs")
    return [
        (seen[k][0][:100], median_low(seen[run * each + k][1] for run in range(REPEATS))) for k in range(clearing, each)
    ]


def record(name: str, dtype: torch.dtype, rows: int, columns: int, flush, autotune: bool) -> dict[str, Any]:
    group, function, makers = PATTERNS[name]
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = [make(rows, columns, dtype) for make in makers]
    point: dict[str, Any] = {"pattern": name, "group": group, "dtype": str(dtype)[6:], "size": [rows, columns]}
    torch._dynamo.reset()
    runs = {"eager": function, "compiled": torch.compile(function, dynamic=False)}
    if autotune:
        runs["autotuned"] = torch.compile(function, dynamic=False, mode=AUTOTUNE)
    with torch.no_grad():
        for one in runs.values():
            for _ in range(3):
                one(*inputs)
        torch.cuda.synchronize()
        for label, one in runs.items():
            for state in ("cold", "warm"):
                seen = timed(one, inputs, flush, state == "cold")
                point[f"{label}_{state}_ns"] = [ns for _, ns in seen]
                point[f"{label}_kernels"] = [kernel for kernel, _ in seen]
    return point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--group", choices=sorted(SIZES))
    parser.add_argument("--autotune", action="store_true", help=f"torch.compile(mode={AUTOTUNE!r}) besides")
    parser.add_argument("--seconds", type=float, default=600.0, help="begin no point after so many")
    parser.add_argument("patterns", nargs="*")
    chosen = parser.parse_args()
    begin = time.time()
    clear = torch.ones(torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.float32, device="cuda")
    driver = Path("/proc/driver/nvidia/version")
    head = {
        "gpu": torch.cuda.get_device_name(),
        "driver": driver.read_text().splitlines()[0] if driver.exists() else None,
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
        "cuda": torch.version.cuda,
    }
    points: list[dict[str, Any]] = []
    for name, (group, _, _) in PATTERNS.items():
        if (chosen.patterns and name not in chosen.patterns) or (chosen.group and group != chosen.group):
            continue
        for dtype, rows, columns in SIZES[group]:
            if time.time() - begin > chosen.seconds:
                print(f"{name} {dtype} {rows}x{columns}: left out, no time", file=sys.stderr)
                continue
            try:
                points.append(record(name, dtype, rows, columns, clear.sum, chosen.autotune))
            except Exception as error:
                print(f"{name} {dtype} {rows}x{columns}: {error}", file=sys.stderr)
        lines = ",\n".join(json.dumps(point, separators=(",", ":")) for point in points)
        chosen.output.write_text(f'{json.dumps(head)[:-1]}, "points": [\n{lines}\n]}}\n')  # what there is, if cut short
    print(f"{len(points)} points in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
