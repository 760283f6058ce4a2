"""Capture real models before and after a fix: `python -m benchmarks record_fixes OUT [PAIR...]`.

PAIR: of step_pairs.py (those of FIXES). In OUT/PAIR, `before/` and `after/`: what `tracemine.capture` writes, steps
timed alone and then recorded, as a user would have it. Each capture has a process of its own, for one that has recorded
stays slower; processes start side by side and take turns with the machine. What is there is left alone. `end_to_end.py`
goes on from here: findings, tickets, and what `tracemine diff` says. Needs torch with CUDA; transformers and
torchvision.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

FIXES = (
    *("fused_llama_loop", "graph_llama_8_layers", "rms_norm_llama", "pinned_64MB", "fused_vit_loop"),
    *("graph_gpt2_small", "no_item_8x512", "no_empty_cache", "graph_bert_small_batch", "fused_resnet50_lists"),
)
SIDES = ("before", "after")


def captured(name: str, side: str, out: Path) -> None:
    """One capture, in a process of its own."""
    import torch

    from benchmarks.recordings.record_models import warmed
    from benchmarks.recordings.record_steps import on_gpu
    from benchmarks.recordings.step_pairs import PAIRS
    from tracemine.recording import capture

    os.environ["MASTER_PORT"] = str(29517 + os.getpid() % 1000)
    torch.set_num_threads(2)
    torch.manual_seed(0)
    pair = next(pair for pair in PAIRS if pair.name == name)
    with torch.set_grad_enabled(pair.training), (out / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # until it is closed
        step = warmed(on_gpu(getattr(pair, side))())
        with capture(out / name / side, steps=3, timed=30) as recording:
            for _ in recording.steps():
                step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("pairs", nargs="*", default=FIXES)
    parser.add_argument("--processes", type=int, default=8)
    chosen = parser.parse_args()
    context = multiprocessing.get_context("spawn")

    def run(name: str, side: str) -> None:
        if not (chosen.out / name / side).exists():
            (chosen.out / name).mkdir(parents=True, exist_ok=True)
            process = context.Process(target=captured, args=(name, side, chosen.out))
            process.start()
            process.join()

    with ThreadPoolExecutor(chosen.processes) as pool:
        works = [(name, side) for name in chosen.pairs for side in SIDES]
        list(pool.map(run, *zip(*works, strict=True)))


if __name__ == "__main__":
    main()
