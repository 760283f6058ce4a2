"""From an engine's layers and their times to a timeline: layer after layer, scaled to what a run takes.

A layer is an operator, `TensorRT::` and what it does, with its attributes as inputs that are no tensors; what takes
time is an activity too. The profile has no starts, so layers lie end to end, and gaps are not known.

An engine's layers (`trtexec --exportLayerInfo` with detailed profiling verbosity), how long each takes
(`--exportProfile`), and how long whole runs do (`--exportTimes`).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, field

from tracemine.errors import InputError, Location
from tracemine.formats.format import Progress
from tracemine.formats.small_tables import Row, node_row, small_timeline, tensor_rows
from tracemine.formats.source import FileSource
from tracemine.formats.tensorrt.files import Export, damaged, decoded, export_of, exports_beside
from tracemine.ops.dtypes import dtype
from tracemine.timeline import RecordedDevice, Timeline
from tracemine.units import count_text, time_text

DETAILED = "--profilingVerbosity=detailed"
_SHORT = {"fp8": "float8_e4m3fn", "fp16": "float16", "half": "float16", "fp32": "float32", "bf16": "bfloat16"}
_DTYPE = re.compile(rf"\b({'|'.join(_SHORT)}|u?int(?:8|32|64)|float|bfloat16|bool)\b", re.IGNORECASE)
_WIDE = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_VECTOR = re.compile(rf"\b({'|'.join(_WIDE)}) wide\b|channel % ([1-9]\d{{0,2}}) == 0", re.IGNORECASE)
_WEIGHTS = re.compile(r"(?:^|\+ )([\w.]{1,200})\.weight\b")
_NODE = re.compile(r"(?:^|: |\+ |-\[)/([\w./]{1,200})/\w+")
_NARROW = frozenset({"int8", "float8_e4m3fn"})  # what products of a quantised engine read
_TEXT_LIMIT = 1_000  # characters of a name that are looked at

_NS_OF_MS = 1_000_000
_MEDIAN = 3  # of the Engine Explorer's least, most, mean, median, percentiles
_Milliseconds = Annotated[float, Meta(ge=0, le=1e9)]
Size = Annotated[int, Meta(ge=-1, le=1 << 40)]  # −1: not known before the engine runs
_Count = Annotated[int, Meta(ge=0, le=1 << 40)]


class EngineTensor(Struct, frozen=True, rename="pascal"):
    """A tensor as one layer reads or writes it."""

    name: str
    dimensions: Annotated[list[Size], Meta(max_length=32)] = []
    both: str = field(default="", name="Format/Datatype")
    format: str = ""
    datatype: str = ""
    data_type: str = ""

    @property
    def layout(self) -> str:
        """Return its format as written, such as `Thirty-two wide channel vectorized row major Int8 format`."""
        return " ".join(filter(None, (self.both, self.format, self.datatype, self.data_type)))[:_TEXT_LIMIT]

    @property
    def dtype(self) -> str | None:
        """Return the canonical type of its elements; None where it is not known."""
        found = _DTYPE.search(self.layout)
        return None if found is None else dtype(_SHORT.get(found[1].lower(), found[1].lower()))

    @property
    def elements(self) -> int | None:
        """Return how many elements lie in memory, those of padding too; None where a dimension is not known."""
        if -1 in self.dimensions:
            return None
        padded, vector = [*self.dimensions], _VECTOR.search(self.layout)
        if vector is not None and len(padded) > 1:
            channels = _WIDE[vector[1].lower()] if vector[1] else int(vector[2])
            padded[1] = -(-padded[1] // channels) * channels
        return prod(padded)


_Tensors = Annotated[list[EngineTensor], Meta(max_length=4_096)]


class Layer(Struct, frozen=True, rename="pascal"):
    """One layer of an engine."""

    name: str
    layer_type: str = ""
    parameter_type: str = ""
    origin: str = ""
    mode: str = ""
    inputs: _Tensors = []
    outputs: _Tensors = []
    tactic_name: str = ""
    kernel: Annotated[list[Size], Meta(max_length=32)] = []  # of a convolution or a pooling
    groups: _Count = 1
    stream_id: _Count = 0
    metadata: str = ""

    @property
    def kind(self) -> str:
        """Return what it does, such as `Convolution`, `Pooling`, `Reformat`, `Quantize`.

        Conversions have one type, and their origin tells what they are for; up to TensorRT 8.2 those of precision are
        scales.
        """
        if self.layer_type == "NoOp":
            return "NoOp"
        narrow = [bool(each) and each[0].dtype in _NARROW for each in (self.inputs, self.outputs)]
        if self.origin == "QDQ" or (self.parameter_type == "Scale" and narrow[0] != narrow[1]):
            return "Quantize" if narrow[1] else "Dequantize"
        if self.layer_type == "Padding" or (self.parameter_type, self.mode) == ("Slice", "FILL"):
            return "Padding"
        return re.sub(r"\W+", "_", self.parameter_type or self.layer_type)[:_TEXT_LIMIT] or "Layer"

    @property
    def module(self) -> str | None:
        """Return the module whose weights or whose ONNX nodes it is named after.

            >>> Layer("layer1.0.conv2.weight + QuantizeLinear_32 + Conv_34 + Add_36").module, Layer("MaxPool_2").module
            ('layer1.0.conv2', None)
            >>> Layer("conv_myl0_1", metadata="[ONNX Layer: /backbone/layer1/conv2/Conv]").module
            'backbone.layer1.conv2'
        >>> Layer("[RELU]-[aten_ops.relu.default]-[/features/1/relu]").module  # of torch_tensorrt
        'features.1'
        """
        if weights := _WEIGHTS.search(self.name[:_TEXT_LIMIT]):
            return weights[1]
        node = _NODE.search((self.metadata or self.name)[:_TEXT_LIMIT])
        return None if node is None else node[1].replace("/", ".")


class _Engine(Struct, rename="pascal"):
    layers: Annotated[list[Layer | str], Meta(min_length=1)]


def read_layers(path: Path) -> list[Layer]:
    """Return the layers of an engine, in its order. Raises InputError where they are damaged, or names alone."""
    rows = decoded(path, _Engine).layers
    layers = [row for row in rows if isinstance(row, Layer)]
    if len(layers) < len(rows):
        raise InputError(
            "is TensorRT's layers by their names alone",
            where=Location(str(path)),
            hint=f"build and export them with {DETAILED}",
        )
    return layers


class _Times(Struct, rename="camel"):
    """A layer's time, over how many runs layers were timed, or a run's time."""

    name: str | None = None
    count: int | None = None
    average_ms: _Milliseconds | None = None
    compute_ms: _Milliseconds | None = None


class _Gpu(Struct):
    """A GPU, as the Engine Explorer notes it: in two files, by two names each."""

    selected: str | None = field(default=None, name="Selected Device")
    name: str | None = field(default=None, name="Name")
    sms: float | None = field(default=None, name="SMs")
    multiprocessors: float | None = field(default=None, name="MULTIPROCESSOR_COUNT")
    capability: float | str | None = field(default=None, name="Compute Capability")


class _About(Struct):
    performance_summary: dict[str, float | list[_Milliseconds]] = {}
    device_information: _Gpu = field(default_factory=_Gpu)


class Profile(Struct, frozen=True):
    """The mean times of layers, and what is known of whole runs, while no layer was timed."""

    times: list[tuple[str, float]]  # in the engine's order: name, nanoseconds
    count: int | None  # over how many runs
    compute_ns: int | None  # of whole runs, median of the GPU's time
    device: RecordedDevice | None
    files: list[str]  # that say so of whole runs


def read_profile(path: Path, exports: dict[Export | None, list[Path]]) -> Profile:
    """Return the times of layers, and what the exports next to the file say of whole runs: those that are named most
    like it. Raises InputError where it is damaged.
    """
    times, count = _read_times(path)
    return Profile(times, count, *_read_runs(exports, path))


def _read_times(path: Path) -> tuple[list[tuple[str, float]], int | None]:
    rows = decoded(path, list[_Times])
    layers = [row for row in rows if row.name is not None or row.count is None]
    times = [(row.name, row.average_ms * _NS_OF_MS) for row in layers if row.name and row.average_ms is not None]
    if len(times) < len(layers) or not times:
        raise damaged(path, "a layer has no name, or no time" if layers else "it has no layer")
    return times, next((row.count for row in rows if row.name is None), None)


def _read_runs(
    exports: dict[Export | None, list[Path]], profile: Path
) -> tuple[int | None, RecordedDevice | None, list[str]]:
    times, summary = (_of_engine(exports[kind], profile) for kind in (Export.TIMES, Export.SUMMARY))
    found = _About() if summary is None else decoded(summary, _About | list[_Gpu])
    about = found if isinstance(found, _About) else _About(device_information=next(iter(found), _Gpu()))
    gpu_ms = about.performance_summary.get("GPU Compute Time")
    spent = gpu_ms[_MEDIAN : _MEDIAN + 1] if isinstance(gpu_ms, list) else []
    if times is not None:
        spent = [row.compute_ms for row in decoded(times, list[_Times]) if row.compute_ms is not None] or spent
    compute_ns = round(median(spent) * _NS_OF_MS) if spent else None
    files = [path.name for path in (summary, times) if path is not None]
    return compute_ns, _device(about.device_information), files


def _of_engine(files: list[Path], profile: Path) -> Path | None:
    """Return the file whose name begins as the profile's does, up to its own ending; the only one in any case."""
    stem = profile.name.removesuffix(".gz").removesuffix(".json").removesuffix("profile").rstrip("._-")
    named = [path for path in files if stem and path.name.startswith(stem)]
    chosen = named or (files if len(files) == 1 else [])
    return min(chosen, key=lambda path: "profile" not in path.name, default=None)  # the build has metadata of its own


def _device(gpu: _Gpu) -> RecordedDevice | None:
    name, count = gpu.selected or gpu.name, gpu.sms or gpu.multiprocessors or 0
    if name is None:
        return None
    return RecordedDevice(
        ordinal=0,
        name=name[:200],
        sm_count=int(count) if 0 < count < 1 << 16 else None,
        compute_capability=None if gpu.capability is None else str(gpu.capability)[:8],
    )


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
