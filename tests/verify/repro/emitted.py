"""Reproductions as files with their harness, loaded here or run where tracemine is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from tests.forked import TORCH
from tests.forked import run as start
from tracemine.verify.repro.harness import NAME, harness_text

# Python runs this when it starts: what it has of tracemine, it has not.
_WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tracemine":
            raise ModuleNotFoundError("tracemine is not here")
sys.meta_path.insert(0, Without())
"""


def put(folder: Path, name: str, text: str) -> Path:
    """A reproduction in a folder, with the harness beside it."""
    (folder / NAME).write_text(harness_text(), "utf-8")
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def loaded(path: Path) -> ModuleType:
    """A reproduction as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def run(path: Path, *options: str, forked: bool = True) -> subprocess.CompletedProcess[str]:
    """A reproduction in a process of its own without a GPU, that cannot import tracemine.

    forked: of one that has torch and triton loaded, which take 3 s; else as whoever is given the file runs it.
    """
    without = path.parent / "without"
    without.mkdir(exist_ok=True)
    (without / "sitecustomize.py").write_text(_WITHOUT, "utf-8")
    environment = {**os.environ, "PYTHONPATH": str(without), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    if forked:
        return start(TORCH, options, file=path, cwd=without, env=environment)
    command = [sys.executable, str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=without)
