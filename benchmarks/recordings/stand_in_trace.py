"""A capture of a CPU, rewritten as a GPU would have told it: `convert`. What is made up: see stand_in.py."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recordings.stand_in_operators import (
    READS_BACK,
    Key,
    Node,
    Operators,
    cudnn_norm,
    is_tensor,
    kernel_name,
    key,
    name_on_cuda,
    tensors,
)
from tracemine.recording import ABOUT, EXECUTION_TRACE, TRACE

Event = dict[str, Any]

OPERATOR_NS = 12_000  # of the host, for an operator that launches
BYTES_PER_US = 3_000_000  # 3 TB/s
LAUNCH_US = 2.0  # of the GPU, for a kernel that does next to nothing
READS_PART = frozenset(f"aten::{name}" for name in ("index", "index_select", "embedding", "gather"))  # of a table
DEVICE = {
    "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0,
    "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32,
    "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}  # fmt: skip
KEPT = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "with_stack", "record_shapes")
HEADER = {"deviceProperties": [DEVICE], "cuda_runtime_version": 13000, "cuda_driver_version": 13000}
EMPTY, SINGLE = "empty", "float32"
DIFFERING = {  # results by their place: a buffer that CUDA needs not, and statistics of what has two bytes an element
    "aten::log_sigmoid_forward": {1: EMPTY},
    "aten::native_layer_norm": {1: SINGLE, 2: SINGLE},
}
FIRST_NS = 1_000_000_000  # when the recording begins


def convert(folder: Path) -> None:
    """Rewrite `trace.json.gz`, `et.json.gz` and `capture.json` of a capture on a CPU, in place."""
    trace, document = read(folder / TRACE), read(folder / EXECUTION_TRACE)
    operators = Operators(document["nodes"])
    events = host_events(trace["traceEvents"], operators)
    launched = launches(events, operators)
    header = {name: trace[name] for name in KEPT if name in trace} | HEADER
    write(folder / TRACE, header | {"traceEvents": [*events, *launched]})
    write(folder / EXECUTION_TRACE, document | {"nodes": on_cuda(document["nodes"], operators)})
    about = json.loads((folder / ABOUT).read_text())
    about |= {"cuda": "13.0", "gpus": [DEVICE["name"]], "gpu_activities": len(launched) // 2}
    (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")


def read(path: Path) -> Any:
    """A document whose times keep all their digits."""
    return json.loads(gzip.decompress(path.read_bytes()).decode(errors="replace"), parse_float=Decimal, strict=False)


def write(path: Path, document: Any) -> None:
    path.write_bytes(gzip.compress(json.dumps(document, default=float).encode(), 4, mtime=0))


# -- the trace ---------------------------------------------------------------------------------------------------------


def host_events(events: Sequence[Event], operators: Operators) -> list[Event]:
    """Events of the host, without operators that were dropped, under the names and at the times of a GPU's host."""
    by_number = {record_number(node): node for node in operators.nodes.values() if record_number(node)}
    kept, launching = [], []
    for event in events:
        node = by_number.get(event.get("args", {}).get("Record function id", 0))
        if event.get("cat") == "cpu_op" and node is not None:
            if node["id"] in operators.dropped:
                continue
            if node["id"] in operators.leaves:
                event["leaf"] = node["id"]
                launching.append(event)
            event["name"] = name_on_cuda(node)
        given = event.get("args", {}).get("Concrete Inputs")
        if given:
            event["args"]["Concrete Inputs"] = ["cuda:0" if one == "cpu" else one for one in given]
        kept.append(event)
    move(kept, launching)
    return kept


def record_number(node: Node) -> int:
    """What joins a node to its event."""
    return next((int(one["value"]) for one in node["attrs"] if one["name"] == "rf_id"), 0)


def move(events: Sequence[Event], launching: Sequence[Event]) -> None:
    """Events to a time in which each operator that launches takes as long as launching: CPUs compute meanwhile."""
    spans = sorted((nanoseconds(one["ts"]), nanoseconds(one["ts"]) + nanoseconds(one["dur"])) for one in launching)
    starts = [nanoseconds(one["ts"]) for one in events if one.get("ph") == "X"]
    ends = [nanoseconds(one["ts"]) + nanoseconds(one["dur"]) for one in events if one.get("ph") == "X"]
    old, new = [min(starts)], [FIRST_NS]
    for begin, end in spans:
        if begin < old[-1]:
            continue
        now = new[-1] + begin - old[-1]
        old += [begin, max(end, begin + 1)]
        new += [now, now + OPERATOR_NS]
    old.append(max(*ends, old[-1] + 1))
    new.append(new[-1] + old[-1] - old[-2])
    since = np.array(old) - old[0]
    for event in events:
        if "ts" in event:
            begin = nanoseconds(event["ts"])
            times = [begin - old[0], begin + nanoseconds(event.get("dur", 0)) - old[0]]
            first, last = (int(time) for time in np.interp(times, since, new))
            event["ts"] = first / 1000
            if "dur" in event:
                event["dur"] = (last - first) / 1000


def nanoseconds(microseconds: Any) -> int:
    return round(Decimal(microseconds) * 1000)


def launches(events: Sequence[Event], operators: Operators) -> list[Event]:
    """A launch and a kernel, or a copy to the host, of each operator that launches. µs."""
    made: list[Event] = []
    free = 0.0
    leaves = [event for event in events if "leaf" in event]
    for correlation, event in enumerate(sorted(leaves, key=lambda one: one["ts"]), start=1000):
        node = operators.nodes[event.pop("leaf")]
        called, took = event["ts"] + 0.45 * event["dur"], 0.4 * event["dur"]
        moved = bytes_moved(node)
        begin, length = max(free + 0.7, called + 4.5), moved / BYTES_PER_US + LAUNCH_US
        free = begin + length
        copies = node["name"] == READS_BACK
        asks = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
        joined = {"External id": event["args"]["External id"], "correlation": correlation}
        on = {"device": 0, "context": 1, "stream": 7}
        made += [
            span("cuda_runtime", asks, event["pid"], event["tid"], called, took, joined),
            span("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 0, 7, begin, length, joined | on | {"bytes": moved})
            if copies
            else span("kernel", kernel_name(node), 0, 7, begin, length, joined | on | shape(node)),
        ]
    return made


def span(category: str, name: str, process: int, thread: int, begin: float, length: float, args: Event) -> Event:
    times = {"ts": round(begin, 3), "dur": round(length, 3)}
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, **times, "args": args}


def shape(node: Node) -> Event:
    """A grid that has four elements a thread."""
    elements = max((tensor[3] for tensor in tensors(node["outputs"])), default=1)
    grid = [max(1, -(-elements // 512)), 1, 1]
    return {"registers per thread": 32, "shared memory": 0, "grid": grid, "block": [128, 1, 1]}


def bytes_moved(node: Node) -> int:
    """Each tensor once; of a table no more than what is written."""
    reads, writes = ([int(one[3]) * int(one[4]) for one in tensors(node[ends])] for ends in ("inputs", "outputs"))
    wrote = sum(writes)
    return wrote + sum(min(one, wrote) if node["name"] in READS_PART else one for one in reads)


# -- the execution trace -----------------------------------------------------------------------------------------------


def on_cuda(nodes: Sequence[Node], operators: Operators) -> list[Node]:
    """Nodes that were not dropped, their tensors on the GPU and as CUDA's operators give them."""
    kept = [node for node in nodes if node["id"] not in operators.dropped]
    differing: dict[Key, str] = {}  # until something else lies there
    for node in sorted(kept, key=lambda node: int(node["id"])):
        change(node["inputs"], differing)
        given, differs = node["outputs"]["values"], DIFFERING.get(node["name"], {})
        for at, value in enumerate(given):
            if is_tensor(value):
                differing.pop(key(value), None)
                differing |= {key(value): differs[at]} if at in differs else {}
        change(node["outputs"], differing)
        for ends in (node["inputs"], node["outputs"]):
            ends["values"] = [moved(value, node, operators) for value in ends["values"]]
        if node["name"] == "aten::native_batch_norm" and node["id"] in operators.leaves:
            keep_statistics(node)
        node["name"] = name_on_cuda(node)
    return kept


def change(ends: Node, differing: Mapping[Key, str]) -> None:
    for at, value in enumerate(ends["values"]):
        how = differing.get(key(value)) if is_tensor(value) else None
        if how == EMPTY:
            ends["shapes"][at], ends["strides"][at], value[3] = [0], [1], 0
        if how == SINGLE and value[4] == 2:
            ends["types"][at], value[4] = "Tensor(float)", 4


def moved(value: Any, node: Node, operators: Operators) -> Any:
    if is_tensor(value):
        return value if operators.of_host(node, value) else [*value[:5], "cuda:0"]
    if isinstance(value, list):
        return [moved(one, node, operators) for one in value]
    return "cuda:0" if value == "cpu" else value


def keep_statistics(node: Node) -> None:
    """What a batch norm in inference keeps for its gradient: CUDA's own as many as channels, cuDNN's a buffer too."""
    out, channels = node["outputs"], node["inputs"]["shapes"][0][1]
    if cudnn_norm(node):
        number = (1 << 40) + node["id"]  # that no recorded tensor has
        values: tuple[Any, ...] = ([number, number, 0, 0, 1, "cuda:0"], [0], "Tensor(unsigned char)", [1])
        for name, value in zip(("values", "shapes", "types", "strides"), values, strict=True):
            out[name].append(value)
        return
    for at in (1, 2):
        if out["shapes"][at] == [0]:
            out["shapes"][at], out["types"][at] = [channels], "Tensor(float)"
            out["values"][at] = [*out["values"][at][:3], channels, 4, "cuda:0"]
