"""Runs reproductions on a GPU: compiles all of them side by side first, then times one after another.

    python run.py FOLDER -o times.json [--seconds N]

Needs torch and triton only. A reproduction that crashes the process costs its own result; the next process goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_all(paths: list[Path]) -> None:
    """Calls every variant once, so that the compilers' caches on disk have it."""
    import torch

    for path in paths:
        try:
            module = load(path)
            inputs = module.make_inputs(module.INPUTS)
            module.fused(*module.copies(inputs))
            torch.compile(module.eager, dynamic=False)(*module.copies(inputs))
            torch.cuda.synchronize()
            torch._dynamo.reset()
        except Exception as error:
            print(f"{path.name}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)


def time_all(paths: list[Path], out: Path, until: float) -> None:
    """Results of each, a line each as they come."""
    import torch

    with out.open("a", encoding="utf-8") as file:
        for path in paths:
            if time.time() > until:
                return
            file.write(json.dumps([path.stem, "it ended the process"]) + "\n")
            file.flush()
            begin = time.time()
            try:
                found = load(path).results()
            except Exception as error:
                found = f"{type(error).__name__}: {str(error)[:400]}"
            file.write(json.dumps([path.stem, found]) + "\n")
            file.flush()
            torch._dynamo.reset()
            torch.cuda.synchronize()  # raises after a fault on the device: this process ends, the next goes on
            print(f"{path.stem} {time.time() - begin:.1f} s", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("times.json"))
    parser.add_argument("--seconds", type=float, default=240.0, help="no reproduction is begun after this")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--compile", type=str, default="", help=argparse.SUPPRESS)
    parser.add_argument("--time", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    paths = sorted(asked.folder.glob("repro_*.py"))
    lines = asked.output.with_suffix(".jsonl")
    if asked.compile:
        part, parts = map(int, asked.compile.split("/"))
        compile_all(paths[part::parts])
        return
    if asked.time:
        done = {json.loads(line)[0] for line in lines.read_text("utf-8").splitlines()} if lines.exists() else set()
        time_all([p for p in paths if p.stem not in done], lines, asked.until)
        return
    until = time.time() + asked.seconds
    again = [sys.executable, __file__, str(asked.folder), "-o", str(asked.output)]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*again, "--compile", f"{k}/{asked.workers}"], env=environment) for k in range(asked.workers)
    ]
    for worker in workers:
        try:
            worker.wait(timeout=max(asked.seconds / 2 - (time.time() - until + asked.seconds), 1))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    while time.time() < until:
        count = len(lines.read_text("utf-8").splitlines()) if lines.exists() else 0
        code = subprocess.run([*again, "--time", "--until", str(until)], env=environment, check=False).returncode
        if code == 0 or count == (len(lines.read_text("utf-8").splitlines()) if lines.exists() else 0):
            break
    found = dict(json.loads(line) for line in lines.read_text("utf-8").splitlines())
    asked.output.write_text(json.dumps(found), "utf-8")
    print(f"{len(found)} of {len(paths)} reproductions were run")


if __name__ == "__main__":
    main()
