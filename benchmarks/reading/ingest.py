"""How fast and how small is ingest? JSON → Parquet beside `orjson.loads` alone and HTA's `parse_traces`, in one run.

    python -m benchmarks ingest [BASE.json.gz] [--megabytes 1000] [--hta-megabytes 100] [--hta-python PYTHON]

A large trace is made from BASE (default: the largest recording under fixtures/), with and without Python stacks. Every
figure is of a fresh process, interpreter start and imports included; MB are 10⁶ bytes of JSON, CPU is user + system.
Compare the ratios, not the seconds: those are of this machine.

orjson and HTA (PyPI: `traceinsight`, imported as `hta`) are optional; HTA may live in an environment of its own. It
takes minutes for 1 GB, so it gets a smaller trace of the same kind, and its rate is of that one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.reading.trace_maker import (
    LAYOUTS,  # standard library only: what this process holds, its children's peak begins with
)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "kineto"
MEMORY_LIMIT = "0.25 GB + 0.4 × JSON"

_TRACEMINE = """
from pathlib import Path
from tracemine.formats import open_trace
open_trace(Path(sys.argv[1])).write(Path(sys.argv[2]))
"""
_SCAN = """
from pathlib import Path
from tracemine.formats.kineto.scanner import scan
from tracemine.formats.source import FileSource
with FileSource(Path(sys.argv[1])) as source:
    scan(source)
"""
_ORJSON = """
import gc, orjson
from pathlib import Path
gc.disable()  # as fast as it gets: the collector costs it half as much again
orjson.loads(Path(sys.argv[1]).read_bytes())
"""
_HTA = """
import logging
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
trace.parse_traces(use_multiprocessing=False, use_memory_profiling=False)
assert len(trace.traces[0])
"""
_MEASURED = """
import resource, sys
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """CPU seconds and peak resident memory of one process that read `megabytes` of JSON."""

    what: str
    megabytes: float
    cpu_s: float
    peak_bytes: int

    @property
    def rate(self) -> float:
        return self.megabytes / self.cpu_s

    def __str__(self) -> str:
        return (
            f"  {self.what:<34}{self.megabytes:8.0f} MB {self.cpu_s:9.2f} CPU-s {self.rate:8.1f} MB/CPU-s"
            f" {self.peak_bytes / 1e9:7.2f} GB peak"
        )


def measure(what: str, work: str, trace: Path, *, repeat: int, python: str = sys.executable) -> Figure | str:
    """The fastest of `repeat` fresh processes that do `work` to `trace`; why not, if they cannot."""
    runs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
            command = [python, "-c", _MEASURED.format(work=work), str(trace), f"{folder}/timeline"]
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            reason = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
            return f"  {what:<34}not measured: {reason}"
        cpu_s, peak = run.stdout.split()[-2:]
        runs.append(Figure(what, trace.stat().st_size / 1e6, float(cpu_s), int(peak)))
    return min(runs, key=lambda figure: figure.cpu_s)


def compare(
    base: Path, folder: Path, *, megabytes: float, hta_megabytes: float, stacks: bool, options: argparse.Namespace
) -> list[Figure]:
    """Make the traces, measure, print."""

    def made(size: float) -> Path:
        path = folder / f"{size:g}.json"
        flags = [] if stacks else ["--no-stacks"]
        maker = Path(__file__).with_name("trace_maker.py")
        command = [sys.executable, str(maker), str(base), str(path), "--megabytes", str(size)]
        subprocess.run([*command, "--layout", options.layout, *flags], check=True, stdout=subprocess.DEVNULL)
        return path

    print(f"{'with' if stacks else 'without'} Python stacks, from {base.name}:")
    large = made(megabytes)
    results = [
        measure("tracemine ingest, JSON → Parquet", _TRACEMINE, large, repeat=options.repeat),
        measure("  of it the scan", _SCAN, large, repeat=options.repeat),
        measure("orjson.loads alone", _ORJSON, large, repeat=1),
    ]
    large.unlink()
    small = made(hta_megabytes)
    results.append(measure("HTA parse_traces", _HTA, small, repeat=1, python=options.hta_python))
    small.unlink()
    for result in results:
        print(result)
    ours, _, *others = results
    if isinstance(ours, Figure):
        limit = 0.25e9 + 0.4e6 * ours.megabytes
        print(f"  peak is {ours.peak_bytes / limit:.2f} of {MEMORY_LIMIT}")
        for other in others:
            if isinstance(other, Figure):
                scale = ours.megabytes / other.megabytes
                said = " (memory scaled to the same size)" if scale > 1.5 else ""
                print(
                    f"  {ours.rate / other.rate:.1f} times the speed of {other.what}, "
                    f"{other.peak_bytes * max(scale, 1) / ours.peak_bytes:.1f} times less memory{said}"
                )
    return [result for result in results if isinstance(result, Figure)]


def main() -> None:
    largest = max(FIXTURES.glob("*.json.gz"), key=lambda p: p.stat().st_size)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, nargs="?", default=largest)
    parser.add_argument("--megabytes", type=float, default=1000, help="size of the trace for tracemine and orjson")
    parser.add_argument("--hta-megabytes", type=float, default=100, help="size of the trace for HTA")
    parser.add_argument("--hta-python", default=sys.executable, help="an interpreter that has traceinsight installed")
    parser.add_argument("--layout", default="old", choices=LAYOUTS)
    parser.add_argument("--repeat", type=int, default=3, help="runs of tracemine, of which the fastest counts")
    parser.add_argument("--folder", type=Path, help="where the traces are made and deleted; needs their size")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    figures = {}
    for stacks in (True, False):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            figures["stacks" if stacks else "no_stacks"] = compare(
                options.base,
                Path(folder),
                megabytes=options.megabytes,
                hta_megabytes=options.hta_megabytes,
                stacks=stacks,
                options=options,
            )
    if options.json:
        plain = {
            kind: [
                {"what": f.what.strip(), "mb": f.megabytes, "cpu_s": f.cpu_s, "peak_bytes": f.peak_bytes} for f in of
            ]
            for kind, of in figures.items()
        }
        options.json.write_text(json.dumps(plain, indent=1) + "\n")


if __name__ == "__main__":
    main()
