"""From an engine's layers and their times to a timeline: layer after layer, scaled to what a run takes.

A layer is an operator, `TensorRT::` and what it does, with its attributes as inputs that are no tensors; what takes
time is an activity too. The profile has no starts, so layers lie end to end, and gaps are not known.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.small_tables import Row, node_row, small_timeline, tensor_rows
from tracemine.formats.source import FileSource
from tracemine.formats.tensorrt.files import Export, damaged, export_of, exports_beside
from tracemine.formats.tensorrt.layers import DETAILED, Layer, Profile, read_layers, read_profile
from tracemine.timeline import Timeline
from tracemine.units import count_text, time_text

NAMESPACE = "TensorRT::"
_OPAQUE = ("ForeignNode", "Myelin", "kgen")
_LEAST_KNOWN = 0.9  # of the profile's time that layers must have, to be of the same engine

# What launches all of a run: it lies before it, and how long it takes the host is not exported with layers.
_AT_BEGIN, _JOINED = {"start_ns": 0, "dur_ns": 0}, {"correlation": 1}
_ENQUEUE = {"kind": "runtime", "name": "enqueueV3", "pid": 0, "tid": 0} | _JOINED | _AT_BEGIN
_LAUNCHED = {"kind": "kernel", "device": 0, "owner_evidence": "compiler", "step_row": 0, "launch_row": 0} | _JOINED

_EXPORT_LAYERS = f"put the layers next to it, or pass --layers FILE: trtexec … --exportLayerInfo=FILE {DETAILED}"
_UNJOINED = ("is a profile of TensorRT layers, which does not say how they are joined", _EXPORT_LAYERS)
# What a file is without what it needs, and the way out.
_ALONE = {
    Export.LAYERS: (
        "is TensorRT's layers, which have no times",
        "pass the profile, and these by --layers: trtexec … --exportProfile=profile.json",
    ),
    Export.PROFILE: _UNJOINED,
    Export.TIMES: _UNJOINED,
    Export.SUMMARY: ("is a summary of TensorRT runs, which names no layer", _EXPORT_LAYERS),
}


def read_recording(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of the engine that an export is of, with those that lie next to it.

    Raises InputError where the layers or the profile are missing or damaged, or do not belong together.
    """
    path = Path(source.path)
    given = export_of(source.head)
    beside = exports_beside(path, source.part)
    first = {kind: files[0] for kind, files in beside.items()} | {given: path}
    if given is None or (layers := first.get(Export.LAYERS)) is None or (profile := first.get(Export.PROFILE)) is None:
        says, hint = _ALONE[given or Export.SUMMARY]
        raise InputError(says, where=Location(source.path), hint=hint)
    if progress is not None:
        progress(source.size, source.size)
    return _assembled(read_layers(layers), read_profile(profile, beside), profile)


def _assembled(layers: Sequence[Layer], profile: Profile, path: Path) -> Timeline:
    """Return the timeline of one run of an engine. Raises InputError where the layers are of another engine."""
    total_ns = sum(ns for _, ns in profile.times)
    scale = min(1.0, profile.compute_ns / total_ns) if profile.compute_ns and total_ns else 1.0
    spent = _spent(layers, profile, scale, path)
    begins = [*accumulate(spent, initial=0)]
    numbers: dict[str, int] = {}
    return small_timeline(
        str(path),
        {
            "activities": [
                _LAUNCHED
                | {"name": layer.name, "start_ns": begin, "dur_ns": ns, "stream": layer.stream_id, "op_row": row}
                for row, (layer, begin, ns) in enumerate(zip(layers, begins, spent, strict=False))
                if ns
            ],
            "ops": [_operator(layer, row) for row, layer in enumerate(layers)],
            "api": [_ENQUEUE],
            "steps": [{"name": "run", "start_ns": 0, "dur_ns": begins[-1]}],
            "tensors": [tensor for row, layer in enumerate(layers) for tensor in _tensors(layer, row, numbers)],
        },
        format="tensorrt",
        producer="TensorRT",
        devices=() if profile.device is None else (profile.device,),
        record_shapes=True,
        alone_step_ns=begins[-1] if scale < 1 else profile.compute_ns or None,
        recorded_step_ns=begins[-1] if profile.compute_ns else None,
        events={"layers": len(layers)},
        says=_warnings(layers, spent, profile),
        skipped={"layers that take no time": spent.count(0)},
    )


def _spent(layers: Sequence[Layer], profile: Profile, scale: float, path: Path) -> list[int]:
    """Return how long each layer takes in a run, of several with one name in order; 0: it only names memory anew."""
    times: dict[str, deque[float]] = defaultdict(deque)
    for name, ns in profile.times:
        times[name].append(ns)
    spent = [round(scale * times[layer.name].popleft()) if times[layer.name] else 0 for layer in layers]
    if sum(map(sum, times.values())) > (1 - _LEAST_KNOWN) * sum(ns for _, ns in profile.times):
        raise damaged(path, "it is of another engine than the layers next to it")
    return spent


def _operator(layer: Layer, row: int) -> Row:
    """Return a layer as an operator. The host is at none of them: one call launches all."""
    facts = {
        "tactic": layer.tactic_name,
        "kernel": "x".join(map(str, layer.kernel)),
        "groups": str(layer.groups),
        **{f"in{at}": tensor.layout for at, tensor in enumerate(layer.inputs)},
        **{f"out{at}": tensor.layout for at, tensor in enumerate(layer.outputs)},
    }
    given = [(tensor.dtype, tensor.dimensions) for tensor in layer.inputs]
    return node_row(row, NAMESPACE + layer.kind, given, facts) | _AT_BEGIN | {"module": layer.module}


def _tensors(layer: Layer, row: int, numbers: dict[str, int]) -> Iterator[Row]:
    """Return the rows of what a layer reads and writes. What has one name lies in one place."""
    reads, writes = (
        [(numbers.setdefault(one.name, len(numbers) + 1), (one.dtype, one.dimensions), one.elements) for one in tensors]
        for tensors in (layer.inputs, layer.outputs)
    )
    return tensor_rows(row, enumerate(reads), enumerate(writes), "cuda:0")


def _warnings(layers: Sequence[Layer], spent: Sequence[int], profile: Profile) -> Iterator[str]:
    yield "TensorRT's profile has no starts: layers lie end to end here, and gaps between them are not known."
    spent_ns, total_ns = sum(spent), sum(ns for _, ns in profile.times)
    if profile.compute_ns is None:
        yield (
            "Layer times alone exceed a run's: each is timed by itself. Pass what trtexec --exportTimes=times.json "
            "wrote, in the same folder, and they are scaled to it."
        )
    elif spent_ns < total_ns - 1:
        yield (
            f"Layer times are scaled by {profile.compute_ns / total_ns:.2f}: timed by themselves layers take "
            f"{time_text(round(total_ns))}, and a run {time_text(profile.compute_ns)} ({', '.join(profile.files)})."
        )
    if profile.count == 1:
        yield "Layers were timed over a single run: trtexec --iterations=100 tells more."
    opaque = Counter[str]()
    for layer, ns in zip(layers, spent, strict=True):
        opaque.update({kind: ns for kind in _OPAQUE if kind in layer.kind or f"{{{kind}" in layer.name})
    share = opaque.total() / max(spent_ns, 1)
    if share > 0.01:
        yield (
            f"{min(share, 1.0):.0%} of the time is in layers that are whole regions ({', '.join(sorted(opaque))}): "
            "what is inside is not exported. nsys with NVTX shows its kernels."
        )
    unknown = sum(tensor.elements is None for layer in layers for tensor in layer.outputs)
    if unknown:
        yield f"{count_text(unknown, 'tensor')} of sizes that only a run knows (−1): their bytes are not known."
