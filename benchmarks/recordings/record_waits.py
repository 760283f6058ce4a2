"""Record programs that wait for the device, one kind of wait each: `python -m benchmarks record_waits OUT`.

Each program does work on the device, waits in its middle or at its end, and goes on; `fixed` does the same without the
wait. OUT/waits.json says of each what the value is used for, and how long a step takes unprofiled with the wait and
without; OUT/waits.tar has a recording of each by torch.profiler, three steps with stacks and shapes. `--device cpu`
tries the machinery where no GPU is.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

WARM, ROUNDS, REPEATS, RECORDED = 5, 9, 8, 3
WIDTH, DEPTH = 2048, 12
Step = Callable[[int], Any]


class Program(NamedTuple):
    """A program that waits; `fixed` does the same without."""

    use: str  # what the value is used for; "none": it does not wait
    waits: int  # a step
    step: Step
    fixed: Step | None = None


def programs(device: str) -> dict[str, Program]:
    """All programs, by name."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    x = torch.randn(WIDTH, WIDTH, device=device, dtype=dtype)
    weight = torch.randn(WIDTH, WIDTH, device=device, dtype=dtype) / WIDTH**0.5
    mask = torch.rand(WIDTH, device=device) > 0.5
    masks = [torch.rand(WIDTH, device=device) > 0.4 + 0.02 * at for at in range(8)]
    scales = torch.rand(8, device=device)
    ids = torch.randint(0, WIDTH // 4, (WIDTH,), device=device)
    batch = torch.randn(WIDTH // 2, WIDTH)
    pinned = batch.pin_memory() if device == "cuda" else batch
    into = torch.empty(WIDTH, dtype=dtype, pin_memory=device == "cuda")
    log: list[Any] = []

    def work(y: Tensor) -> Tensor:
        for _ in range(DEPTH):
            y = F.gelu(y @ weight)
        return y

    def size(at: int) -> Tensor:
        y = work(x)
        count = int(masks[at % 8].sum().item())
        return work(y[:count])

    def size_kept(at: int) -> Tensor:
        y = work(x)
        keep = torch.arange(WIDTH, device=device) < masks[at % 8].sum()
        return work(y * keep[:, None])

    def loop(at: int) -> Tensor:
        y, error, rounds = x, torch.ones((), device=device), 0
        while error.item() > 0.05:
            y, rounds = work(y), rounds + 1
            error = error * (0.5 if at % 2 else 0.3)
        return y

    def loop_fixed(at: int) -> Tensor:
        y, error = x, torch.ones((), device=device)
        for _ in range(5 if at % 2 else 3):
            y = work(y)
            error = error * 0.5
        return y

    def branch(at: int) -> Tensor:
        y = work(x)
        if y.float().mean() + at > 100:
            y = y * 0
        return work(y)

    def branch_kept(at: int) -> Tensor:
        y = work(x)
        return work(torch.where(y.float().mean() + at > 100, y * 0, y))

    def taken_in_turn(at: int) -> Tensor:
        y = work(x)
        return work(y) if scales[at % 8] > 0.5 else F.relu(y) + 1

    def boolean_index(at: int) -> Tensor:
        y = work(x)
        y[mask] = y[mask] * 2
        return work(y)

    def boolean_where(at: int) -> Tensor:
        y = work(x)
        return work(torch.where(mask[:, None], y * 2, y))

    def nonzero(at: int) -> Tensor:
        y = work(x)
        rows = mask.nonzero().squeeze(1)
        return work(y.index_select(0, rows))

    def masked_mean(at: int) -> Tensor:
        y = work(x)
        mean = torch.masked_select(y, mask[:, None]).mean()
        return work(y - mean)

    def masked_mean_kept(at: int) -> Tensor:
        y = work(x)
        return work(y - (y * mask[:, None]).sum() / (mask.sum() * WIDTH))

    def unique(at: int) -> Tensor:
        y = work(x)
        return work(y.index_select(0, torch.unique(ids)))

    def logging(at: int) -> Tensor:
        y = work(x)
        log.append(y.float().square().mean().item())
        return work(y)

    def logging_kept(at: int) -> Tensor:
        y = work(x)
        log.append(y.float().square().mean())
        return work(y)

    def logging_at_end(at: int) -> Tensor:
        y = work(work(x))
        log.append(float(y.float().square().mean()))
        return y

    def logging_at_end_kept(at: int) -> Tensor:
        y = work(work(x))
        log.append(y.float().square().mean())
        return y

    def printing(at: int) -> Tensor:
        y = work(x)
        print(y.float().square().mean())
        return work(y)

    def argument(at: int) -> Tensor:
        y = work(x)
        return work(y * scales[at % 8].item())

    def argument_kept(at: int) -> Tensor:
        y = work(x)
        return work(y * scales[at % 8].to(dtype))

    def to_host(at: int) -> Tensor:
        y = work(x)
        log.append(y[0].cpu())
        return work(y)

    def to_host_later(at: int) -> Tensor:
        y = work(x)
        into.copy_(y[0], non_blocking=True)
        return work(y)

    def tolist(at: int) -> Tensor:
        y = work(x)
        log.append(y[0, :64].tolist())
        return work(y)

    def from_list(at: int) -> Tensor:
        y = work(x)
        factor = torch.tensor([0.5 + 0.001 * each for each in range(64)], device=device, dtype=dtype)
        return work(y * factor.repeat(WIDTH // 64))

    def from_list_kept(at: int) -> Tensor:
        y = work(x)
        factor = 0.5 + 0.001 * torch.arange(64, device=device, dtype=dtype)
        return work(y * factor.repeat(WIDTH // 64))

    def from_host(at: int) -> Tensor:
        y = work(x)
        return work(batch.to(device).to(dtype)) + y[: WIDTH // 2]

    def from_pinned(at: int) -> Tensor:
        y = work(x)
        return work(pinned.to(device, non_blocking=True).to(dtype)) + y[: WIDTH // 2]

    def synchronize(at: int) -> Tensor:
        y = work(x)
        if device == "cuda":
            torch.cuda.synchronize()
        return work(y)

    def plain(at: int) -> Tensor:
        return work(work(x))

    def event(at: int) -> Tensor:
        y = work(x)
        if device == "cuda":
            done = torch.cuda.Event()
            done.record()
            done.synchronize()
        return work(y)

    def event_later(at: int) -> Tensor:
        y = work(x)
        into.copy_(y[0], non_blocking=True)
        done = torch.cuda.Event() if device == "cuda" else None
        if done is not None:
            done.record()
            log.append(done)
        y = work(y)
        if len(log) > 1 and hasattr(log[-2], "synchronize"):
            log[-2].synchronize()
        return y

    found = {
        "size": Program("size", 1, size, size_kept),
        "loop": Program("loop", 4, loop, loop_fixed),
        "branch": Program("branch", 1, branch, branch_kept),
        "taken_in_turn": Program("branch", 1, taken_in_turn),
        "boolean_index": Program("mask", 2, boolean_index, boolean_where),
        "nonzero": Program("mask", 1, nonzero),
        "masked_mean": Program("mask", 1, masked_mean, masked_mean_kept),
        "unique": Program("mask", 1, unique),
        "logging": Program("logging", 1, logging, logging_kept),
        "logging_at_end": Program("logging", 1, logging_at_end, logging_at_end_kept),
        "printing": Program("logging", 1, printing, logging_kept),
        "argument": Program("argument", 1, argument, argument_kept),
        "to_host": Program("to_host", 1, to_host, to_host_later),
        "tolist": Program("to_host", 1, tolist),
        "from_list": Program("from_list", 1, from_list, from_list_kept),
        "from_host": Program("from_host", 1, from_host, from_pinned),
        "synchronize": Program("synchronize", 1, synchronize, plain),
        "event": Program("synchronize", 1, event, plain),
        "masked_by_where": Program("none", 0, boolean_where),
        "from_pinned": Program("none", 0, from_pinned),
    }
    if device == "cuda":
        found["event_later"] = Program("none", 0, event_later)
    return found


def settled() -> None:
    """Wait until the device is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed_ns(step: Step) -> int:
    """A step's time, unprofiled: the median of rounds, each from an empty queue until the device is done."""
    for at in range(WARM):
        step(at)
    rounds = []
    for _ in range(ROUNDS):
        settled()
        begin = time.perf_counter_ns()
        for at in range(REPEATS):
            step(at)
        settled()
        rounds.append((time.perf_counter_ns() - begin) // REPEATS)
    return int(statistics.median(rounds))


def recorded(step: Step) -> bytes:
    """A recording of three steps, as torch.profiler writes it, packed."""
    from torch.profiler import ProfilerActivity, profile, schedule

    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    plan = schedule(wait=0, warmup=2, active=RECORDED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"

        def write(of: Any) -> None:
            of.export_chrome_trace(str(path))

        with profile(activities=kinds, schedule=plan, with_stack=True, record_shapes=True, on_trace_ready=write) as of:
            for at in range(2 + RECORDED):
                step(at)
                of.step()
        return gzip.compress(path.read_bytes(), 9, mtime=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    found = programs(asked.device)
    said: dict[str, Any] = {"torch": torch.__version__, "gpu": None, "programs": {}}
    if torch.cuda.is_available():
        said["gpu"] = torch.cuda.get_device_name()
    with torch.no_grad(), tarfile.open(asked.out / "waits.tar", "w") as archive, redirect_stdout(io.StringIO()):
        for name, program in found.items():  # a process that has recorded stays slower: all times first
            fixed = None if program.fixed is None else timed_ns(program.fixed)
            said["programs"][name] = {"use": program.use, "waits": program.waits, "fixed_ns": fixed}
            said["programs"][name]["step_ns"] = timed_ns(program.step)
        for name, program in found.items():
            data = recorded(program.step)
            entry = tarfile.TarInfo(f"{name}.json.gz")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
            print(name, len(data), said["programs"][name], file=sys.stderr)
    (asked.out / "waits.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
