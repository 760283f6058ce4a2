"""What is said of jobs with something planted, and what it truly costs: `python -m benchmarks job_plants [--ranks 64]`.

Jobs are simulated from a program (tests/ranks/simulated.py), which knows nothing of how they are read: a rank's true
loss is the program's step without recording, less that with the rank cured. A row a plant: what is named, what is said
to be saved, what is lost; then the largest saving that is said of jobs in which nothing is planted.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.ranks.simulated import Program, Rank, run, write
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks
from tracemine.ranks.record import Job

AT, OTHER = 17, 42
PLANTS: dict[str, dict[int, Rank]] = {
    "GPU × 1.05": {AT: Rank(slow_kernels=1.05)},
    "GPU × 1.15": {AT: Rank(slow_kernels=1.15)},
    "GPU × 1.5": {AT: Rank(slow_kernels=1.5)},
    "host × 1.1": {AT: Rank(host=1.1)},
    "host × 1.3": {AT: Rank(host=1.3)},
    "host recorded × 2": {AT: Rank(recorded_host=2.0)},
    "silence 1 ms": {AT: Rank(silence_ns=1_000_000)},
    "silence 3 ms": {AT: Rank(silence_ns=3_000_000)},
    "input 1 ms": {AT: Rank(silence_ns=1_000_000, loads=True)},
    "input 3 ms": {AT: Rank(silence_ns=3_000_000, loads=True)},
    "work × 1.15": {AT: Rank(more_work=1.15)},
    "GPU × 1.3, silence 3 ms": {AT: Rank(slow_kernels=1.3), OTHER: Rank(silence_ns=3_000_000)},
    "work × 1.3, input 3 ms": {AT: Rank(more_work=1.3), OTHER: Rank(silence_ns=3_000_000, loads=True)},
}
NAMES = ("straggler", "length", "expert_imbalance", "slow_link", "link_below_rate")


def job_of(program: Program) -> Job:
    """Read a program's job as recorded."""
    with tempfile.TemporaryDirectory() as folder:
        return find_job(read_ranks(write(program, Path(folder))), "job")


def row(name: str, program: Program, cured: list[Rank]) -> str:
    """Return a plant's line: each finding that blames somebody, and what is truly lost."""
    step = run(program, recorded=False)[0]
    loss = step - run(replace(program, ranks=cured, lengths=0.0), recorded=False)[0]
    said = [
        f"{one.rule} {','.join(map(str, one.ranks)) if len(one.ranks) < 3 else f'of {len(one.ranks)} ranks'} "
        + ("–" if (saves := one.step_saving_ns) is None else f"{saves.mid / 1e6:.2f} ({saves.low / 1e6:.2f}–"
        f"{saves.high / 1e6:.2f})")
        for one in job_of(program).findings
        if one.rule.startswith(NAMES) or one.rule == "unrecorded_barrier"
    ]  # fmt: skip
    return f"| {name} | {'; '.join(said) or 'nobody'} | {loss / 1e6:.2f} | {100 * loss / step:.1f} % |"


def main() -> None:
    """Print a row for each plant, and what is invented of clean jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    clean = [Rank()] * given.ranks
    print("| planted | named, and said to save a step, ms | truly lost, ms | of the step |\n|---|---|---:|---:|")
    for name, planted in PLANTS.items():
        ranks = [planted.get(at, Rank()) for at in range(given.ranks)]
        moved = 1 + sum(rank.more_work - 1 for rank in ranks) / given.ranks  # work does not vanish
        print(row(name, Program(ranks=ranks), [Rank(more_work=moved)] * given.ranks), flush=True)
    late = [Rank(tail_ns=20_000_000) if at == AT else Rank() for at in range(given.ranks)]
    moved_tail = [Rank(tail_ns=20_000_000 // given.ranks)] * given.ranks
    print(row("20 ms of work, a barrier not recorded", Program(ranks=late, barrier=True), moved_tail), flush=True)
    print(row("lengths ± 20 %", Program(ranks=clean, lengths=0.2, steps=6), clean), flush=True)
    for shape, program in {"device-bound": Program(clean), "host-bound": Program(clean, kernel_ns=5_000)}.items():
        invented = []
        for seed in range(given.seeds):
            job = job_of(replace(program, seed=seed))
            invented += [one for one in job.findings if one.rule.startswith(NAMES)]
        print(f"\nNothing planted, {shape}: {len(invented)} findings that blame somebody in {given.seeds} jobs")


if __name__ == "__main__":
    main()
