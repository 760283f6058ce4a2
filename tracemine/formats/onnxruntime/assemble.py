"""From runs of a model to a timeline: nodes are operators of the host, kernels activities, and the model joins them.

A node's time is the host's: no activity is made of it. A kernel is launched during its node.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from tracemine.formats.onnxruntime.events import Event, RecordedEvents
from tracemine.formats.onnxruntime.model import Model
from tracemine.formats.onnxruntime.notes import notes_of
from tracemine.formats.onnxruntime.patterns import CONVERSIONS, Graph
from tracemine.formats.onnxruntime.runs import CountedRuns, Node
from tracemine.formats.small_tables import small_table, tensor_row
from tracemine.timeline import IngestReport, Meta, Timeline
from tracemine.version import __version__

NAMESPACE = "onnx::"
# Types of tensors as the profiler writes them.
_DTYPES = {
    "float": "float32", "float16": "float16", "bfloat16": "bfloat16", "double": "float64", "int8": "int8",
    "uint8": "uint8", "int16": "int16", "int32": "int32", "int64": "int64", "bool": "bool",
}  # fmt: skip
_COPY = re.compile(r"memcpy|memset", re.IGNORECASE)
_MOST_TENSORS = 200_000  # rows: of more runs than that holds the last are joined alone
_LARGEST = 1 << 40

Shape = tuple[str | None, list[int]]  # dtype and sizes


def assemble(
    recorded: RecordedEvents, runs: CountedRuns, model: Model | None, extra: Sequence[str], source: str
) -> Timeline:
    """Return the timeline of the runs that count."""
    names = list(dict.fromkeys(node.name for run in runs.runs for node in run.nodes))
    graph = None if model is None else Graph(model, names)
    ops, api, activities, tensors = _rows(runs, model, graph)
    activities.sort(key=lambda row: (row["start_ns"], row["stream"]))
    steps = [
        {"name": "run", "number": at, "start_ns": run.start_ns, "dur_ns": run.dur_ns}
        for at, run in enumerate(runs.runs)
    ]
    counts = Counter(event.cat for event in recorded.events)
    return Timeline(
        meta=Meta(
            tracemine_version=__version__,
            source=source,
            format="onnxruntime",
            producer="ONNX Runtime",
            time_resolution_ns=1_000,
            record_shapes=True,
            ingest=IngestReport(
                events=dict(sorted(counts.items())),
                dropped=dict(sorted(recorded.dropped.items())),
                warnings=tuple(notes_of(recorded, runs, graph, extra)),
                truncated=recorded.truncated,
            ),
        ),
        activities=small_table("activities", activities),
        ops=small_table("ops", ops),
        api=small_table("api", api),
        steps=small_table("steps", steps),
        tensors=small_table("tensors", tensors),
    )


def _rows(
    runs: CountedRuns, model: Model | None, graph: Graph | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return operators, launches, activities and tensors of all runs."""
    ops, api, activities, tensors = (list[dict[str, Any]]() for _ in range(4))
    fused = [] if graph is None else [*graph.fused()]
    parts = {name: f"{what}#{at}" for at, (what, nodes) in enumerate(fused) for name in nodes}
    in_float = {} if graph is None else graph.quantised()
    parts |= {
        name: f"{what}#{len(parts) + at}" for at, (name, what) in enumerate(in_float.items()) if what in CONVERSIONS
    }
    for number, run in enumerate(runs.runs):
        written: dict[str, tuple[int, Shape]] = {}
        for node in run.nodes:
            row = len(ops)
            ops.append(_operator(node, row, parts.get(node.name)))
            if model is not None and len(tensors) < _MOST_TENSORS:
                tensors += _tensors(node, row, model, written, number)
            if node.kernels:
                api.append(_launch(node, row))
                activities += [_activity(kernel, row, len(api) - 1, number) for kernel in node.kernels]
    return ops, api, activities, tensors


def _operator(node: Node, row: int, part: str | None) -> dict[str, Any]:
    given = _shapes(node.event.args.input_type_shape)
    facts = {"node": node.name, "provider": node.event.args.provider, "part": part}
    words = [f"{name}={value}" for name, value in facts.items() if value]
    path = node.name.strip("/").split("/")[:-1] if node.name.startswith("/") else []  # as PyTorch's exporter names them
    return {
        "kind": "op",
        "name": NAMESPACE + node.op_type,
        "start_ns": node.event.start_ns,
        "dur_ns": node.event.dur_ns,
        "pid": node.event.pid,
        "tid": node.event.tid,
        "input_shapes": json.dumps([*(sizes for _, sizes in given), *([] for _ in words)]),
        "input_dtypes": json.dumps([*(dtype or "" for dtype, _ in given), *("" for _ in words)]),
        "concrete_inputs": json.dumps([*("" for _ in given), *words]),
        "module": ".".join(path) or None,
        "execution_node_id": row,
    }


def _launch(node: Node, row: int) -> dict[str, Any]:
    """Return the node as what launched its kernels: calls are not recorded one by one."""
    return {
        "kind": "runtime",
        "name": "launches of a node",
        "start_ns": node.event.start_ns,
        "dur_ns": node.event.dur_ns,
        "pid": node.event.pid,
        "tid": node.event.tid,
        "correlation": row + 1,
        "op_row": row,
    }


def _activity(kernel: Event, row: int, launch: int, step: int) -> dict[str, Any]:
    stream = kernel.args.stream
    return {
        "kind": "memcpy" if _COPY.match(kernel.name) else "kernel",
        "name": kernel.name,
        "start_ns": kernel.start_ns,
        "dur_ns": kernel.dur_ns,
        "device": 0,
        "stream": int(stream) if str(stream).isdecimal() and len(str(stream)) < 18 else 0,
        "correlation": row + 1,
        "op_row": row,
        "owner_evidence": "compiler",
        "launch_row": launch,
        "step_row": step,
    }


def _tensors(
    node: Node, row: int, model: Model, written: dict[str, tuple[int, Shape]], run: int
) -> Iterator[dict[str, Any]]:
    """Yield what a node reads of others, and what it writes; weights and the model's inputs are left out."""
    known = model.nodes.get(node.name)
    if known is None:
        return
    device = "cpu" if node.on_cpu else "cuda:0"

    def named(name: str, position: int, *, is_output: bool) -> dict[str, Any]:
        number, (dtype, sizes) = written[name]
        return tensor_row(row, position, number, dtype, sizes, prod(sizes), device, is_output=is_output)

    for position, name in enumerate(known.reads):
        if name in written:
            yield named(name, position, is_output=False)
    for position, (name, shape) in enumerate(
        zip(known.writes, _shapes(node.event.args.output_type_shape), strict=False)
    ):
        written[name] = (run * len(model.nodes) * 4 + len(written) + 1, shape)
        yield named(name, position, is_output=True)


def _shapes(given: Any) -> list[Shape]:
    """Return types and sizes of `[{"float": [4, 128]}]`; of what is none of that nothing."""
    shapes = list[Shape]()
    for shaped in given if isinstance(given, list) else ():
        for kind, sizes in shaped.items() if isinstance(shaped, dict) else ():
            fine = isinstance(sizes, list) and all(isinstance(size, int) and 0 <= size < _LARGEST for size in sizes)
            shapes.append((_DTYPES.get(kind), sizes if fine else []))
    return shapes
