"""Record patterns on a CUDA machine: eager and torch.compile, cold and warm, and what one fused kernel would do.

    python benchmarks/record_points.py -o points.json [--group fresh] [PATTERN...]

A point holds Σ kernel durations (the median of a few runs, as the profiler reports them), and the bytes, rows and
steps of the pattern as one kernel: its inputs read once and its results written once. prediction_points.py reads it.
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
from patterns import PATTERNS
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parent.parent))

from tracemine.fusion.kernel import REDUCTIONS
from tracemine.fusion.steps import online_softmax, steps_of

REPEATS = 5
LOOK_UPS = {"aten::embedding", "aten::gather", "aten::index_select", "aten::index"}
B, H, S = torch.bfloat16, torch.float16, torch.float32
SIZES = {
    "first": ((B, 512, 1024), (B, 4096, 4096), (B, 16384, 5120), (S, 2048, 768), (S, 8192, 4096), (H, 64, 32000)),
    "fresh": ((B, 1024, 2048), (B, 6144, 12288), (S, 4096, 1024), (H, 32768, 640)),
}


class Ops(TorchDispatchMode):
    """The aten operators that run, with the tensors they take and give."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[Any, ...], list[torch.Tensor], list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        taken = [a for a in args if isinstance(a, torch.Tensor)]
        given = [o for o in (out if isinstance(out, tuple | list) else (out,)) if isinstance(o, torch.Tensor)]
        self.seen.append((func.overloadpacket._qualified_op_name, args, taken, given))
        return out


def describe(function, inputs) -> dict[str, Any]:
    """The pattern as one kernel: see tracemine.curves.FusedKernel."""
    with Ops() as ops, torch.no_grad():
        result = function(*inputs)
    results = result if isinstance(result, tuple) else (result,)
    # A table that is looked up is read as far as it is looked up.
    looked_up = {t.data_ptr() for name, _, taken, _ in ops.seen if name in LOOK_UPS for t in taken[:1]}
    own = [t for _, _, taken, given in ops.seen for t in (*taken, *given) if t.data_ptr() not in looked_up]
    full = max(t.numel() for t in own)
    rows, length, columns, steps = full, 1, False, []
    for name, args, taken, given in ops.seen:
        own = steps_of(name)
        if not taken or taken[0].data_ptr() == given[0].data_ptr():
            continue  # a view, a fill
        size = max(t.numel() for t in (*taken, *given) if t.data_ptr() not in looked_up)
        if own[0] in REDUCTIONS and size == full:
            keeps = own[0] in ("softmax", "scan") or (len(given) > 1 and given[0].numel() == full)
            axis = args[1] if own[0] in ("softmax", "scan") else None
            length = taken[0].shape[axis] if axis is not None else full // given[-1 if keeps else 0].numel()
            rows = full // length
            axes = args[1] if len(args) > 1 and isinstance(args[1], list) else [-1]
            columns = columns or (not keeps and taken[0].dim() > 1 and axes[0] % taken[0].dim() == 0 and len(axes) == 1)
        if size == full:
            steps += own
    return {
        "reads": [min(t.numel(), full) * t.element_size() for t in inputs],
        "writes": [t.numel() * t.element_size() for t in results],
        "rows": rows,
        "length": length,
        "item_bytes": max(t.element_size() for t in inputs if t.numel() == max(i.numel() for i in inputs)),
        "steps": list(online_softmax(tuple(steps))),
        "columns": columns,
        "strided": False,
    }


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


def record(name: str, dtype: torch.dtype, rows: int, columns: int, flush) -> dict[str, Any]:
    group, function, makers = PATTERNS[name]
    torch.manual_seed(0)
    inputs = [make(rows, columns, dtype) for make in makers]
    point: dict[str, Any] = {"pattern": name, "group": group, "dtype": str(dtype)[6:], "size": [rows, columns]}
    with torch.no_grad():
        point["fused"] = [describe(function, inputs)]
        torch._dynamo.reset()
        compiled = torch.compile(function, dynamic=False)
        for one in (function, compiled):
            for _ in range(3):
                one(*inputs)
        torch.cuda.synchronize()
        for label, one in (("eager", function), ("compiled", compiled)):
            for state in ("cold", "warm"):
                seen = timed(one, inputs, flush, state == "cold")
                point[f"{label}_{state}_ns"] = [ns for _, ns in seen]
                point[f"{label}_kernels"] = [kernel for kernel, _ in seen]
    return point


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--group", choices=sorted(SIZES))
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
            try:
                points.append(record(name, dtype, rows, columns, clear.sum))
            except Exception as error:
                print(f"{name} {dtype} {rows}x{columns}: {error}", file=sys.stderr)
        lines = ",\n".join(json.dumps(point, separators=(",", ":")) for point in points)
        chosen.output.write_text(f'{json.dumps(head)[:-1]}, "points": [\n{lines}\n]}}\n')  # what there is, if cut short
    print(f"{len(points)} points in {time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()
