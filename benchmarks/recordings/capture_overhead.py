"""What `tracemine capture` costs a program outside of the window that it records, and what the window costs.

    python -m benchmarks capture_overhead [--repeat 5] [--seconds 2.0] [--only WORD]

A cell is a ratio of steps of one model on the CPU, with capture over without, in a fresh process: the median of several
processes, with the least and the greatest. Steps are processor time of their thread, for the machine may be shared.
In a process batches of 30 ms alternate, with a session that watches and with none, so that both see the same load; one
before each is not counted, for Python adapts to a class that changed. The ratio is the median of those of neighbours.

`nothing` alternates between nothing and nothing: what a ratio without a cause is here. In `not due` the window never
comes, in `signal` no signal. `written` compares batches after a window with those before it, which see another load.
The window's cost is processor time of the process: what the steps until it is written took more than as many others.
Exits with 1 where the median of `not due` or of `signal` is over 1.05.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 1.05
MODES = ("nothing", "not due", "signal", "written")
HELD = ("not due", "signal")
PROGRAMS = {
    "small MLP, inference": ("mlp", "infer"),
    "small MLP, inference, marked": ("mlp", "marked"),
    "small MLP, training": ("mlp", "train"),
    "transformer, inference": ("transformer", "infer"),
    "transformer, training": ("transformer", "train"),
}
PROGRAM = """
import statistics, sys, time
from pathlib import Path
import torch
from tracemine.recording.plan import Plan
from tracemine.recording.session import Session

torch.set_num_threads(1)
kind, what, mode, seconds = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
nn, clock = torch.nn, time.perf_counter
if kind == "mlp":
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), torch.randn(16, 64)
else:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 4)
    x = torch.randn(4, 32, 256)
model.train(what == "train")

def infer():
    with torch.inference_mode():
        model(x)

def marked():
    with torch.profiler.record_function("ProfilerStep#0"):
        infer()

optimizer = torch.optim.AdamW(model.parameters()) if what == "train" else None

def train():
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()

step = {"infer": infer, "marked": marked, "train": train}[what]

def batch(count):
    begin = time.thread_time()
    for _ in range(count):
        step()
    return (time.thread_time() - begin) / count

def session():
    after = 20 if mode == "written" else 10**9
    made = Session(Plan(after=after, steps=3, on_signal=mode == "signal"), Path("run"), lambda text: None)
    if optimizer is not None:
        made.trains()  # it was made before this session, and not under it as in a program
    made.watch()
    return made

def alternating():
    watching = None if mode == "nothing" else session()
    batch(count)
    with_us = batch(count)
    if watching is not None:
        watching.close(whole=True)
    batch(count)
    return with_us / batch(count)

batch(5)
count = max(5, int(0.03 / min(batch(5) for _ in range(3))))
window_s, end = 0.0, clock() + seconds
if mode != "written":
    ratios = []
    while clock() < end or len(ratios) < 5:
        ratios.append(alternating())
    ratio = statistics.median(ratios)
else:
    def some():
        batches, end = [], clock() + seconds / 2
        while clock() < end or len(batches) < 5:
            batches.append(batch(count))
        return statistics.median(batches)
    before, watching = some(), session()
    begin, steps = time.process_time(), 0
    while not watching._closed:
        step()
        steps += 1
    window_s = time.process_time() - begin - steps * before
    ratio = some() / before
print(batch(count), ratio, window_s)
"""


def ran(folder: str, program: tuple[str, str], mode: str, seconds: float) -> tuple[float, float, float]:
    """Return a step in seconds, the ratio, and the window's cost in seconds, of a fresh process."""
    command = [sys.executable, "program.py", *program, mode, str(seconds)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    step, ratio, window_s = map(float, done.stdout.split())
    return step, ratio, window_s


def main() -> int:
    """Print a row for each program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    failed = False
    print(f"| | step, µs | {' | '.join(MODES)} | the window, s |\n|---|---:|{'---:|' * (len(MODES) + 1)}")
    for name, program in PROGRAMS.items():
        if given.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "program.py").write_text(PROGRAM)
            runs = [[ran(folder, program, mode, given.seconds) for mode in MODES] for _ in range(given.repeat)]
        step = statistics.median(each[0] for run in runs for each in run)
        ratios = {mode: [run[index][1] for run in runs] for index, mode in enumerate(MODES)}
        cells = [f"{statistics.median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for each in ratios.values()]
        window_s = statistics.median(run[-1][2] for run in runs)
        print(f"| {name} | {1e6 * step:,.0f} | {' | '.join(cells)} | {window_s:.2f} |", flush=True)
        failed |= any(statistics.median(ratios[mode]) > MOST for mode in HELD)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
