"""Record models on a CPU, as stand-ins for a GPU's recordings: `python -m benchmarks stand_in FOLDER [NAME...]`.

    python -m benchmarks stand_in OUT           all of stand_in_models.py
    python -m benchmarks rebuild OUT/*          which of their findings are rebuilt and generated; --prove: proved

Two steps of each go to FOLDER/NAME as `tracemine.capture` writes them (trace.json.gz, et.json.gz, capture.json), then
each operator that would launch on a GPU is given a launch and a kernel. So one sees without a GPU what becomes of a new
model's findings. It is no recording of a GPU:

- Durations are made up (bytes at 3 TB/s, and the launch), so no figure of time means anything; predicted savings, which
  start from bytes, are weights and no more.
- Operators are those that a CPU called, some of them renamed (cuDNN's convolutions, attention). What CUDA does
  otherwise is not here: layouts that cuDNN chooses, several kernels of one operator, lists split among kernels.
- Kernels' names are ATen's in kind, grids and streams are made up; there is one stream, and nothing is compiled.

A folder that is there already is left alone. Needs torch, and transformers for the models that come from there.
"""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recordings.stand_in_models import MODELS, Model
from benchmarks.recordings.stand_in_trace import convert
from tracemine.recording import capture

RECORDED = 2  # steps in a trace
CONVOLUTIONS = {f"conv{kind}{axes}d": axes for kind in ("", "_transpose") for axes in (1, 2, 3)}


def record(model: Model, folder: Path) -> Path:
    """Run the model's step on the CPU and leave FOLDER/NAME as a stand-in. Returns that folder."""
    out = folder / model.name
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with torch.set_grad_enabled(model.training), as_on_cuda():
        step = model.make()
        with capture(out, steps=RECORDED, warmup=1, timed=0, quiet=True) as recording:
            for _ in recording.steps():
                step()
    try:
        convert(out)
    except BaseException:
        shutil.rmtree(out)  # what a CPU told is no stand-in
        raise
    return out


@contextmanager
def as_on_cuda() -> Iterator[None]:
    """Convolutions add their bias by `add_`, and dropout in training is one operator: so they are called on CUDA."""
    kept = {name: getattr(F, name) for name in (*CONVOLUTIONS, "dropout")}
    for name, axes in CONVOLUTIONS.items():
        setattr(F, name, bias_apart(kept[name], axes))
    F.dropout = dropout
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(F, name, function)


def bias_apart(convolve: Callable[..., Any], axes: int) -> Callable[..., Any]:
    def call(input: Any, weight: Any, bias: Any = None, *rest: Any, **named: Any) -> Any:
        out = convolve(input, weight, None, *rest, **named)
        return out if bias is None else out.add_(bias.reshape((1, -1) + (1,) * axes))

    return call


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def main() -> None:
    """Records the models named on the command line, or all."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m benchmarks stand_in FOLDER [NAME...]")
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    known = {model.name: model for model in MODELS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    warnings.filterwarnings("ignore")  # of the models' own
    for name in names or known:
        if (folder / name).exists():
            continue
        begin = time.perf_counter()
        try:
            record(known[name], folder)
        except ModuleNotFoundError as missing:
            raise SystemExit(f"{name} needs {missing.name}: pip install {missing.name}") from None
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
