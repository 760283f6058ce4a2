"""Make many varied traces, scan them by processes and by Ray, and hold the data sets against each other.

    python -m benchmarks fleet [--count 1000] [--processes 1 8 16] [--ray local|ADDRESS | --nodes 3] [--kill]

Traces are our recordings under other jobs, days and ranks, their times stretched a little so that no two are the same;
in every 25 one is cut off, empty, no trace, or holds the same events many times over. --nodes begins a Ray cluster of
this host: a head that scans nothing, and so many nodes of one core each. Printed of each engine: seconds and processor
time; once more through all traces, now known, which costs what the engine costs; whether all rows are equal. --kill:
while an engine runs, every five seconds a process that scans is killed, and of --nodes once a whole node, after a third
of the traces. Exits with 1 where rows differ or a trace has no row.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.parquet as pq

from tracemine.fleet.dataset import TABLES
from tracemine.fleet.machine import Limits, on_ray
from tracemine.fleet.run import Engine, Total, on_this_machine, tasks, total
from tracemine.fleet.task import Task, TaskOutcome
from tracemine.scan_settings import ScanSettings

ROOT = Path(__file__).resolve().parents[2]
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


@dataclass(frozen=True)
class Way:
    """An engine with the places that it has, and how a node of it is lost."""

    name: str
    engine: Engine
    places: int
    lose_node: Callable[[], None] | None = None


def ran(way: Way, traces: Path, dataset: Path, kill: bool) -> tuple[Total, float, float]:
    """Scan all; return what became of them, and how long a trace takes a place: one that is scanned, one that is known.

    The second is what the engine costs.
    """
    given, known, _ = tasks([str(traces)], str(dataset), ScanSettings(), "{job}/{day}/*")
    stopped = threading.Event()
    if kill:
        threading.Thread(target=killing, args=(stopped,), daemon=True).start()
    found, took = passed(way, given, known, way.lose_node if kill else None)
    stopped.set()
    _, idle = passed(way, given, 0, None)
    return found, way.places * took / len(given), way.places * idle / len(given)


def passed(way: Way, given: list[Task], known: int, lose_node: Callable[[], None] | None) -> tuple[Total, float]:
    """Put all tasks through an engine, print what it took, and return seconds from the first task's end.

    What an engine takes to begin comes before that, and is printed apart.
    """
    began = time.monotonic()
    spent: list[tuple[float, float, float]] = []  # when each task ended: the time, the driver's processor time, Ray's
    outcomes = way.engine(given, Limits(attempts=6))

    def seen() -> Iterator[TaskOutcome]:
        for number, outcome in enumerate(outcomes):
            if number in (0, len(given) - 1):
                spent.append((time.monotonic(), time.process_time(), of_ray()))
            if number == len(given) // 3 and lose_node is not None:
                lose_node()
                print(f"{way.name}: a node is gone after {number} traces", flush=True)
            yield outcome

    found = total(seen(), known, ())
    took, driver, others = (last - first for first, last in zip(spent[0], spent[-1], strict=True))
    each = 1000 / len(given)
    print(
        f"{way.name}: {found.scanned} scanned, {found.refused} refused, {found.failed} failed, {found.known} known, "
        f"{found.findings} findings; {spent[0][0] - began:.1f} s to the first, then {took:.1f} s, "
        f"{found.cpu_seconds:.1f} s of processors; a trace: driver {each * driver:.2f} ms of processor, "
        f"Ray's servers {each * others:.2f} ms",
        flush=True,
    )
    return found, took


def of_ray() -> float:
    """Processor seconds until now of what Ray runs beside drivers and workers: its servers and nodes' daemons."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        if name.endswith(("(gcs_server", "(raylet")):
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def places(given: argparse.Namespace) -> Iterator[Way]:
    """Yield the engines that are asked for, one after another; a cluster runs while it is used."""
    for count in given.processes:
        yield Way(f"{count} processes", on_this_machine(count), count)
    if given.ray is not None:
        yield Way("Ray", on_ray(given.ray), given.processes[-1])
    if given.nodes is not None:
        with cluster(given.nodes) as way:
            yield way


@contextmanager
def cluster(nodes: int) -> Iterator[Way]:
    """Begin a Ray cluster of this host: a head without cores and so many nodes of one each."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 100 << 20}
    begun = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **store})
    try:
        last = [begun.add_node(num_cpus=1, **store) for _ in range(nodes)][-1]
        name = f"Ray, {nodes} nodes"
        yield Way(name, on_ray(begun.address), nodes, lambda: begun.remove_node(last, allow_graceful=False))
    finally:
        begun.shutdown()


def killing(stopped: threading.Event) -> None:
    """Kill a process that scans, every five seconds."""
    draw = random.Random(3)
    while not stopped.wait(5):
        if pids := scanning():
            os.kill(draw.choice(pids), signal.SIGKILL)


def scanning() -> list[int]:
    """Return processes below this one that scan traces; a cluster that it began is below it too."""
    parents, found = dict[int, int](), list[int]()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"tracemine.fleet.worker" in (path / "cmdline").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid in found if is_ours(pid)]


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
    parser.add_argument("--nodes", type=int, help="begin a cluster of so many nodes here")
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tracemine-fleet-") as temporary:
        folder = Path(temporary)
        make(folder / "traces", given.count)
        costs: dict[str, tuple[float, float]] = {}
        for way in places(given):
            found, scanned, known = ran(way, folder / "traces", folder / way.name, given.kill)
            costs[way.name] = scanned, known
            print(
                f"{way.name}: a trace takes a place {1000 * scanned:.1f} ms, one that is known {1000 * known:.1f} ms",
                flush=True,
            )
            if found.scanned + found.refused + found.failed != given.count:
                print(f"{way.name}: traces without a row, or with two")
                return 1
        first, *others = costs
        if given.ray is not None or given.nodes is not None:
            pool = f"{given.processes[-1]} processes"
            more = [1000 * (one - other) for one, other in zip(costs[others[-1]], costs[pool], strict=True)]
            print(f"{others[-1]} over {pool}: {more[0]:.1f} ms a trace, {more[1]:.1f} ms one that is known")
        equal = [same(folder / first, folder / other) for other in others]
        return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
