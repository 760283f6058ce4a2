"""From an engine's layers and their times to a timeline: layer after layer, scaled to what a run takes.

A layer is an operator, `TensorRT::` and what it does, with its attributes as inputs that are no tensors; what takes
time is an activity too. The profile has no starts, so layers lie end to end, and gaps are not known.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from tracemine.formats.small_tables import small_table, tensor_row
from tracemine.formats.tensorrt.files import damaged
from tracemine.formats.tensorrt.layers import EngineTensor, Layer
from tracemine.formats.tensorrt.times import Profile, WholeRuns
from tracemine.timeline import IngestReport, Meta, Timeline
from tracemine.units import count_text, time_text
from tracemine.version import __version__

NAMESPACE = "TensorRT::"
_OPAQUE = ("ForeignNode", "Myelin", "kgen")
_LEAST_KNOWN = 0.9  # of the profile's time that layers must have, to be of the same engine

# What launches all of a run: it lies before it, and how long it takes the host is not exported with layers.
_ENQUEUE = {"kind": "runtime", "name": "enqueueV3", "start_ns": 0, "dur_ns": 0, "correlation": 1, "pid": 0, "tid": 0}


class _Timed(Struct, frozen=True):
    """A layer and how long it takes in a run: 0 where it only names another tensor's memory."""

    layer: Layer
    ns: int


def assemble(layers: Sequence[Layer], profile: Profile, runs: WholeRuns, path: Path) -> Timeline:
    """Return the timeline of one run of an engine. Raises InputError where the layers are of another engine."""
    total_ns = sum(ns for _, ns in profile.times)
    scale = min(1.0, runs.compute_ns / total_ns) if runs.compute_ns and total_ns else 1.0
    timed = _timed(layers, profile, scale, path)
    ops, activities, tensors = (list[dict[str, Any]]() for _ in range(3))
    numbers: dict[str, int] = {}
    start_ns = 0
    for row, timed_layer in enumerate(timed):
        ops.append(_operator(timed_layer.layer, row))
        tensors += _tensors(timed_layer.layer, row, numbers)
        if timed_layer.ns:
            activities.append(_activity(timed_layer, row, start_ns))
        start_ns += timed_layer.ns
    views = len(timed) - len(activities)
    return Timeline(
        meta=Meta(
            tracemine_version=__version__,
            source=path.name,
            format="tensorrt",
            producer="TensorRT",
            devices=() if runs.device is None else (runs.device,),
            record_shapes=True,
            alone_step_ns=start_ns if scale < 1 else runs.compute_ns or None,
            recorded_step_ns=start_ns if runs.compute_ns else None,
            ingest=IngestReport(
                events={"layers": len(timed)},
                skipped={"layers that take no time": views} if views else {},
                warnings=tuple(_warnings(timed, profile, runs, total_ns)),
            ),
        ),
        activities=small_table("activities", activities),
        ops=small_table("ops", ops),
        api=small_table("api", [_ENQUEUE]),
        steps=small_table("steps", [{"name": "run", "start_ns": 0, "dur_ns": start_ns}]),
        tensors=small_table("tensors", tensors),
    )


def _timed(layers: Sequence[Layer], profile: Profile, scale: float, path: Path) -> list[_Timed]:
    """Return each layer with its time, of several with one name in order."""
    times: dict[str, deque[float]] = defaultdict(deque)
    for name, ns in profile.times:
        times[name].append(ns)
    timed_layers = [
        _Timed(layer, round(scale * times[layer.name].popleft() if times[layer.name] else 0)) for layer in layers
    ]
    left_ns, all_ns = sum(map(sum, times.values())), sum(ns for _, ns in profile.times)
    if left_ns > (1 - _LEAST_KNOWN) * all_ns:
        raise damaged(path, "it is of another engine than the layers next to it")
    return timed_layers


def _operator(layer: Layer, row: int) -> dict[str, Any]:
    """Return a layer as an operator. The host is at none of them: one call launches all."""
    facts = {
        "tactic": layer.tactic,
        "kernel": "x".join(map(str, layer.kernel)),
        "groups": str(layer.groups),
        **{f"in{at}": tensor.layout for at, tensor in enumerate(layer.reads)},
        **{f"out{at}": tensor.layout for at, tensor in enumerate(layer.writes)},
    }
    words = [f"{name}={value}" for name, value in facts.items() if value]
    shapes: list[list[int]] = [[*tensor.dims] for tensor in layer.reads]
    return {
        "kind": "op",
        "name": NAMESPACE + layer.kind,
        "start_ns": 0,
        "dur_ns": 0,
        "input_shapes": json.dumps([*shapes, *([] for _ in words)]),
        "input_dtypes": json.dumps([*(tensor.dtype or "" for tensor in layer.reads), *("" for _ in words)]),
        "concrete_inputs": json.dumps([*("" for _ in shapes), *words]),
        "module": layer.module,
        "execution_node_id": row,
    }


def _activity(timed_layer: _Timed, row: int, start_ns: int) -> dict[str, Any]:
    return {
        "kind": "kernel",
        "name": timed_layer.layer.name,
        "start_ns": start_ns,
        "dur_ns": timed_layer.ns,
        "device": 0,
        "stream": timed_layer.layer.stream,
        "op_row": row,
        "owner_evidence": "compiler",
        "step_row": 0,
        "launch_row": 0,
        "correlation": 1,
    }


def _tensors(layer: Layer, row: int, numbers: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the rows of what a layer reads and writes. What has one name lies in one place."""
    given: tuple[tuple[bool, Sequence[EngineTensor]], ...] = ((False, layer.reads), (True, layer.writes))
    for is_output, tensors in given:
        for position, tensor in enumerate(tensors):
            number = numbers.setdefault(tensor.name, len(numbers) + 1)
            # Of a size that is not known one element, so that it is read at all.
            sizes = [] if tensor.elements is None else [*tensor.dims]
            yield tensor_row(
                row, position, number, tensor.dtype, sizes, tensor.elements or 1, "cuda:0", is_output=is_output
            )


def _warnings(timed: Sequence[_Timed], profile: Profile, runs: WholeRuns, total_ns: float) -> Iterator[str]:
    yield "TensorRT's profile has no starts: layers lie end to end here, and gaps between them are not known."
    spent_ns = sum(timed_layer.ns for timed_layer in timed)
    if runs.compute_ns is None:
        yield (
            "Layer times alone exceed a run's: each is timed by itself. Pass what trtexec --exportTimes=times.json "
            "wrote, in the same folder, and they are scaled to it."
        )
    elif spent_ns < total_ns - 1:
        yield (
            f"Layer times are scaled by {runs.compute_ns / total_ns:.2f}: timed by themselves layers take "
            f"{time_text(round(total_ns))}, and a run {time_text(runs.compute_ns)} ({', '.join(runs.files)})."
        )
    if profile.runs == 1:
        yield "Layers were timed over a single run: trtexec --iterations=100 tells more."
    kinds = Counter[str]()
    for timed_layer in timed:
        kinds.update(
            {
                kind: timed_layer.ns
                for kind in _OPAQUE
                if kind in timed_layer.layer.kind or f"{{{kind}" in timed_layer.layer.name
            }
        )
    if sum(kinds.values()) > 0.01 * max(spent_ns, 1):
        share = min(sum(kinds.values()) / max(spent_ns, 1), 1.0)
        yield (
            f"{share:.0%} of the time is in layers that are whole regions ({', '.join(sorted(kinds))}): what is "
            "inside is not exported. nsys with NVTX shows its kernels."
        )
    unknown = sum(tensor.elements is None for timed_layer in timed for tensor in timed_layer.layer.writes)
    if unknown:
        yield f"{count_text(unknown, 'tensor')} of sizes that only a run knows (−1): their bytes are not known."
