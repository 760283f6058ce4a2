"""Times of an engine's layers (`trtexec --exportProfile`), and of its runs (`--exportTimes`)."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Annotated

from msgspec import Meta, Struct, field

from tracemine.formats.tensorrt.files import Export, damaged, decoded
from tracemine.timeline import RecordedDevice

NS_OF_MS = 1_000_000
_MEDIAN = 3  # of the Engine Explorer's least, most, mean, median, percentiles
_Milliseconds = Annotated[float, Meta(ge=0, le=1e9)]


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
    """The mean times of layers, in the engine's order, and over how many runs."""

    times: list[tuple[str, float]]  # name, nanoseconds
    runs: int | None


class WholeRuns(Struct, frozen=True):
    """What is known of whole runs, while no layer was timed."""

    compute_ns: int | None  # median of the GPU's time
    device: RecordedDevice | None
    files: list[str]


def read_profile(path: Path) -> Profile:
    """Return the times of layers. Raises InputError where the file is damaged."""
    rows = decoded(path, list[_Times])
    layers = [row for row in rows if row.name is not None or row.count is None]
    times = [(row.name, row.average_ms * NS_OF_MS) for row in layers if row.name and row.average_ms is not None]
    if len(times) < len(layers) or not times:
        raise damaged(path, "a layer has no name, or no time" if layers else "it has no layer")
    return Profile(times, next((row.count for row in rows if row.name is None), None))


def read_runs(exports: dict[Export | None, list[Path]], profile: Path) -> WholeRuns:
    """Return what the exports next to a profile say of whole runs: those that are named most like it."""
    times, summary = (_of_engine(exports[kind], profile) for kind in (Export.TIMES, Export.SUMMARY))
    found = _About() if summary is None else decoded(summary, _About | list[_Gpu])
    about = found if isinstance(found, _About) else _About(device_information=next(iter(found), _Gpu()))
    gpu_ms = about.performance_summary.get("GPU Compute Time")
    spent = gpu_ms[_MEDIAN : _MEDIAN + 1] if isinstance(gpu_ms, list) else []
    if times is not None:
        spent = [row.compute_ms for row in decoded(times, list[_Times]) if row.compute_ms is not None] or spent
    compute_ns = round(median(spent) * NS_OF_MS) if spent else None
    files = [path.name for path in (summary, times) if path is not None]
    return WholeRuns(compute_ns, _device(about.device_information), files)


def _of_engine(files: list[Path], profile: Path) -> Path | None:
    """Return the file whose name begins as the profile's does, up to its own ending; the only one in any case."""
    stem = profile.name.removesuffix(".gz").removesuffix(".json").removesuffix("profile").rstrip("._-")
    named = [path for path in files if stem and path.name.startswith(stem)]
    chosen = named or (files if len(files) == 1 else [])
    timed = [path for path in chosen if "profile" in path.name]  # the build has metadata of its own
    return next(iter((*timed, *chosen)), None)


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
