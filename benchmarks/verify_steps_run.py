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
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

_AT_ONCE = 6  # kernels that one process looks at
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
    """What is wrong with the kernels of each step, and with the step, as far as processes came; side by side."""
    until = time.time() + seconds

    def kernels(path: Path, first: int, end: int) -> list[str]:
        found: list[str] = answers(path, [f"--kernels={first}:{end}"], until)
        return [*found, *[_UNTRIED] * (end - first - len(found))]

    def check(path: Path, parts: list[Future[list[str]]]) -> dict[str, Any]:
        faults = [fault for part in parts for fault in part.result()]
        wrong = ",".join(str(number) for number, fault in enumerate(faults) if fault)
        right = [] if _UNTRIED in faults else answers(path, [f"--check={wrong}"], until)
        return {"faults": faults, "right": right[0] if right else None}

    with ThreadPoolExecutor(max_workers=max(min(16, os.cpu_count() or 1), 1)) as pool:
        parts: list[list[Future[list[str]]]] = []
        for path in paths:
            count = len(json.loads(path.with_suffix(".json").read_text("utf-8"))["about"]["counts"])
            shares = [(first, min(first + _AT_ONCE, count)) for first in range(0, count, _AT_ONCE)]
            parts.append([pool.submit(kernels, path, *share) for share in shares])
        checks = [pool.submit(check, path, part) for path, part in zip(paths, parts, strict=True)]
        return {name_of(path): each.result() for path, each in zip(paths, checks, strict=True)}


def answers(path: Path, options: list[str], until: float) -> list[Any]:
    """The lines that a step's file prints, as far as it comes in time."""
    begun = time.time()
    if begun > until:
        return []
    command = [sys.executable, str(path), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, errors = process.communicate(timeout=max(until - begun, 1))
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
    said = (errors.strip().splitlines() or [""])[-1][:200]
    print(f"{name_of(path)} {' '.join(options)}: {time.time() - begun:.1f} s {said}", file=sys.stderr, flush=True)
    return [json.loads(line) for line in out.splitlines() if line.startswith(('"', "{"))]


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
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    names = json.loads((asked.folder / "order.json").read_text("utf-8"))
    paths = [asked.folder / f"step_{name}.py" for name in names]
    lines, kernels = asked.output.with_suffix(".jsonl"), asked.output.with_suffix(".kernels")
    done = [json.loads(line)[0] for line in lines.read_text("utf-8").splitlines()] if lines.exists() else []
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
