"""Apply fixes and measure before and after: `python benchmarks/programs/run.py OUT [PROGRAM...]`.

Each program of `host.py`, `device.py`, `left_out.py` and `unseen.py` is tried as it is and in every other way: compiled
by torch.compile (default mode, and `reduce-overhead`), as one CUDA graph where one can hold it, and by hand. A variant
has a process of its own, for a process that has compiled or recorded stays changed. Processes of several programs
build side by side; then each program's are timed in turns, round after round, with nothing else at work, and the
medians of rounds kept. What a variant computes is compared with the original's. One more process records the original
with `tracemine.capture`.

OUT/runs.json: a record a program, with GPU, driver, versions and commit. OUT/PROGRAM/: the recording.
`--device cpu` tries the machinery where no GPU is. Needs torch, and torchvision for one program.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent)]

ROUNDS, REPEATS = 25, 9
WARM = 3  # steps before a round is timed: another process has had the device and the caches in between
SIDE_BY_SIDE = 7  # programs whose variants build at once
LIMIT_S = 95  # of one build
COMPILED = {"compile": {}, "compile_reduce_overhead": {"mode": "reduce-overhead"}}


def programs() -> dict[str, Any]:
    from programs.device import DEVICE
    from programs.host import HOST
    from programs.left_out import LEFT_OUT
    from programs.unseen import UNSEEN

    return {program.name: program for program in (*HOST, *DEVICE, *LEFT_OUT, *UNSEEN)}


def variants(program: Any) -> list[str]:
    graph = ["cuda_graph"] if program.capturable else []
    by_hand = [f"by_hand:{name}" for name in program.by_hand]
    return [
        "eager",
        *COMPILED,
        *graph,
        *by_hand,
        *(f"by_hand:{n}+{mode}" for n in program.then_compiled for mode in COMPILED),
    ]


def built(program: Any, variant: str) -> Callable[[], Any]:
    """The step of a variant, on the default device."""
    import torch

    from programs.host import graph_of

    hand, _, mode = variant.rpartition("+") if "+" in variant else (variant, "", variant)
    make = program.by_hand[hand.removeprefix("by_hand:")][1] if hand.startswith("by_hand:") else program.make
    if mode in COMPILED:
        return make(wrap=lambda function: torch.compile(function, **COMPILED[mode]))
    step = make()
    return graph_of(step) if mode == "cuda_graph" else step


def prepared(name: str, variant: str, device: str) -> tuple[Any, Callable[[], Any]]:
    import torch

    torch.set_num_threads(2)
    torch.manual_seed(0)
    program = programs()[name]
    torch.set_grad_enabled(program.training)
    with torch.device(device):  # not the default of the process: that would slow every call of the step down
        return program, built(program, variant)


def settled() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(step: Callable[[], Any]) -> int:
    """A step with work in the queue behind it: a run of steps, from an empty queue until the device is done."""
    for _ in range(WARM):
        step()
    settled()
    begin = time.perf_counter_ns()
    for _ in range(REPEATS):
        step()
    settled()
    return (time.perf_counter_ns() - begin) // REPEATS


def serve(pipe: Connection, name: str, variant: str, device: str, out: str) -> None:
    """Build, say what was computed, then time a round whenever asked."""
    try:
        import torch

        _, step = prepared(name, variant, device)
        first = step()
        torch.save(first.detach().double().cpu(), out)
        for _ in range(4):
            step()
        settled()
        pipe.send({"built": True})
    except Exception as error:  # a variant that raises is a result
        told = str(error).strip().splitlines() or [""]
        pipe.send({"error": f"{type(error).__name__}: {told[0][:300]}", "trace": traceback.format_exc()[-1500:]})
        return
    while pipe.recv() == "time":
        pipe.send(timed(step))


def record(name: str, device: str, out: Path, steps: int, built: Any, prepare: Callable[..., Any] = prepared) -> None:
    """The original, recorded as its user would: stacks and execution trace. Recorders take turns, once all have
    `built`: another process at work on the device shows as idle time of this one.
    """
    from tracemine.recording import capture

    _, step = prepare(name, "eager", device)
    for _ in range(5):
        step()
    settled()
    with suppress(threading.BrokenBarrierError):  # one of them failed: the others go on
        built.wait(LIMIT_S / 2)
    # The next one's turn begins when the last step has ended: files are written by the host alone.
    with (
        capture(out / name, steps=steps, timed=20, quiet=True) as recording,
        (out / "turn").open("w") as turn,
        locked(turn),
    ):
        for _ in recording.steps():
            step()


def recorded(
    names: Sequence[str],
    device: str,
    out: Path,
    steps: int,
    prepare: Callable[..., Any] = prepared,
    within_s: float = float("inf"),
) -> None:
    """Record some programs, each in a process of its own. None goes on for more than `within_s`."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(names))
    processes = [context.Process(target=record, args=(name, device, out, steps, barrier, prepare)) for name in names]
    for process in processes:
        process.start()
    ends = time.monotonic() + min(within_s, 2 * LIMIT_S)
    for process in processes:
        process.join(max(ends - time.monotonic(), 0))
        process.kill()


@contextmanager
def locked(file: IO[str]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def difference(one: Path, other: Path) -> float | None:
    """The largest difference of two outputs, of the largest of the first; none where their shapes differ."""
    import torch

    a, b = torch.load(one), torch.load(other)
    if a.shape != b.shape:
        return None
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-12)) if a.numel() else 0.0


class Worker:
    """A process that holds one variant of one program."""

    def __init__(self, name: str, variant: str, device: str, folder: Path) -> None:
        self.variant, self.output = variant, folder / f"{name}.{variant.replace(':', '.')}.pt"
        self.pipe, end = multiprocessing.Pipe()
        arguments = (end, name, variant, device, str(self.output))
        self.process = multiprocessing.get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        self.began, self.rounds_ns = time.monotonic(), list[int]()
        self.process.start()
        self.state: dict[str, Any] = {}

    def wait(self) -> None:
        left = LIMIT_S - (time.monotonic() - self.began)
        try:
            done = self.pipe.poll(max(left, 0))
            self.state = self.pipe.recv() if done else {"error": f"not built after {LIMIT_S} s"}
        except EOFError:
            self.state = {"error": "the process ended"}
        self.state["build_s"] = round(time.monotonic() - self.began, 1)

    def round(self) -> None:
        try:
            self.pipe.send("time")
            if self.pipe.poll(LIMIT_S):
                self.rounds_ns.append(self.pipe.recv())
                return
        except (EOFError, OSError):
            pass
        self.state = {"error": "ended while it was timed", **self.state}

    def told(self) -> dict[str, Any]:
        said = {key: value for key, value in self.state.items() if key not in ("built", "trace")}
        return {**said, "rounds_ns": self.rounds_ns, "step_ns": median(self.rounds_ns)}


def median(values: Sequence[int]) -> int | None:
    return int(statistics.median(values)) if values else None


def measured(names: Sequence[str], device: str, scratch: Path) -> dict[str, Any]:
    """Build the variants of several programs at once, then time one program after another."""
    known = programs()
    workers = {name: [Worker(name, kind, device, scratch) for kind in variants(known[name])] for name in names}
    for group in workers.values():
        for worker in group:
            worker.wait()
    found = {}
    for name, group in workers.items():
        alive = [worker for worker in group if "built" in worker.state]
        for at in range(ROUNDS):
            for worker in alive if at % 2 == 0 else reversed(alive):
                if "error" not in worker.state:
                    worker.round()
        found[name] = {worker.variant: worker.told() for worker in group}
        original = group[0]
        for worker in alive:
            differs = difference(original.output, worker.output)
            known_tolerance = known[name].tolerance
            same = differs is not None and differs <= known_tolerance
            found[name][worker.variant].update(largest_difference=differs, same_output=same)
    for group in workers.values():
        for worker in group:
            worker.process.kill()
            if "trace" in worker.state:
                print(worker.state["trace"], file=sys.stderr)
    return found


def machine(device: str) -> dict[str, Any]:
    import torch

    def said(*command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""

    return {
        "gpu": torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else "none",
        "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "commit": said("git", "-C", str(HERE), "rev-parse", "--short=12", "HEAD"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", choices=("times", "recordings"))
    parser.add_argument("--steps", type=int, default=2)
    chosen = parser.parse_args()
    names = chosen.programs or list(programs())
    scratch = chosen.out / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": machine(chosen.device), "programs": {}}
    batches = [names[at : at + SIDE_BY_SIDE] for at in range(0, len(names), SIDE_BY_SIDE)]
    for batch in [] if chosen.only == "recordings" else batches:
        result["programs"].update(measured(batch, chosen.device, scratch))
        (chosen.out / "runs.json").write_text(json.dumps(result, indent=1))
        for name in batch:
            times = {kind: said["step_ns"] or said.get("error") for kind, said in result["programs"][name].items()}
            print(name, times, flush=True)
    for batch in [] if chosen.only == "times" else batches:
        recorded(batch, chosen.device, chosen.out, chosen.steps)


if __name__ == "__main__":
    main()
