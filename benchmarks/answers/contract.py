"""The accounting contract over random programs and over files: how many scans break it, and in what.

    python -m benchmarks contract [--programs 10000] [--first 0] [--jobs 2] [PATH...]

A path is a trace, a database, a capture folder, or a folder in which all of these are looked for. A program is one of
tests/attack/programs.py, whole or damaged, written as a file and scanned from it. A scan breaks the contract where
`findings.contract` says so, where an activity is claimed twice, or where its counts and times are not those of the
file; a scan that ends in an exception breaks it too. A file that is refused in one line holds it, and is counted apart.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.attack.programs import Program
from tracemine import pipeline
from tracemine.errors import TracemineError
from tracemine.findings import Scan
from tracemine.findings.contract import breaches
from tracemine.units import Threshold

REFUSED = "refused"
_NOT_TRACES = ("meta", "et.", "capture", "graph", "profile", "package", "tsconfig")
_SUFFIXES = (".json", ".json.gz", ".sqlite", ".sqlite.gz")


def claimed_twice(scan: Scan) -> list[str]:
    """Return a line where two findings claim one activity."""
    rows = [row for one in scan.findings if one.on_gpu for once in one.activities for row in once]
    return [f"{len(rows) - len(set(rows))} activities are claimed twice"] if len(rows) > len(set(rows)) else []


def unlike_the_file(scan: Scan, truth: dict[str, int]) -> list[str]:
    """Return a line for each count or time of a scan that is not its file's, whose times are rounded one by one."""
    count = truth["count"]
    lines = [] if scan.trace.activities == count else [f"{scan.trace.activities} activities, {count} in the file"]
    repaired = scan.recorded is not None and bool(
        scan.recorded.doubts
    )  # a record over its successors is cut, which the report says first
    for name in ("gpu_time_ns", "gpu_busy_ns", "span_ns"):
        told, true = getattr(scan.summary, name), truth[name]
        if told > true + 2 * count + 2 or (told < true - 2 * count - 2 and not repaired):
            lines.append(f"{name}: {told}, {true} in the file")
    return lines


def faults_of(path: Path, truth: dict[str, int] | None = None) -> list[str]:
    """Return what the scan of a file breaks, in words; [REFUSED] where there is none."""
    try:
        scan = pipeline.scan(path, pipeline.ScanOptions(threshold=Threshold(ns=0)))
    except TracemineError:
        return [REFUSED]
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]
    return breaches(scan) + claimed_twice(scan) + ([] if truth is None else unlike_the_file(scan, truth))


def of_program(folder: str, seed: int) -> tuple[str, list[str]]:
    """Write the program of a seed and return what its scan breaks."""
    program, path = Program(seed), Path(folder, f"{seed}.json")
    path.write_text(json.dumps(program.trace()))
    found = faults_of(path, program.truth())
    path.unlink()
    return f"program {seed}", found


def of_file(folder: str, path: Path) -> tuple[str, list[str]]:
    """Return what the scan of a file breaks; a packed database is unpacked first."""
    if not path.name.endswith(".sqlite.gz"):
        return str(path), faults_of(path)
    unpacked = Path(folder, path.name.removesuffix(".gz"))
    with gzip.open(path) as packed, unpacked.open("wb") as out:
        shutil.copyfileobj(packed, out)
    found = faults_of(unpacked)
    unpacked.unlink()
    return str(path), found


def files_in(path: Path) -> Iterator[Path]:
    """Yield what can be scanned in a folder: a capture as its folder, each other file for itself."""
    if not path.is_dir():
        yield path
        return
    for one in sorted(path.rglob("*")):
        if one.name.endswith(_SUFFIXES) and not one.name.startswith(_NOT_TRACES):
            yield one.parent if one.name.startswith("trace.json") and (one.parent / "capture.json").exists() else one


def printed(name: str, results: Iterator[tuple[str, list[str]]]) -> int:
    """Print what breaks the contract, and how many do; return how many."""
    kinds: Counter[str] = Counter()
    broken, begun = 0, time.monotonic()
    for label, found in results:
        kinds["refused" if found == [REFUSED] else "read"] += 1
        lines = [line for line in found if line != REFUSED]
        broken += bool(lines)
        for line in lines:
            print(f"{label}: {line}", flush=True)
    seconds = time.monotonic() - begun
    print(f"{name}: {kinds['read']:,} read, {broken} break the contract; {kinds['refused']} refused; {seconds:.0f} s")
    return broken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    files = [file for path in options.paths for file in files_in(path)]
    seeds = range(options.first, options.first + options.programs)
    with tempfile.TemporaryDirectory() as folder, get_context("spawn").Pool(options.jobs) as pool:
        broken = printed("random programs", pool.imap_unordered(partial(of_program, folder), seeds, 20)) if seeds else 0
        broken += printed("files", pool.imap_unordered(partial(of_file, folder), files)) if files else 0
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
