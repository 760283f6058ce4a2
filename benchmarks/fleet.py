"""Make many varied traces, scan them by processes and by Ray, and hold the data sets against each other.

    python benchmarks/fleet.py [--count 1000] [--processes 1 8 16] [--ray local|ADDRESS] [--kill]

Traces are our recordings under other jobs, days and ranks, their times stretched a little so that no two are the same;
in every 25 one is cut off, empty, no trace, or holds the same events many times over. Printed: seconds and processor
time of each engine, overhead a trace of Ray over processes, and whether all rows are equal. --kill: processes that scan
are killed while both run. Exits with 1 where rows differ or a trace has no row.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow.parquet as pq

from tracemine.fleet.cluster import on_ray
from tracemine.fleet.dataset import TABLES
from tracemine.fleet.machine import Limits
from tracemine.fleet.run import Engine, Total, on_this_machine, tasks, total
from tracemine.fleet.task import Settings

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "fixtures" / "kineto").glob("*.json.gz"))
JOBS, DAYS, ODD = 40, 5, 25
HUGE = 40  # times that a huge trace holds the events of a recording


def make(folder: Path, count: int) -> None:
    """Write so many traces: JOB/DAY/rankN.json.gz."""
    draw = random.Random(7)
    read = {path: json.loads(gzip.decompress(path.read_bytes())) for path in SOURCES}
    for number in range(count):
        job, day = f"job{number % JOBS:02}", f"2026-11-{1 + number // JOBS % DAYS:02}"
        place = folder / job / day / f"rank{number // (JOBS * DAYS)}.json.gz"
        place.parent.mkdir(parents=True, exist_ok=True)
        document = read[SOURCES[number % JOBS % len(SOURCES)]]
        place.write_bytes(
            odd(number // ODD, document) if number % ODD == 0 else whole(document, draw.uniform(0.9, 1.1))
        )


def whole(document: dict[str, Any], factor: float, times: int = 1) -> bytes:
    """A recording whose times are stretched, its events that many times over one after another."""
    events = document["traceEvents"]
    begin = min((event["ts"] for event in events if event.get("ph") == "X"), default=0)
    end = max((event["ts"] + event.get("dur", 0) for event in events if event.get("ph") == "X"), default=0)
    more = [
        event | {"ts": begin + (event["ts"] - begin + turn * (end - begin)) * factor} | (
            {"dur": event["dur"] * factor} if "dur" in event else {}
        )
        for turn in range(times)
        for event in events
        if "ts" in event
    ]  # fmt: skip
    rest = [event for event in events if "ts" not in event]
    return gzip.compress(json.dumps(document | {"traceEvents": [*rest, *more]}).encode(), 1)


def odd(number: int, document: dict[str, Any]) -> bytes:
    """What a fleet meets besides traces."""
    text = whole(document, 1.0)
    return (text[: len(text) // 3], b"", b'{"traceEvents": 3}', whole(document, 1.0, HUGE))[number % 4]


def ran(name: str, engine: Engine, traces: Path, dataset: Path, kill: bool) -> tuple[Total, float]:
    """Scan all; return what became of them, and seconds from the first trace's end, which an engine's start is not."""
    given, known, _ = tasks([str(traces)], str(dataset), Settings(), "{job}/{day}/*")
    began, cpu = time.monotonic(), time.process_time()
    outcomes = engine(given, Limits(attempts=6))
    first = next(outcomes)
    started = time.monotonic() - began
    stopped = threading.Event()
    if kill:
        threading.Thread(target=killing, args=(stopped,), daemon=True).start()
    found = total(chain([first], outcomes), known, ())
    stopped.set()
    took, driver = time.monotonic() - began - started, time.process_time() - cpu
    print(
        f"{name}: {found.scanned} scanned, {found.refused} refused, {found.failed} failed, {found.findings} findings; "
        f"{started:.1f} s to the first, then {took:.1f} s, {found.cpu_seconds:.1f} s of processors, "
        f"driver {1000 * driver / max(len(given), 1):.2f} ms a trace",
        flush=True,
    )
    return found, took


def killing(stopped: threading.Event) -> None:
    """Kill a process that scans, every two seconds."""
    draw = random.Random(3)
    while not stopped.wait(2):
        if pids := list(scanning()):
            os.kill(draw.choice(pids), signal.SIGKILL)


def scanning() -> Iterator[int]:
    """Processes of this machine that scan traces."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"tracemine.fleet.worker" in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
        except OSError:
            continue


def same(one: Path, other: Path) -> bool:
    """Print for each table whether two data sets have the same rows."""
    every = True
    for table in TABLES:
        rows = [sorted(pq.read_table(each / table.name).to_pylist(), key=repr) for each in (one, other)]
        every &= rows[0] == rows[1]
        how = "equal" if rows[0] == rows[1] else f"{len(rows[1]):,} others"
        print(f"{other.name} beside {one.name}, {table.name}: {len(rows[0]):,} rows, {how}")
    return every


def main() -> int:
    """Make, scan by each engine, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--processes", type=int, nargs="+", default=[len(os.sched_getaffinity(0))])
    parser.add_argument("--ray", help="address of a cluster, or local")
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracemine-fleet-") as temporary:
        folder = Path(temporary)
        make(folder / "traces", given.count)
        engines = {f"{count} processes": on_this_machine(count) for count in given.processes}
        if given.ray is not None:
            engines["ray"] = on_ray(given.ray)
        took = {}
        for name, engine in engines.items():
            found, took[name] = ran(name, engine, folder / "traces", folder / name, given.kill)
            if found.scanned + found.refused + found.failed != given.count:
                print(f"{name}: traces without a row")
                return 1
        first, *others = engines
        if given.ray is not None:
            count = given.processes[-1]
            over = 1000 * count * (took["ray"] - took[f"{count} processes"]) / given.count
            print(f"Ray over {count} processes: {over:.1f} ms a trace and process")
        equal = [same(folder / first, folder / name) for name in others]
        return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
