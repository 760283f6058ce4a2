"""GPU time of `top` against sums over raw events, for each trace of folders: `python -m benchmarks top_totals FOLDER`.

    python -m benchmarks top_totals fixtures            # what differs by more than 0.1 % is marked
    python -m benchmarks top_totals fixtures --pairs 5  # processor time against that of `scan`, alternating

Raw events are read with json and sqlite3, not with tracemine's readers. What a trace holds twice, or what cannot have
been (tracemine ends or leaves it out, and says so), makes a difference that is told with its reason.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.answers.raw_files import opened, tables_of
from tracemine.api.pictures import tops_of
from tracemine.errors import TracemineError
from tracemine.findings import Scan
from tracemine.formats.discover import traces
from tracemine.pipeline import Analysis, ScanOptions, analyse, mined

_MOST = 0.001
_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"})
_TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")


def raw_ns(path: Path) -> int | None:
    """Nanoseconds of all GPU events of a file as they stand there; None: neither JSON of Kineto nor SQLite of nsys."""
    with opened(path) as raw:
        if isinstance(raw, sqlite3.Connection):
            return _of_sqlite(raw)
        return (
            None
            if raw is None
            else sum(
                max(round(1000 * event.get("dur", 0)), 0)
                for event in raw["traceEvents"]
                if event.get("ph") == "X" and event.get("cat") in _GPU
            )
        )


def _of_sqlite(connection: sqlite3.Connection) -> int:
    names = tables_of(connection) & {f"CUPTI_ACTIVITY_KIND_{kind}" for kind in _TABLES}
    sums = (connection.execute(f'select coalesce(sum("end" - start), 0) from {name}') for name in names)  # noqa: S608
    return sum(int(one.fetchone()[0]) for one in sums)


def compared(path: Path) -> tuple[int, int | None, str]:
    """GPU time as `top` has it, as the file has it, and what may make them differ. Raises TracemineError."""
    analysis = analyse(path)
    return top_ns(analysis, mined(analysis)), raw_ns(path), reason(analysis)


def top_ns(analysis: Analysis, scan: Scan) -> int:
    """GPU time of a trace that was scanned, as `top` has it."""
    return tops_of(analysis, scan, ScanOptions(), whole=True).by("device").gpu_time_ns


def reason(analysis: Analysis) -> str:
    """What may make that differ from what the file says."""
    ingest = analysis.timeline.meta.ingest
    dropped = ", ".join(f"{name} {count}" for name, count in ingest.dropped.items())
    return "; ".join(filter(None, (*ingest.doubts, f"dropped: {dropped}" if dropped else "")))[:90]


def seconds(*arguments: str) -> float:
    """Processor time of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "tracemine", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="also time N pairs of scan and top of each")
    asked = parser.parse_args()
    apart = count = 0
    for folder in asked.folders:
        try:
            paths = list(traces(str(folder)))
        except TracemineError as error:
            print(f"{'–':>14} {'–':>14} {'':8} {str(error).splitlines()[0]}")
            continue
        for path in paths:
            try:
                ours, raw, reason = compared(path)
            except TracemineError as error:
                print(f"{'–':>14} {'–':>14} {'':8} {path}: {str(error).splitlines()[0][-60:]}")
                continue
            if raw is None:
                continue
            count += 1
            differs = abs(ours - raw) / max(raw, 1)
            apart += differs > _MOST
            mark = f"{100 * differs:7.3f}%" if differs else "  equal "
            print(f"{ours:>14,} {raw:>14,} {mark} {path}{f'  ({reason})' if differs > _MOST else ''}")
            for by in ("kernel", "module") if asked.pairs else ():
                ratios = [
                    seconds("top", str(path), "--by", by, "-q") / seconds("scan", str(path), "-q")
                    for _ in range(asked.pairs)
                ]
                print(f"{'':14} {'':14} {'':8} --by {by}: {median(ratios):.2f} × scan (median of {asked.pairs} pairs)")
    print(f"{apart} of {count} differ by more than {100 * _MOST:g} %")


if __name__ == "__main__":
    main()
