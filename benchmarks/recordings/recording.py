"""What recording costs a step: `tracemine.capture` with and without execution trace, stacks and allocations.

    PYTHONPATH=.:fixtures python -m benchmarks recording [STEPS]

Needs torch with CUDA. Runs the models of fixtures/record.py. A row: the mean step alone, the mean step recorded (both
with the queue drained before and after the steps), their ratio, GPU activities a step, and the size of the folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from record import RECORDINGS, Recording

from tracemine.recording import Capture, capture
from tracemine.units import bytes_text, ratio_text, time_text

OPTIONS = (
    {"execution_trace": False, "stacks": False, "memory": False},
    {"execution_trace": False, "stacks": True, "memory": False},
    {"execution_trace": True, "stacks": False, "memory": False},
    {"execution_trace": True, "stacks": True, "memory": False},
    {"execution_trace": True, "stacks": True, "memory": True},
)


def measured(recording: Recording, steps: int, options: dict[str, bool]) -> tuple[Capture, int]:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch, torch.set_grad_enabled(recording.training):
        step, folder = recording.make(), Path(scratch, "run")
        with capture(folder, steps=steps, warmup=3, timed=steps, quiet=True, **options) as running:
            for _ in running.steps():
                step()
        return running.written, sum(path.stat().st_size for path in folder.iterdir())


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print("| model | execution trace | stacks | allocations | alone | recorded | ratio | activities a step | folder |")
    print("|---|---|---|---|---|---|---|---|---|")
    for recording in RECORDINGS:
        for options in OPTIONS:
            written, size = measured(recording, steps, options)
            yes = ["yes" if wanted else "no" for wanted in options.values()]
            cells = [recording.name, *yes, time_text(written.alone_step_ns), time_text(written.recorded_step_ns)]
            cells += [ratio_text(written.slowdown), str(written.gpu_activities // steps), bytes_text(size)]
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\n{', '.join(written.gpus)}; driver {written.driver}; torch {written.torch}; Python {written.python}")


if __name__ == "__main__":
    main()
