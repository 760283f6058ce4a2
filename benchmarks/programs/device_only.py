"""What recording device activities alone costs a step: `python benchmarks/programs/device_only.py OUT`.

Five host-bound programs, each in a process of its own: the step unprofiled, then under torch.profiler with CUDA's
activities alone (no operators, shapes or stacks). Idle time of the unprofiled step is what it takes less what its
kernels take in the recording; is it what the recording shows between its activities? OUT/device_only.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from programs.run import alone, machine, prepared, settled, timed

NAMES = ("encoder_small_batch", "lstm_loop", "augment_each", "adamw_in_loop", "decode")
ROUNDS, STEPS = 7, 9


def union_ns(spans: list[tuple[int, int]]) -> int:
    total, end = 0, 0
    for begin, until in sorted(spans):
        total += max(until - max(begin, end), 0)
        end = max(end, until)
    return total


def recorded(step: Callable[[], Any]) -> tuple[int, int]:
    """Step and device-busy time a step under a profiler that records no operator."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as running:
        settled()
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            step()
        settled()
        taken = time.perf_counter_ns() - begin
    spans = [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in running.profiler.kineto_results.events()
        if str(event.device_type()).endswith("CUDA")
    ]
    return taken // STEPS, union_ns(spans) // STEPS


def measured(name: str, out: str) -> None:
    _, step = prepared(name, "eager", "cuda")
    for _ in range(10):
        step()
    plain = [timed(step) for _ in range(ROUNDS)]
    under = [recorded(step) for _ in range(ROUNDS)]
    step_ns, busy_ns = int(statistics.median(plain)), int(statistics.median(busy for _, busy in under))
    recorded_ns = int(statistics.median(taken for taken, _ in under))
    after = int(statistics.median(timed(step) for _ in range(ROUNDS)))
    figures = {"step_ns": step_ns, "recorded_step_ns": recorded_ns, "busy_ns": busy_ns, "after_recording_ns": after}
    Path(out).write_text(json.dumps({"program": name, **figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    found = []
    for name in NAMES:
        part = out / f"device_only.{name}.json"
        alone(measured, name, str(part))
        if part.exists():
            found.append(json.loads(part.read_text()))
            part.unlink()
            said = found[-1]
            idle, told = said["step_ns"] - said["busy_ns"], said["recorded_step_ns"] - said["busy_ns"]
            print(
                f"{name}: recording {said['recorded_step_ns'] / said['step_ns']:.2f} x, idle {idle} -> {told} ns a step"
            )
    (out / "device_only.json").write_text(json.dumps({"machine": machine("cuda"), "programs": found}, indent=1))


if __name__ == "__main__":
    main()
