"""How long a job of very many ranks takes from their summaries: `python -m benchmarks job_scale [--ranks 1024]`.

Eight ranks are simulated and read; their summaries stand for as many as are asked for, each with a clock of its own and
the fifth rank late. Measured are the bytes of a summary as a process sends it, the time and the memory from summaries
to findings, and of a replay of twenty what-ifs at once.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np
from msgspec.structs import replace

from tests.ranks.simulated import Program, Rank, write
from tracemine.ranks.clocks import clocks_of
from tracemine.ranks.find import find_job
from tracemine.ranks.match import matched
from tracemine.ranks.reading import packed, read_each
from tracemine.ranks.recognise import RanksRead
from tracemine.ranks.replay import JobReplay
from tracemine.ranks.summary import RankSummary

WHAT_IFS, LATE = 20, 5


def summaries(count: int, layers: int, steps: int, size: int) -> list[RankSummary]:
    """Return the summaries of so many ranks, made of eight, in groups of a size."""
    ranks = [Rank(silence_ns=3_000_000 if at == LATE else 0) for at in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Program(ranks=ranks, layers=layers, kernels=4, steps=steps), Path(folder))
        read = [rank for found in read_each(paths) if isinstance(found, list) for rank in found]
    random = Random(0)
    made = []
    for number in range(count):
        base = read[number] if number < len(read) else read[number % LATE]
        members = tuple(range(number // size * size, min(number // size * size + size, count)))
        groups = tuple(replace(group, ranks=members, size=len(members)) for group in base.collectives.groups)
        offset = random.randrange(10_000_000)
        made.append(
            replace(
                base, rank=number, world_size=count, file=f"rank{number}.json", start=base.start + offset,
                window=(base.window[0] + offset, base.window[1] + offset), computing=base.computing + offset,
                collectives=replace(base.collectives, groups=groups),
            )
        )  # fmt: skip
    return made


def main() -> None:
    """Print a row for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=25)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--size", type=int, help="of each group; by default all ranks are one")
    given = parser.parse_args()
    ranks = summaries(given.ranks, given.layers, given.steps, given.size or given.ranks)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest = max(len(packed([rank])) for rank in ranks[:8])
    began, worked = time.perf_counter(), time.process_time()
    job = find_job(RanksRead(tuple(ranks), {}), "job")
    found, work = time.perf_counter() - began, time.process_time() - worked
    matches = matched(ranks)
    replay = JobReplay(ranks, matches, clocks_of(ranks, matches.blocks))
    scenarios = [np.repeat(own, WHAT_IFS, axis=0) * np.linspace(1, 0.5, WHAT_IFS)[:, None] for own in replay.recorded()]
    began = time.perf_counter()
    replay.ends(scenarios, together=False)
    what_ifs = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    columns = {
        "ranks": f"{given.ranks:,}", "in a group": f"{given.size or given.ranks:,}",
        "collectives a rank": f"{len(ranks[0].start):,}", "summary, sent": f"{largest / 1e3:.0f} kB",
        "summaries to findings": f"{found:.1f} s ({work:.1f} of the CPU)", f"{WHAT_IFS} what-ifs": f"{what_ifs:.1f} s",
        "peak memory": f"{peak / 1024:.0f} MB ({before / 1024:.0f} before)",
        "found": ", ".join(one.title for one in job.findings[:2]),
    }  # fmt: skip
    for row in (columns, ["---"] * len(columns), columns.values()):
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
