"""Runs reproductions on a machine's GPUs: compiles all of them side by side first, then times one after another.

    python run.py FOLDER -o OUT [--seconds N] [--compile-seconds N] [--same N] [--no-tune]

Needs torch and triton only. FOLDER/order.json names the files in the order in which they matter, and for which of them
max-autotune is tried. What comes out is written as it comes: a line a reproduction in OUT/times.GPU.jsonl, traces of
those that have none in OUT/traces. One that crashes its process or outlasts its time costs its own result; the next
process goes on. OUT/machine.json says what machine it is. Called again with the same OUT, it does what is not done.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

LIMIT_S = 75.0  # of one reproduction, by the clock
COMPILE_S = 15.0  # of one mode of torch.compile while timing: what it needs lies on the disk by then
SECONDS = 1.0  # after which no block of samples is begun
SAME = ("catalogue_add_rms_norm_large", "catalogue_swiglu_medium", "catalogue_rope_small", "catalogue_softcap_large")


def load(path: Path) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # the harness lies beside it
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


Paths = list[tuple[Path, bool]]  # and whether max-autotune is tried too


def compile_all(paths: Paths) -> None:
    """Calls every variant once, so that the compilers' caches on disk have it."""
    import torch

    for path, tune in paths:
        begin = time.time()
        try:
            module = load(path)
            if hasattr(module, "CHECK"):
                module.CHECK.compile_only(("compiled", "tuned") if tune else ("compiled",))
        except Exception as error:
            print(f"{path.name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        print(f"compiled {path.stem} {time.time() - begin:.1f} s", file=sys.stderr, flush=True)


def forget_choices(cache: Path) -> None:
    """What was tuned while other processes were at work is tuned again, alone; what was compiled for it stays."""
    for path in cache.rglob("*.best_config"):
        path.unlink(missing_ok=True)


def time_all(paths: Paths, lines: Path, until: float) -> None:
    """Results of each, a line each as they come; before each a line that says it was begun."""
    import torch

    with lines.open("a", encoding="utf-8") as file:
        for path, tune in paths:
            if time.time() > until:
                return
            file.write(json.dumps([path.stem, "it ended the process, or took too long"]) + "\n")
            file.flush()
            begin = time.time()
            try:
                module = load(path)
                found = module.CHECK.results(("compiled", "tuned") if tune else ("compiled",), COMPILE_S, SECONDS)
                if not path.stem.startswith("finding_"):
                    capture(module, lines.parent / "traces" / path.stem)
            except Exception as error:
                found = f"{type(error).__name__}: {str(error)[:400]}"
            file.write(json.dumps([path.stem, found]) + "\n")
            file.flush()
            torch._dynamo.reset()
            torch.cuda.synchronize()  # raises after a fault on the device: this process ends, the next goes on
            torch.cuda.empty_cache()
            print(f"{path.stem} {time.time() - begin:.1f} s", file=sys.stderr, flush=True)


def capture(module: ModuleType, folder: Path) -> None:
    """A trace of the chain alone, run three times, with the execution trace beside it."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    harness = sys.modules["tracemine_repro"]
    inputs = harness.copies(harness.make_inputs(module.INPUTS))
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    module.eager(*inputs)
    torch.cuda.synchronize()
    with torch.profiler.profile(
        activities=activities, record_shapes=True, execution_trace_observer=observer
    ) as profile:
        for _ in range(3):
            kept = module.eager(*inputs)
            torch.cuda.synchronize()
            del kept
    profile.export_chrome_trace(str(folder / "trace.json"))
    for name in ("trace.json", "et.json"):
        with (folder / name).open("rb") as plain, gzip.open(folder / f"{name}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        (folder / name).unlink()


def compared_with_itself(work: Callable[..., object], described: Any, trials: int) -> dict[str, Any]:
    """How often a graph is called faster than itself: comparisons of one block each, by the harness's own rule."""
    harness = sys.modules["tracemine_repro"]
    mine = harness.copies(harness.make_inputs(described))
    variants = {"eager": lambda: work(*mine), "fused": lambda: work(*mine)}
    states = {"cold": harness.flusher()}
    order = random.Random(1)
    harness.block(variants, states, order, 2)
    found = [harness.judged(harness.block(variants, states, order)["samples"]["cold"]) for _ in range(trials)]
    return {
        "trials": trials,
        "faster": sum(f["faster_than_eager"] for f in found),
        "slower": sum(f["slower_than_eager"] for f in found),
        "ratios": [f["eager"]["ratio"] for f in found],
        "half_widths": [round((f["eager"]["high"] - f["eager"]["low"]) / 2, 4) for f in found],
    }


def same_against_same(paths: Paths, lines: Path, trials: int) -> None:
    """Eager against itself and the fused kernel against itself, as if they were two."""
    with lines.open("a", encoding="utf-8") as file:
        for path, _ in paths:
            module = load(path)
            for name in ("eager", "fused"):
                begin = time.time()
                found = compared_with_itself(getattr(module, name), module.INPUTS, trials)
                file.write(json.dumps([f"{path.stem} {name}", {**found, "seconds": time.time() - begin}]) + "\n")
                file.flush()


def machine() -> dict[str, object]:
    import torch
    import triton

    asked = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    return {"gpus": said, "torch": torch.__version__, "cuda": torch.version.cuda, "triton": triton.__version__}


def begun(lines: Path) -> set[str]:
    return {json.loads(line)[0] for line in lines.read_text("utf-8").splitlines()} if lines.exists() else set()


def watched(command: list[str], environment: dict[str, str], lines: Path, until: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*command, "--lines", str(lines), "--until", str(until)], env=environment)


def time_on_all(command: list[str], environment: dict[str, str], folder: Path, gpus: int, until: float) -> None:
    """A process a GPU; one that stands still for too long is ended, and another goes on behind it."""
    lines = [folder / f"times.{gpu}.jsonl" for gpu in range(gpus)]
    own = [{**environment, "CUDA_VISIBLE_DEVICES": str(gpu)} for gpu in range(gpus)]
    commands = [[*command, "--time", f"{gpu}/{gpus}"] for gpu in range(gpus)]
    running = {g: watched(commands[g], own[g], lines[g], until) for g in range(gpus)}
    since = {g: (0, time.time()) for g in running}
    while running:
        time.sleep(0.5)
        for g, process in list(running.items()):
            size = lines[g].stat().st_size if lines[g].exists() else 0
            if size != since[g][0]:
                since[g] = (size, time.time())
            late = time.time() - since[g][1] > LIMIT_S or time.time() > until + 20
            if late and process.poll() is None:
                process.kill()
                process.wait()
            if process.poll() is None:
                continue
            del running[g]
            if process.returncode != 0 and time.time() < until:
                running[g] = watched(commands[g], own[g], lines[g], until)
                since[g] = (size, time.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("times"))
    parser.add_argument("--seconds", type=float, default=240.0, help="no reproduction is begun after this")
    parser.add_argument("--compile-seconds", type=float, default=100.0, help="of those, most for compiling ahead")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 8)
    parser.add_argument(
        "--same", type=int, default=0, help="comparisons of the same with the same, a chain and variant"
    )
    parser.add_argument("--no-tune", action="store_true", help="leave max-autotune out")
    parser.add_argument("--only", type=str, default="", help="words, of which a file's name holds one")
    parser.add_argument("--compile", type=str, default="", help=argparse.SUPPRESS)
    parser.add_argument("--time", type=str, default="", help=argparse.SUPPRESS)
    parser.add_argument("--lines", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    order = json.loads((asked.folder / "order.json").read_text("utf-8"))
    wanted = asked.only.split()
    paths = [
        (asked.folder / f"{stem}.py", tune and not asked.no_tune)
        for stem, tune in order
        if not wanted or any(w in stem for w in wanted)
    ]
    if asked.compile:
        part, parts = map(int, asked.compile.split("/"))
        done = set().union(*map(begun, asked.output.glob("times.*.jsonl")))
        compile_all([p for p in paths if p[0].stem not in done][part::parts])
        return
    if asked.time:
        part, parts = map(int, asked.time.split("/"))
        done = begun(asked.lines)
        if asked.same and "same" not in done:
            with asked.lines.open("a", encoding="utf-8") as file:
                file.write(json.dumps(["same", "begun"]) + "\n")
            mine = [p for p in paths if p[0].stem.startswith(SAME)][part::parts]
            same_against_same(mine, asked.lines.with_name(f"same.{part}.jsonl"), asked.same)
        time_all([p for p in paths[part::parts] if p[0].stem not in done], asked.lines, asked.until)
        return
    began = time.time()
    until = began + asked.seconds
    asked.output.mkdir(parents=True, exist_ok=True)
    (asked.output / "machine.json").write_text(json.dumps(machine()), "utf-8")
    again = [sys.executable, __file__, str(asked.folder), "-o", str(asked.output)]
    again += ["--only", asked.only, "--same", str(asked.same), *(["--no-tune"] if asked.no_tune else [])]
    cache = Path(tempfile.gettempdir()) / "tracemine_inductor"
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    import torch

    gpus = torch.cuda.device_count()
    workers = [
        subprocess.Popen(
            [*again, "--compile", f"{k}/{asked.workers}"], env={**environment, "CUDA_VISIBLE_DEVICES": str(k % gpus)}
        )
        for k in range(asked.workers)
    ]
    for worker in workers:
        try:
            worker.wait(timeout=max(asked.compile_seconds - (time.time() - began), 0.1))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    forget_choices(cache)
    print(f"compiling ahead took {time.time() - began:.0f} s", file=sys.stderr, flush=True)
    time_on_all(again, environment, asked.output, gpus, until)
    print(f"{sum(len(begun(p)) for p in asked.output.glob('times.*.jsonl'))} of {len(paths)} reproductions were run")


if __name__ == "__main__":
    main()
