"""What `F.rms_norm` takes, predicted beside measured: `python -m benchmarks library_norm [FILE...]`.

FILE: points of record_points.py that hold `native_rms_norm` or `lone_rms_norm` (those of benchmarks/results). Printed
are the time of a row that fits best (each shape left out in turn, too), and, a point, what eager's kernel took, what
torch.compile's took, and what is predicted.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.devices import find_device
from tracemine.fusion.kernel import FusedKernel
from tracemine.perfmodel import Curves, library_call

RESULTS = Path(__file__).parents[1] / "results"
ROW_NS = range(60, 121, 2)


def points(paths: list[Path]) -> list[tuple[str, tuple[int, int], Curves, FusedKernel, float, int, int]]:
    found = []
    for path in paths:
        recorded = json.loads(path.read_text("utf-8"))
        device = find_device(recorded["gpu"])
        curves = device and Curves.of(device)
        for point in recorded["points"]:
            if point["pattern"] not in ("native_rms_norm", "lone_rms_norm") or not curves:
                continue
            kernel = FusedKernel(**{k: tuple(v) if isinstance(v, list) else v for k, v in point["fused"][0].items()})
            for state, warm in (("cold", 0.0), ("warm", 1.0)):
                eager, compiled = (sum(point[f"{one}_{state}_ns"]) for one in ("eager", "compiled"))
                name = f"{recorded['gpu']} {point['dtype']} {'x'.join(map(str, point['size']))} {state}"
                found.append((name, tuple(point["size"]), curves, kernel, warm, eager, compiled))
    return found


def error(rows: list, row_ns: float) -> float:
    library_call._ROW_NS = row_ns
    return float(
        np.mean([abs(math.log(library_call.rms_norm_ns(c, k, warm) / eager)) for _, _, c, k, warm, eager, _ in rows])
    )


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(RESULTS.glob("h*00/points_*.json"))
    rows = points(paths)
    best = min(ROW_NS, key=lambda row_ns: error(rows, row_ns))
    out = []
    for shape in sorted({row[1] for row in rows}):
        others, own = ([row for row in rows if (row[1] == shape) is same] for same in (False, True))
        out += [error([row], min(ROW_NS, key=lambda row_ns: error(others, row_ns))) for row in own]
    print(f"a row takes {best} ns of a multiprocessor; error {error(rows, best):.0%}, left out {np.mean(out):.0%}\n")
    print("| | eager µs | torch.compile | predicted | loses, predicted |\n|---|---:|---:|---:|---|")
    for name, _, curves, kernel, warm, eager, compiled in rows:
        told = library_call.rms_norm_ns(curves, kernel, warm)
        loses = "yes" if library_call.rms_norm_loses(curves, kernel) else ""
        print(f"| {name} | {eager / 1000:.1f} | {compiled / 1000:.1f} | {told / 1000:.1f} | {loses} |")


if __name__ == "__main__":
    main()
