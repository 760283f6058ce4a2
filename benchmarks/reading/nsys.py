"""How fast and how small is an Nsight Systems export read? SQLite → Parquet, beside nsys-ai in the same run.

    python -m benchmarks nsys [--kernels 2000000] [--nsys-ai PYTHON]

The export is made here, with the columns of schema 3.20: so many kernels, each with its launch, and one PyTorch
operator with shapes and makers for every twentieth (`--operators-every`). Every figure is of a fresh process,
interpreter start and imports included.

nsys-ai (PyPI) is optional and may live in an environment of its own: it opens the same file and loads its kernels as
its own commands do. It makes no Parquet and joins less, so the comparison favours it.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PROCESS = 281484170625024
_SECONDS_LIMIT, _BYTES_LIMIT = 12.0, 1.5e9
_TABLES = {
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        "start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid",
        "demangledName", "shortName", "mangledName", "launchType", "cacheConfig", "registersPerThread",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
        "localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted", "graphNodeId",
        "sharedMemoryLimitConfig",
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue", "callchainId",
    ),
    "NVTX_EVENTS": (
        "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
        "domainId",
    ),
    "TARGET_INFO_GPU": ("id", "name", "cuDevice", "smCount", "computeMajor", "computeMinor"),
}  # fmt: skip

_TRACEMINE = """
from pathlib import Path
from tracemine.formats import open_trace
timeline = open_trace(Path(sys.argv[1]))
timeline.write(Path(sys.argv[2]))
assert timeline.activities.num_rows == int(sys.argv[3])
"""
_NSYS_AI = """
from nsys_ai.profile import open as open_profile
profile = open_profile(sys.argv[1])
rows = profile.kernels(device=0)
assert len(rows) == int(sys.argv[3]), len(rows)
"""
_MEASURED = """
import resource, sys
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


def make(path: Path, kernels: int, operators_every: int) -> None:
    """Write the export."""
    with sqlite3.connect(path) as database:
        database.execute("pragma synchronous = off")
        for table, columns in _TABLES.items():
            typed = ", ".join(f'"{c}" {"TEXT" if c in ("text", "value", "name") else "INTEGER"}' for c in columns)
            database.execute(f'create table "{table}" ({typed})')

        def fill(table: str, rows: Iterator[tuple[object, ...]]) -> None:
            database.executemany(f'insert into "{table}" values ({", ".join("?" * len(_TABLES[table]))})', rows)

        names = [
            f"void at::native::vectorized_elementwise_kernel<(int)4, Functor{i}<float>>(int, T2)" for i in range(200)
        ]
        fill("StringIds", ((i, name) for i, name in enumerate([*names, "cudaLaunchKernel_v7000"])))
        fill("TARGET_INFO_GPU", iter([(0, "NVIDIA H200", 0, 132, 9, 0)]))
        fill("CUPTI_ACTIVITY_KIND_KERNEL", (
            (i * 5000 + 3000, i * 5000 + 7000, 0, 1, 0, 7, i + 1, _PROCESS, i % 200, i % 200, i % 200, 1, 1, 32,
             1000 + i % 7, 1, 1, 128, 1, 1, 0, 1024, 0, 250_871_808, i, 32_768, None, 0) for i in range(kernels)
        ))  # fmt: skip
        fill("CUPTI_ACTIVITY_KIND_RUNTIME", (
            (i * 5000, i * 5000 + 1500, 0, _PROCESS | 548, i + 1, 200, 0, None) for i in range(kernels)
        ))  # fmt: skip
        fill("NVTX_EVENTS", (
            (i * 5000 - 100, i * 5000 + 2000, 59, None, None, None,
             f"aten::neg, op_id = {n}, sizes = [[512, 256]], input_op_ids = [({n - 1},{0 if n > 1 else -1})]",
             _PROCESS | 548, None, None, 0) for n, i in enumerate(range(0, kernels, operators_every), 1)
        ))  # fmt: skip
    database.close()


def measure(what: str, work: str, path: Path, kernels: int, python: str) -> tuple[float, float] | None:
    """Wall seconds and peak bytes of a fresh process; None, and why, where it cannot."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        begin = time.perf_counter()
        command = [python, "-c", _MEASURED.format(work=work), str(path), f"{folder}/timeline", str(kernels)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        wall_s = time.perf_counter() - begin
    if run.returncode:
        reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        print(f"  {what:<34}not measured: {reason}")
        return None
    cpu_s, peak = (float(text) for text in run.stdout.split()[-2:])
    print(f"  {what:<34}{wall_s:7.2f} s {cpu_s:7.2f} CPU-s {peak / 1e9:7.2f} GB peak")
    return wall_s, peak


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=2_000_000)
    parser.add_argument("--operators-every", type=int, default=20, help="an operator for every so many kernels")
    parser.add_argument("--nsys-ai", default=sys.executable, help="an interpreter that has nsys-ai installed")
    parser.add_argument("--repeat", type=int, default=2, help="runs of tracemine, of which the fastest counts")
    parser.add_argument("--folder", type=Path, help="where the export is made and deleted; 130 bytes a kernel")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "t.sqlite"
        make(path, options.kernels, options.operators_every)
        print(f"{options.kernels:,} kernels, {path.stat().st_size / 1e6:.0f} MB of SQLite:")
        ours = [
            measure("tracemine ingest, SQLite → Parquet", _TRACEMINE, path, options.kernels, sys.executable)
            for _ in range(options.repeat)
        ]
        theirs = measure("nsys-ai, kernels loaded", _NSYS_AI, path, options.kernels, options.nsys_ai)
    best = min((run for run in ours if run is not None), default=None)
    if best is None:
        return 1
    if theirs is not None:
        print(f"  {theirs[0] / best[0]:.1f} times the speed of nsys-ai, {theirs[1] / best[1]:.1f} times less memory")
    within = best[0] < _SECONDS_LIMIT and best[1] < _BYTES_LIMIT
    print(f"  {'within' if within else 'beyond'} {_SECONDS_LIMIT:g} s and {_BYTES_LIMIT / 1e9:g} GB")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
