"""Runs steps on a GPU: compiles and checks all of them side by side first, then times one after another.

    python run.py FOLDER -o steps.json [--seconds N] [--each N]

Needs torch and triton only. FOLDER/order.json names the steps in the order in which they matter; those for which the
seconds do not suffice are left out. A step that crashes the process or hangs costs its own result; the next process
goes on.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

_AT_ONCE = 4  # kernels of a task
_WORKERS = max(min(12, (os.cpu_count() or 1) - 2), 1)
_UNTRIED = "it ended its process, or was not looked at in time"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def name_of(path: Path) -> str:
    return path.stem.removeprefix("step_")


def look_at_all(paths: list[Path], seconds: float) -> dict[str, dict[str, Any]]:
    """What is wrong with the kernels of each step, then with the step where the right ones stand; side by side."""
    until = time.time() + seconds
    with Workers(paths[0].parent, until) as workers, ThreadPoolExecutor(_WORKERS) as pool:
        shares = [(path, first) for path in paths for first in range(0, kernels_of(path), _AT_ONCE)]
        found = pool.map(lambda share: workers.answer(name_of(share[0]), share[1], _AT_ONCE), shares)
        faults: dict[str, list[str]] = {name_of(path): [] for path in paths}
        for (path, first), mine in zip(shares, found, strict=True):
            count = min(_AT_ONCE, kernels_of(path) - first)
            faults[name_of(path)] += mine if isinstance(mine, list) else [_UNTRIED] * count
        whole = [name for name, each in faults.items() if _UNTRIED not in each]
        checks = dict(zip(whole, pool.map(lambda name: workers.answer(name, faults[name]), whole), strict=True))
    return {name: {"faults": each, "right": checks.get(name)} for name, each in faults.items()}


def kernels_of(path: Path) -> int:
    return len(json.loads(path.with_suffix(".json").read_text("utf-8"))["about"]["counts"])


class Workers:
    """Processes that load torch once and answer tasks, a line each; one that ends costs its answer, another begins."""

    def __init__(self, folder: Path, until: float) -> None:
        self.command = [sys.executable, __file__, str(folder), "--look"]
        self.until = until
        self.mine = threading.local()
        self.all: list[subprocess.Popen[str]] = []
        self.timer = threading.Timer(max(until - time.time(), 0), self.end)

    def __enter__(self) -> Workers:
        self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.timer.cancel()
        self.end()

    def end(self) -> None:
        for process in self.all:
            process.kill()

    def answer(self, *task: Any) -> Any:
        """What a worker says to a task; None where it ended, or the time did."""
        if time.time() > self.until:
            return None
        process: subprocess.Popen[str] | None = getattr(self.mine, "process", None)
        if process is None or process.poll() is not None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            self.mine.process = process
            self.all.append(process)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            return None
        return json.loads(line) if line.endswith("\n") else None


def work(folder: Path) -> None:
    """Answers tasks: what is wrong with some kernels of a step, or with a step whose kernels have those faults."""
    import torch

    steps: dict[str, tuple[ModuleType, list[Any]]] = {}
    with tempfile.TemporaryDirectory() as kept:
        for line in sys.stdin:
            name, what, *rest = json.loads(line)
            begun = time.time()
            if name not in steps:
                step = load(folder / f"step_{name}.py")
                (Path(kept) / name).mkdir()
                steps[name] = step, step.modules(Path(kept) / name)
            step, modules = steps[name]
            answer: Any
            if rest:
                each = list(zip(modules, step.ABOUT["ulps"], step.ABOUT["draws"], strict=True))
                answer = [step.faults(*one) for one in each[what : what + rest[0]]]
            else:
                kernels = [m.eager if fault else m.fused for m, fault in zip(modules, what, strict=True)]
                with torch.no_grad():
                    inputs = step.Inputs(step.BUFFERS, step.VIEWS, step.DEVICE)
                    chains = [m.eager for m in modules]
                    answer = step.checked(step.eager_step, step.fused_step, inputs, chains, kernels)
                    del inputs
            torch.cuda.synchronize()  # raises after a fault on the device: this process ends, another begins
            torch.cuda.empty_cache()
            print(json.dumps(answer), flush=True)
            said = f"kernels from {what} on" if rest else "the step"
            print(f"{name}: {said} {time.time() - begun:.1f} s", file=sys.stderr, flush=True)


def time_all(
    paths: list[Path], lines: Path, known: dict[str, dict[str, Any]], until: float, each: float, rounds: int
) -> None:
    """Results of each, a line each as they come."""
    import torch

    with lines.open("a", encoding="utf-8") as file, tempfile.TemporaryDirectory() as folder:
        for path in paths:
            name = name_of(path)
            if time.time() > until:
                return
            file.write(json.dumps([name, "it ended the process, or took too long"]) + "\n")
            file.flush()
            begun = time.time()
            try:
                found: Any = run(path, Path(folder), known[name], each, rounds)
            except Exception as error:
                found = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:400]}"
            file.write(json.dumps([name, found]) + "\n")
            file.flush()
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.synchronize()  # raises after a fault on the device: this process ends, the next goes on
            print(f"{name} {time.time() - begun:.1f} s", file=sys.stderr, flush=True)


def run(path: Path, folder: Path, known: dict[str, Any], seconds: float, rounds: int) -> dict[str, Any]:
    step = load(path)
    mine = folder / path.stem
    mine.mkdir()
    inputs = step.Inputs(step.BUFFERS, step.VIEWS, step.DEVICE)
    if known["faults"] and set(known["faults"]) == {_UNTRIED}:
        raise TimeoutError("its kernels were not looked at in time")
    return dict(
        step.step_results(
            step.eager_step,
            step.fused_step,
            inputs,
            step.modules(mine),
            step.ABOUT,
            None,
            known=known["faults"],
            before=known["right"],
            rounds=rounds,
            seconds=seconds,
        )
    )


def where() -> dict[str, str]:
    import torch
    import triton

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().splitlines()
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": driver[0] if driver else "",
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("steps.json"))
    parser.add_argument("--seconds", type=float, default=100.0, help="no step is begun after this")
    parser.add_argument("--each", type=float, default=1.5, help="seconds that timing a step may take")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which a step is given up")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--time", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--look", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = json.loads((asked.folder / "order.json").read_text("utf-8"))
    paths = [asked.folder / f"step_{name}.py" for name in names]
    lines, kernels = asked.output.with_suffix(".jsonl"), asked.output.with_suffix(".kernels")
    done = [json.loads(line)[0] for line in lines.read_text("utf-8").splitlines()] if lines.exists() else []
    if asked.look:
        work(asked.folder)
        return
    if asked.time:
        left = [p for p in paths if name_of(p) not in done]
        time_all(left, lines, json.loads(kernels.read_text("utf-8")), asked.until, asked.each, asked.rounds)
        return
    begun = time.time()
    until = begun + asked.seconds
    kernels.write_text(json.dumps(look_at_all(paths, asked.seconds / 2)), "utf-8")
    looked = time.time()
    print(f"kernels looked at in {looked - begun:.1f} s", file=sys.stderr, flush=True)
    options = ["-o", str(asked.output), "--time", "--until", str(until), "--each", str(asked.each)]
    while time.time() < until:
        before = len(lines.read_text("utf-8").splitlines()) if lines.exists() else 0
        child = subprocess.Popen([sys.executable, __file__, str(asked.folder), *options, "--rounds", str(asked.rounds)])
        _watched(child, lines, asked.limit)
        after = len(lines.read_text("utf-8").splitlines()) if lines.exists() else 0
        if child.returncode == 0 or after == before:
            break
    found = dict(json.loads(line) for line in lines.read_text("utf-8").splitlines()) if lines.exists() else {}
    seconds = {"kernels": round(looked - begun, 1), "steps": round(time.time() - looked, 1)}
    asked.output.write_text(json.dumps({"where": where(), "seconds": seconds, "steps": found}), "utf-8")
    print(f"{len(found)} of {len(paths)} steps were run in {time.time() - begun:.1f} s")


def _watched(child: subprocess.Popen[Any], lines: Path, limit: float) -> None:
    """Waits for a process that writes lines; ends it where it writes none for too long."""
    size, since = -1, time.time()
    while child.poll() is None:
        now = lines.stat().st_size if lines.exists() else 0
        if now != size:
            size, since = now, time.time()
        if time.time() - since > limit:
            child.kill()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
