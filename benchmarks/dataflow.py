"""How much of a trace's dataflow is proven? Joined, resolved, equal from step to step, and how long it took.

    python benchmarks/dataflow.py [TRACE ET | FOLDER]... [--big 100000]

Without arguments: the recordings under fixtures/, and those of TRACEMINE_COMPAT_TRACES where it is set. A folder holds
recordings: folders with trace.json and et.json (or t.json), each perhaps gzipped. --big times one recording, laid out
again and again until it has so many activities.

A row: activities whose operator the execution trace has; kernels of which all that is read is known to come from a
writer or from outside the recording; reads of a step that equal those of the step before, carried ones (from outside in
the first step, from the first in the second: parameters, caches) apart, and those that nothing explains; edges; seconds
for reading both files, and for dataflow alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tracemine.columns import string_ids
from tracemine.flow import compare_steps, flow
from tracemine.formats import open_trace

CAPTURES = Path(__file__).parents[1] / "fixtures" / "captures"
_ELSEWHERE = (
    ("h200/{}/eager.json.gz", "h200/{}/et.json.gz", ("seed_chains", "splade_head")),
    ("dist/tp_infer_rank{}.json.gz", "dist/tp_infer_et_rank{}.json.gz", ("0", "1")),
)


@dataclass
class Score:
    """Counts of one trace, or of many."""

    activities: int = 0
    joined: int = 0
    kernels: int = 0
    resolved: int = 0
    compared: int = 0
    equal: int = 0
    carried: int = 0
    different: int = 0
    edges: int = 0
    open_s: float = 0.0
    flow_s: float = 0.0

    def __iadd__(self, other: Score) -> Score:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def line(self, name: str) -> str:
        """One row of the table."""
        return (
            f"{name[-34:]:<34} {self.joined:>7}/{self.activities:<7} {self.resolved:>7}/{self.kernels:<7}"
            f"{self.equal:>7}+{self.carried}/{self.compared:<7} {self.different:>3}  {self.edges:>7}"
            f" {self.open_s:>8.2f} {self.flow_s:>8.3f}"
        )


def score(trace: Path, execution_trace: Path) -> Score:
    """Open one pair of files and derive its dataflow."""
    begun = time.perf_counter()
    timeline = open_trace(trace, execution_trace=execution_trace)
    opened = time.perf_counter()
    found = flow(timeline)
    done = time.perf_counter()
    node = found.activity_node
    unresolved = np.append(~found.nodes.known, True)  # the last stands for what no node owns
    unresolved[found.reads.node[~found.reads.resolved]] = True
    kinds, names = string_ids(timeline.activities.column("kind"))
    kernel = kinds == (names.index("kernel") if "kernel" in names else -2)
    pairs = compare_steps(timeline, found)
    return Score(
        activities=len(node),
        joined=int((np.append(found.nodes.known, False)[node]).sum()),
        kernels=int(kernel.sum()),
        resolved=int((~unresolved[node[kernel]]).sum()),
        compared=sum(pair.reads for pair in pairs),
        equal=sum(pair.equal for pair in pairs),
        carried=sum(pair.carried for pair in pairs),
        different=sum(len(pair.different) if pair.aligned else 1 for pair in pairs),
        edges=len(found.edges.read),
        open_s=opened - begun,
        flow_s=done - opened,
    )


def known_pairs() -> Iterator[tuple[str, Path, Path]]:
    """The recordings of the repository and of TRACEMINE_COMPAT_TRACES."""
    yield from pairs_below(CAPTURES)
    root = os.environ.get("TRACEMINE_COMPAT_TRACES")
    for trace, execution_trace_name, names in _ELSEWHERE if root else ():
        for name in names:
            path = Path(root or "") / trace.format(name)
            yield trace.format(name), path, Path(root or "") / execution_trace_name.format(name)


def pairs_below(folder: Path) -> Iterator[tuple[str, Path, Path]]:
    """Every folder that holds a trace and its execution trace."""
    for execution_trace in sorted(folder.rglob("et.json*")):
        for name in ("trace.json", "trace.json.gz", "t.json"):
            if (trace := execution_trace.with_name(name)).is_file():
                yield str(execution_trace.parent.relative_to(folder)), trace, execution_trace


def big_pair(folder: Path, activities: int) -> tuple[str, Path, Path]:
    """decoder_prefill again and again, each time later and with ids of its own."""
    trace = json.loads(gzip.decompress((CAPTURES / "decoder_prefill" / "trace.json.gz").read_bytes()))
    execution_trace = json.loads(gzip.decompress((CAPTURES / "decoder_prefill" / "et.json.gz").read_bytes()))
    categories = {"cpu_op", "kernel", "cuda_runtime", "cuda_driver", "user_annotation", "gpu_memcpy", "gpu_memset"}
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") in categories]
    length = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events) + 10
    kernels = sum(e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") for e in events)
    times = -(-activities // kernels)
    ids = max(node["id"] for node in execution_trace["nodes"]) + 1
    shift = 10_000_000
    trace["traceEvents"] = [_later(e, turn * length, turn * shift) for turn in range(times) for e in events]
    execution_trace["nodes"] = [
        _renumbered(node, turn * ids, turn * shift) for turn in range(times) for node in execution_trace["nodes"]
    ]
    paths = folder / "trace.json", folder / "et.json"
    for path, content in zip(paths, (trace, execution_trace), strict=True):
        path.write_text(json.dumps(content), encoding="utf-8")
    return f"decoder_prefill × {times}", *paths


def _later(event: dict[str, Any], by_us: float, ids: int) -> dict[str, Any]:
    arguments = {
        key: value + ids if key in ("correlation", "External id", "Record function id", "Ev Idx") and value else value
        for key, value in event["args"].items()
    }
    return event | {"ts": round(event["ts"] + by_us, 3), "args": arguments}


def _renumbered(node: dict[str, Any], ids: int, functions: int) -> dict[str, Any]:
    attributes = [
        one | {"value": one["value"] + functions} if one["name"] == "rf_id" and one["value"] else one
        for one in node["attrs"]
    ]
    return node | {"id": node["id"] + ids, "ctrl_deps": node["ctrl_deps"] + ids, "attrs": attributes}


def main() -> None:
    """Print a row for each pair and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="a trace and its execution trace, or a folder of recordings"
    )
    parser.add_argument("--big", type=int, metavar="ACTIVITIES", help="also time one of so many activities")
    options = parser.parse_args()
    if len(options.paths) == 2 and all(path.is_file() for path in options.paths):
        pairs = [(options.paths[0].name, *options.paths)]
    else:
        pairs = [pair for folder in options.paths for pair in pairs_below(folder)] or list(known_pairs())
    print(f"{'trace':<34} {'joined':>15} {'resolved':>15}{'equal+carried/reads':>20} diff    edges   open s   flow s")
    total = Score()
    for name, trace, execution_trace in pairs:
        one = score(trace, execution_trace)
        total += one
        print(one.line(name))
    print(total.line(f"all {len(pairs)}"))
    if options.big:
        with tempfile.TemporaryDirectory() as folder:
            name, trace, execution_trace = big_pair(Path(folder), options.big)
            print(score(trace, execution_trace).line(name))


if __name__ == "__main__":
    main()
