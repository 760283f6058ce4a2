"""How much of a trace's dataflow is proven? Joined, resolved, equal from step to step, and how long it took.

    python -m benchmarks dataflow [TRACE ET | FOLDER]... [--big 100000] [--consistent]

Without arguments: the recordings under fixtures/, and those of TRACEMINE_COMPAT_TRACES where it is set. A folder holds
recordings: folders with trace.json and et.json (or t.json), each perhaps gzipped. --big times one recording, laid out
again and again until it has so many activities, and once more without its execution trace, in seconds of CPU.

A row: activities whose operator the execution trace has; kernels of which all that is read is known to come from a
writer or from outside the recording; reads of a step that equal those of the step before, carried ones (from outside in
the first step, from the first in the second: parameters, caches) apart, and those that nothing explains; edges; seconds
for reading both files, and for dataflow alone.

--consistent says instead how far dataflow comes without the execution trace, held against what the execution trace
proves. A read is right if its producers are the same nodes, and it comes from outside in both or in neither; of two
inputs that look alike, and that a sum or a product does not tell apart, it makes no difference which is first. A row:
proven reads; of those that are called consistent (exactly one candidate left) the share that is right, and their share
of all reads; the same of reads of what another node wrote, and of reads from outside the recording; the share that is
right of all reads, guesses too; and reads of which nothing was inferred (lists that the profiler cut). Recordings in
_TUNED_ON were looked at while the rules were made, and are summed apart from the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dataflow.steps import compare_steps
from tracemine.columns import numbers, string_ids
from tracemine.flow import Evidence, Flow, Source, flow
from tracemine.flow.inferred.rules import rules
from tracemine.formats import open_trace
from tracemine.timeline import Timeline

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
_ELSEWHERE = (
    ("h200/{}/eager.json.gz", "h200/{}/et.json.gz", ("seed_chains", "splade_head")),
    ("dist/tp_infer_rank{}.json.gz", "dist/tp_infer_et_rank{}.json.gz", ("0", "1")),
)
# The rules of inference were made with these in view, besides all of known_pairs; others are held out.
_TUNED_ON = frozenset(
    """bert bert_train clip decode_1 decoder efficientnet_b0 gemma gpt2 gpt2_train llama llama_train mistral mixer_train
    opt phi3 qwen3 resnet50 resnet50_train swin_t tiny_mlp unet vit_train""".split()  # noqa: SIM905
)

# (operator, position, place in a list) → operators that wrote it, whether it is from outside, evidence.
Reads = dict[tuple[int, int, int], tuple[frozenset[int], bool, int]]


@dataclass
class _Counts:
    """Numbers that add up, field by field."""

    def __iadd__(self, other: Self) -> Self:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self


@dataclass
class Score(_Counts):
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


@dataclass
class Agreement(_Counts):
    """Reads of one recording, or of many: inferred against proven."""

    reads: int = 0
    edges: int = 0  # those of what another node wrote
    consistent: int = 0
    consistent_right: int = 0
    consistent_edges: int = 0
    consistent_edges_right: int = 0
    right: int = 0
    missing: int = 0

    def line(self, name: str) -> str:
        """One row of the table."""
        outside = self.consistent - self.consistent_edges
        outside_right = self.consistent_right - self.consistent_edges_right
        return (
            f"{name[-34:]:<34} {self.reads:>7}  {_share(self.consistent_right, self.consistent)}"
            f" {_share(self.consistent, self.reads)}  {_share(self.consistent_edges_right, self.consistent_edges)}"
            f" {_share(self.consistent_edges, self.edges)}  {_share(outside_right, outside)}"
            f" {_share(outside, self.reads - self.edges)}  {_share(self.right, self.reads)} {self.missing:>7}"
        )


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:>6.1f}" if whole else "     –"


def agreement(trace: Path, execution_trace: Path) -> Agreement:
    """Infer dataflow without the execution trace and hold it against what that proves."""
    return agreement_of(open_trace(trace, execution_trace=execution_trace))


def agreement_of(timeline: Timeline) -> Agreement:
    """The same of a timeline that has an execution trace's tensors."""
    proven = who_wrote(flow(timeline))
    inferred = who_wrote(flow(without_execution_trace(timeline)))
    _in_one_order(timeline, proven, inferred)
    found = Agreement(reads=len(proven))
    for place, (producers, outside, _) in proven.items():
        found.edges += bool(producers)
        if place not in inferred:
            found.missing += 1
            continue
        guess, guess_outside, evidence = inferred[place]
        right = (guess, guess_outside) == (producers, outside)
        found.right += right
        if evidence == Evidence.CONSISTENT:
            found.consistent += 1
            found.consistent_right += right
            found.consistent_edges += bool(producers)
            found.consistent_edges_right += right and bool(producers)
    return found


def _in_one_order(timeline: Timeline, proven: Reads, inferred: Reads) -> None:
    """Swap what an operator was found to take where it is the other way round, and the operator does not tell."""
    names = timeline.ops.column("name").to_pylist()
    texts = [timeline.ops.column(column).to_pylist() for column in ("input_shapes", "input_dtypes", "input_strides")]
    for row in {row for row, position, _ in proven if position == 1 and names[row] in rules().commutes}:
        first, second = (row, 0, -1), (row, 1, -1)
        looks = [json.loads(column[row] or "[]") for column in texts]
        if {first, second} <= inferred.keys() & proven.keys() and all(look[:1] == look[1:2] for look in looks):
            ways = (
                sum(inferred[one][:2] == proven[other][:2] for one, other in zip((first, second), order, strict=True))
                for order in ((first, second), (second, first))
            )
            if next(ways) < next(ways):
                inferred[first], inferred[second] = inferred[second], inferred[first]


def without_execution_trace(timeline: Timeline) -> Timeline:
    """The timeline as it is read from the trace alone."""
    ops = timeline.ops
    for name in ("execution_node_id", "op_schema"):
        place = ops.schema.get_field_index(name)
        field = ops.schema.field(place)
        ops = ops.set_column(place, field, pa.nulls(ops.num_rows, field.type))
    return replace(timeline, ops=ops, tensors=None)


def who_wrote(found: Flow) -> Reads:
    """(operator, position, place in a list) → operators that wrote it, whether it is from outside, evidence."""
    tensors = found.timeline.tensors
    op_row, position, index = (numbers(tensors.column(name), -1) for name in ("op_row", "position", "list_index"))
    producers: list[set[int]] = [set() for _ in found.reads.node]
    for read, node in zip(found.edges.read.tolist(), found.edges.producer.tolist(), strict=True):
        producers[read].add(int(found.nodes.op_row[node]))
    outside = np.isin(found.reads.source, (Source.OUTSIDE, Source.PARTLY_OUTSIDE))
    return {
        (int(op_row[row]), int(position[row]), int(index[row])): (frozenset(wrote), bool(out), int(evidence))
        for row, wrote, out, evidence in zip(
            found.reads.tensor_row.tolist(), producers, outside.tolist(), found.reads.evidence.tolist(), strict=True
        )
    }


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


def _print_agreement(pairs: list[tuple[str, Path, Path]], known: bool) -> None:
    print(f"{'':<34} {'proven':>7}  {'consistent':>13}  {'edges':>13}  {'from outside':>13}  {'all':>6} {'not':>7}")
    print(
        f"{'trace':<34} {'reads':>7} " + " {:>6} {:>6} ".format("right%", "of all") * 3 + f" {'right%':>6} {'found':>7}"
    )
    sums = {"tuned on": Agreement(), "held out": Agreement(), "all": Agreement()}
    for name, trace, execution_trace in pairs:
        one = agreement(trace, execution_trace)
        print(one.line(name), flush=True)
        sums["tuned on" if known or name.partition("/")[0] in _TUNED_ON else "held out"] += one
        sums["all"] += one
    for name, total in sums.items():
        if total.reads:
            print(total.line(name))


def main() -> None:
    """Print a row for each pair and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="a trace and its execution trace, or a folder of recordings"
    )
    parser.add_argument("--big", type=int, metavar="ACTIVITIES", help="also time one of so many activities")
    parser.add_argument("--consistent", action="store_true", help="infer without execution traces, and compare")
    options = parser.parse_args()
    if len(options.paths) == 2 and all(path.is_file() for path in options.paths):
        pairs = [(options.paths[0].name, *options.paths)]
    else:
        pairs = [pair for folder in options.paths for pair in pairs_below(folder)] or list(known_pairs())
    if options.consistent:
        _print_agreement(pairs, known=not options.paths)
        return
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
            begun = time.process_time()
            timeline = open_trace(trace)
            opened = time.process_time()
            flow(timeline)
            done = time.process_time()
            print(f"without the execution trace, CPU: open {opened - begun:.2f} s, flow {done - opened:.2f} s")


if __name__ == "__main__":
    main()
