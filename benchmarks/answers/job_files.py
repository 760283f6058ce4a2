"""What a job costs from its files: `python -m benchmarks job_files BASE [--ranks 64] [--megabytes 50]`.

BASE: a folder with the recorded ranks of a job. Its steps are repeated until a file has the size asked for, and its
ranks copied until there are enough, all in the group that was theirs. Read by two processes, as `scan FOLDER` does it;
beside it scans of some files alone, one after another. What a rank keeps is the driver's memory after less before.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import tracemine
from benchmarks.reading.trace_maker import make_trace, read_json
from tracemine.ranks.find import find_job
from tracemine.ranks.recognise import read_ranks

_ALONE = 4  # files that are scanned alone
_BETWEEN_US = 1_000  # two repetitions


def of_rank(base: dict[str, Any], rank: int, count: int) -> dict[str, Any]:
    """Return a recording as if it were of one of so many ranks, all of them in its one group."""
    trace = deepcopy({key: value for key, value in base.items() if key != "traceEvents"})
    trace["distributedInfo"] |= {"rank": rank, "world_size": count}
    for group in trace["distributedInfo"]["pg_config"]:
        group |= {"pg_size": count, "ranks": list(range(count))}
    events = [{**event, "args": dict(event["args"])} if "args" in event else event for event in base["traceEvents"]]
    for event in events:
        arguments = event.get("args", {})
        if arguments.get("Group size", 1) > 1:
            arguments["Group size"] = count
            if "Process Group Ranks" in arguments:
                arguments["Process Group Ranks"] = str(list(range(count)))
    return {**trace, "traceEvents": events}


def resident_mb() -> float:
    """Return the memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def spent_s() -> float:
    """Return the processor's seconds of this process and of those that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--megabytes", type=float, default=50)
    given = parser.parse_args()
    bases = [read_json(path) for path in sorted(given.base.glob("rank*"))]
    times = [[event["ts"] for event in base["traceEvents"] if event["ph"] == "X"] for base in bases]
    period = _BETWEEN_US + max(int(max(each) - min(each)) for each in times)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"rank{rank}.json" for rank in range(given.ranks)]
        for rank, path in enumerate(paths):
            trace = of_rank(bases[rank % len(bases)], rank, given.ranks)
            make_trace(trace, path, megabytes=given.megabytes, period_us=period)
        print(f"{given.ranks} files of {paths[0].stat().st_size / 1e6:.0f} MB")
        read_ranks(paths[:1])  # imports and first allocations
        before_mb, before_s, began = resident_mb(), spent_s(), time.perf_counter()
        read = read_ranks(paths, processes=2)
        kept_mb = resident_mb() - before_mb
        read_s, read_wall = spent_s() - before_s, time.perf_counter() - began
        job = find_job(read, "job")
        job_s, wall = spent_s() - before_s, time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"read: {read_wall:.0f} s, {read_s:.0f} CPU-s; with the job: {wall:.0f} s, {job_s:.0f} CPU-s")
        each = kept_mb / len(read.ranks)
        print(f"kept of a rank: {each:.2f} MB of {len(read.ranks[0].start)} collectives; peak {peak:.0f} MB")
        print(
            f"matched {job.matched}, replay off by {job.replay_error_percent} %; {[one.title for one in job.findings]}"
        )
        began_s = spent_s()
        for path in paths[:_ALONE]:
            tracemine.scan(path)
        alone = (spent_s() - began_s) / min(_ALONE, len(paths))
        print(
            f"a scan alone: {alone:.1f} CPU-s; the job takes {job_s / (alone * len(paths)):.2f} x of {len(paths)} scans"
        )


if __name__ == "__main__":
    main()
