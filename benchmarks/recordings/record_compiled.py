"""Time and record models under torch.compile: `python -m benchmarks record_compiled OUT [NAME...] [--seconds S]`.

The models of causes/models.py, beside what `record_causes.py OUT --models` writes: in OUT/NAME `compiled.json` (what
building and the first step took, compilation in it; what a step takes then with nothing recording) and `compiled/`
(what tracemine.capture writes of that step, without an execution trace).

So many models at a time (--beside) are compiled side by side, each in a process of its own: what compiling takes is
told with the others beside it. When all of them are ready their steps are timed, one after another, and recorded
thereafter. What is there is left alone. Needs torch with CUDA, and the packages that the models come from.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier, Lock
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

COMPILED_S = 110  # a round goes on without the models that take longer
TURN_S = 60  # a model waits so long for its turn to be timed, or recorded


def timed(name: str, out: Path, ready: Barrier, turn: Lock, quiet: Barrier) -> dict[str, Any]:
    """One model's figures; its capture is written. Raises whatever torch.compile raises."""
    import torch

    from benchmarks.causes import parts
    from benchmarks.causes.models import MODELS
    from benchmarks.recordings.record_causes import pipelined_ns, warmed
    from tracemine.recording import capture

    one = next(one for one in MODELS if one.name == name)
    parts.COMPILED = True
    with torch.set_grad_enabled(one.training):
        begin = time.perf_counter()
        try:
            step = warmed(one.before, 1)
            first_s = time.perf_counter() - begin
            for _ in range(4):  # another batch, and what is compiled again for it
                step()
            torch.cuda.synchronize()
        finally:
            waited(ready)
        with turn:
            means = pipelined_ns(step)
        waited(quiet)
        with (
            turn,
            capture(out / name / "compiled", steps=2, warmup=1, timed=0, quiet=True, execution_trace=False) as it,
        ):
            for _ in it.steps():
                step()
    return {"first_step_s": round(first_s, 2), "compiled_ns": int(statistics.median(means)), "means_ns": means}


def waited(barrier: Barrier) -> None:
    """Wait for the others of the round, as long as they may take."""
    with contextlib.suppress(BrokenBarrierError):  # one of them takes too long, and is ended
        barrier.wait()


def one_model(name: str, out: Path, ready: Barrier, turn: Lock, quiet: Barrier) -> None:
    import torch

    from benchmarks.recordings.record_models import machine, reason

    torch.set_num_threads(2)
    target = out / name
    target.mkdir(parents=True, exist_ok=True)
    try:
        found = timed(name, out, ready, turn, quiet)
    except Exception as error:
        found = {"failed": reason(error)}
    (target / "compiled.json").write_text(json.dumps({"name": name, **machine(), **found}, indent=1) + "\n")
    print(name, json.dumps(found), flush=True)


def rounds(names: Sequence[str], out: Path, beside: int, until: float) -> None:
    context = multiprocessing.get_context("spawn")
    for first in range(0, len(names), beside):
        if time.time() > until:
            return
        chosen = names[first : first + beside]
        ready = context.Barrier(len(chosen), timeout=COMPILED_S)
        quiet = context.Barrier(len(chosen), timeout=TURN_S)
        turn = context.Lock()
        processes = [context.Process(target=one_model, args=(name, out, ready, turn, quiet)) for name in chosen]
        for process in processes:
            process.start()
        end = time.time() + COMPILED_S + TURN_S
        for process in processes:
            process.join(max(0.0, end - time.time()))
            if process.is_alive():
                process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="models (all of them)")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no round after that long")
    parser.add_argument("--beside", type=int, default=9, help="models that are compiled at a time")
    chosen = parser.parse_args()
    from benchmarks.causes.models import MODELS

    names = [one.name for one in MODELS if not chosen.names or one.name in chosen.names]
    names = [name for name in names if not (chosen.out / name / "compiled.json").exists()]
    rounds(names, chosen.out, chosen.beside, time.time() + chosen.seconds)


if __name__ == "__main__":
    main()
