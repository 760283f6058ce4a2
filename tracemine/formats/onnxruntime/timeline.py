"""From runs of a model to a timeline: nodes are operators of the host, kernels activities, and the model joins them.

A node's time is the host's: no activity is made of it. A kernel is launched during its node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Annotated

import msgspec

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.onnxruntime.model import CONVERSIONS, Graph, Model, model_beside
from tracemine.formats.onnxruntime.notes import notes_of
from tracemine.formats.onnxruntime.runs import Event, Node, RecordedRuns, read_runs
from tracemine.formats.small_tables import Operand, Row, TensorShape, node_row, small_timeline, tensor_rows
from tracemine.formats.source import FileSource
from tracemine.ops.dtypes import dtype
from tracemine.timeline import Timeline

NAMESPACE = "onnx::"
_COPY = re.compile(r"memcpy|memset", re.IGNORECASE)
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
_MOST_TENSORS = 200_000  # rows: of more runs than that holds the last are joined alone


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of the runs that count. Raises InputError where a profile holds no node."""
    runs = read_runs(source, progress)
    names = list(dict.fromkeys(node.name for run in runs.runs for node in run.nodes))
    if not names:
        what, hint = "holds no run of the model with its nodes", "run the session while it profiles"
        raise InputError(what, where=Location(source.path), hint=hint)
    model, extra = model_beside(Path(source.path), source.part, names)
    graph = None if model is None else Graph(model, names)
    return small_timeline(
        source.path,
        _tables(runs, model, graph),
        format="onnxruntime",
        producer="ONNX Runtime",
        time_resolution_ns=1_000,
        record_shapes=True,
        events=runs.events,
        says=notes_of(runs, graph, extra),
        dropped=runs.dropped,
        truncated=runs.truncated,
    )


def _tables(runs: RecordedRuns, model: Model | None, graph: Graph | None) -> dict[str, list[Row]]:
    """Return operators, launches, activities and tensors of all runs."""
    ops, api, activities, tensors, steps = (list[Row]() for _ in range(5))
    parts = {} if graph is None else _parts(graph)
    for number, run in enumerate(runs.runs):
        steps.append({"name": "run", "number": number, "start_ns": run.start_ns, "dur_ns": run.dur_ns})
        written: dict[str, Operand] = {}
        for node in run.nodes:
            row = len(ops)
            ops.append(_operator(node, row, parts.get(node.name)))
            if model is not None and len(tensors) < _MOST_TENSORS:
                tensors += _tensors(node, row, model, written, number)
            if node.kernels:  # calls are not recorded one by one: the node is what launched them
                joined = {"correlation": row + 1, "op_row": row}
                api.append({"kind": "runtime", "name": "launches of a node"} | joined | _host_times(node.event))
                launch = joined | {"launch_row": len(api) - 1, "step_row": number}
                activities += [_activity(kernel) | launch for kernel in node.kernels]
    activities.sort(key=lambda row: (row["start_ns"], row["stream"]))
    return {"ops": ops, "api": api, "activities": activities, "tensors": tensors, "steps": steps}


def _parts(graph: Graph) -> dict[str, str]:
    """Return of nodes what they are part of, and which."""
    parts = {name: f"{what}#{at}" for at, (what, nodes) in enumerate(graph.fused()) for name in nodes}
    apart = enumerate(graph.quantised().items(), len(parts))
    return parts | {name: f"{what}#{at}" for at, (name, what) in apart if what in CONVERSIONS}


def _operator(node: Node, row: int, part: str | None) -> Row:
    facts = {"node": node.name, "provider": node.event.args.provider, "part": part}
    path = node.name.strip("/").split("/")[:-1] if node.name.startswith("/") else []  # as PyTorch's exporter names them
    own = {"module": ".".join(path) or None} | _host_times(node.event)
    return node_row(row, NAMESPACE + node.op_type, _shapes(node.event.args.input_type_shape), facts) | own


def _host_times(event: Event) -> Row:
    return {"start_ns": event.start_ns, "dur_ns": event.dur_ns, "pid": event.pid, "tid": event.tid}


def _activity(kernel: Event) -> Row:
    stream = str(kernel.args.stream)
    return {
        "kind": "memcpy" if _COPY.match(kernel.name) else "kernel",
        "name": kernel.name,
        "start_ns": kernel.start_ns,
        "dur_ns": kernel.dur_ns,
        "device": 0,
        "stream": int(stream) if stream.isdecimal() and len(stream) < 18 else 0,
        "owner_evidence": "compiler",
    }


def _tensors(node: Node, row: int, model: Model, written: dict[str, Operand], run: int) -> Iterator[Row]:
    """Return what a node reads of others, and what it writes; weights and the model's inputs are left out."""
    if (known := model.nodes.get(node.name)) is None:
        return iter(())
    shapes = _shapes(node.event.args.output_type_shape)
    first = run * len(model.nodes) * 4 + len(written) + 1
    reads = [(at, written[name]) for at, name in enumerate(known.reads) if name in written]
    writes = [(first + at, shape, prod(shape[1])) for at, shape in enumerate(shapes[: len(known.writes)])]
    written |= zip(known.writes, writes, strict=False)
    return tensor_rows(row, reads, enumerate(writes), "cpu" if node.on_cpu else "cuda:0")


def _shapes(recorded: msgspec.Raw) -> list[TensorShape]:
    """Return types and sizes of `[{"float": [4, 128]}]`; of what is none of that nothing."""
    try:
        shapes = msgspec.json.decode(recorded, type=list[dict[str, list[_Size]]])
    except msgspec.DecodeError:
        return []
    return [(dtype(kind), sizes) for shaped in shapes for kind, sizes in shaped.items()]
