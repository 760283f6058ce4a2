"""From a profiler's export to a timeline. What a file is, is decided by its content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from tracemine.errors import InputError, Location
from tracemine.formats import execution_trace as et
from tracemine.formats import nsys
from tracemine.formats.format import Format, Progress
from tracemine.formats.graph_capture import with_capture, with_step_times
from tracemine.formats.light import with_light
from tracemine.formats.plugins import plugin_format, refused
from tracemine.formats.sniff import looks_like_counters, refusal
from tracemine.formats.source import FileSource
from tracemine.formats.stored import check_times, checked
from tracemine.formats.tensorrt.files import profile_of
from tracemine.formats.trust import trusted
from tracemine.formats.xla.read import profiles_in
from tracemine.on_demand import on_demand
from tracemine.timeline import Timeline, warned
from tracemine.units import count_text

__all__ = ["format_of", "is_counters", "is_nsys_folder", "open_trace", "recording_in"]

# Reports of Nsight Compute, given along with a trace.
__getattr__ = on_demand(__name__, {"ncu": f"{__name__}.ncu"})

# Modules here, each with its FORMAT. The first that recognises a file reads it: the least specific come last.
FORMATS = ("rocpd", "nsys.read", "xla.read", "tensorrt", "onnxruntime", "proton", "kineto.read")


def format_of(source: FileSource, formats: Sequence[Format] = ()) -> Format:
    """Return the format that `source` is in; it is not consumed. `formats` are asked before those known here, those
    of other packages (entry points `tracemine.formats`) after them.

    Raises InputError, with what the file is and the way out, if none reads it.
    """
    found = _recognised(source, formats)
    if found is not None:
        return found
    found, broken = plugin_format(source)
    if found is None:
        raise refused(refusal(source), broken)
    return found


def _recognised(source: FileSource, formats: Sequence[Format] = ()) -> Format | None:
    return next((form for form in chain(formats, _known()) if form.recognises(source.head)), None)


def _known() -> Iterator[Format]:
    """Yield each module's format; it is imported here."""
    for name in FORMATS:
        yield import_module(f"{__name__}.{name}").FORMAT


# Reports of Nsight Systems are recognised by their names: how they begin is not documented.
NSYS_REPORTS = (".nsys-rep", ".qdrep")

# How a folder names what was recorded together: the profiler's trace, and the execution trace of the same window.
TRACE_NAMES = ("trace.json", "trace.json.gz")
EXECUTION_TRACE_NAMES = ("et.json", "et.json.gz")
ABOUT_NAME = "capture.json"
LIGHT_NAMES = ("light.json.gz", "light.json")


def recording_in(folder: Path) -> tuple[Path, Path | None] | None:
    """Return the trace and the execution trace of a folder, as `tracemine.capture` leaves them, the second where it
    was asked for; None: it is no recording.

    >>> recording_in(Path("no/such/folder")) is None
    True
    """
    trace, execution_trace = _one_of(folder, TRACE_NAMES), _one_of(folder, EXECUTION_TRACE_NAMES)
    captured = execution_trace is not None or (folder / ABOUT_NAME).is_file()
    return (trace, execution_trace) if trace is not None and captured else None


def _one_of(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def open_trace(
    path: Path | str,
    progress: Progress | None = None,
    formats: Sequence[Format] = (),
    *,
    execution_trace: Path | str | None = None,
    graph_capture: Path | str | None = None,
) -> Timeline:
    """Read a profiler's export, plain or gzipped, or a timeline directory that was written before.

    `execution_trace` is the file that PyTorch's ExecutionTraceObserver wrote during the same run: with it, the timeline
    knows every operator's tensors. A folder in which both lie as `trace.json` and `et.json`, each perhaps gzipped, or
    the first with a `capture.json`, is read as one trace, and so is a folder that nsys export wrote, one in which JAX
    left one profile, or one that holds what trtexec exported of one engine; a `.nsys-rep` is exported by the nsys on
    PATH.
    Of what TensorRT and ONNX Runtime write `execution_trace` is the engine's layers (or its profile), and the optimised
    model: a file, or a folder of them. `graph_capture` is a trace of the same program capturing its CUDA graphs: the
    kernels of replays get the operators that launched them then. `progress` is called after each block: how many of the
    file's bytes are read, and how many there are. `formats` are asked before those that are known here.

    Raises InputError if a path is no readable trace, or they do not belong together, TimelineError if a timeline
    directory is damaged.

    >>> open_trace("no/such/trace.json")
    Traceback (most recent call last):
    tracemine.errors.InputError: no/such/trace.json: there is no such file
    """
    if graph_capture is not None:
        timeline = open_trace(path, progress, formats, execution_trace=execution_trace)
        return with_capture(timeline, open_trace(graph_capture, formats=formats), str(graph_capture))
    path = Path(path)
    path = (profile_of(path) if path.is_dir() else None) or path
    about = path / ABOUT_NAME
    if is_nsys_folder(path) or path.suffix in NSYS_REPORTS:
        timeline = trusted(_read_nsys(path, progress))
        return timeline if execution_trace is None else _with_tensors(timeline, Path(execution_trace), progress)
    if path.is_dir() and not (path / "meta.json").is_file():
        path, recorded = _traces_in(path)
        execution_trace = execution_trace or recorded
    if path.is_dir():
        timeline = checked(Timeline.read(path), path)
    else:
        timeline, execution_trace = _read_file(path, progress, formats, execution_trace)
    timeline = _timed(timeline, about, formats) if about.is_file() else timeline
    return timeline if execution_trace is None else _with_tensors(timeline, Path(execution_trace), progress)


def _read_file(
    path: Path, progress: Progress | None, formats: Sequence[Format], other: Path | str | None
) -> tuple[Timeline, Path | str | None]:
    """Return what a file holds; and the other file, where it is no part of the same recording."""
    with FileSource(path) as source:
        form = format_of(source, formats)
        if form.has_parts and other is not None:
            source.part, other = Path(other), None
        return trusted(check_times(_noted(form.read(source, progress), source), path)), other


def _timed(timeline: Timeline, about: Path, formats: Sequence[Format]) -> Timeline:
    """Return a timeline with what capture timed next to it."""
    timeline = with_step_times(timeline, about)
    light = _one_of(about.parent, LIGHT_NAMES) or about.parent / LIGHT_NAMES[0]
    return with_light(timeline, about, light, partial(open_trace, formats=formats))


def _traces_in(folder: Path) -> tuple[Path, Path | None]:
    """Return the one trace of a folder that is no timeline, and its execution trace."""
    if (recording := recording_in(folder)) is not None:
        return recording
    profiles = profiles_in(folder)
    if len(profiles) == 1:
        return profiles[0], None
    where, hint = Location(str(folder)), "name a file, or a folder that scan --parquet or capture wrote"
    if profiles:
        says = f"is a folder in which {len(profiles)} profiles of XLA lie"
        raise InputError(says, where=where, hint=f"name one: {profiles[-1]}")
    raise InputError("is a folder, and no timeline lies in it", where=where, hint=f"{hint}; scan_many reads a folder's")


def is_counters(path: Path) -> bool:
    """Return whether a file is a report of Nsight Compute, binary or a table, and no trace.

    Raises InputError where it cannot be read.

    >>> is_counters(Path("fixtures/ncu/chain/raw.csv.gz")), is_counters(Path("fixtures/ncu/chain/trace.json.gz"))
    (True, False)
    """
    if path.is_dir() or path.suffix in NSYS_REPORTS:
        return False
    with FileSource(path) as source:
        return looks_like_counters(source) and _recognised(source) is None


def is_nsys_folder(path: Path) -> bool:
    """Return whether a folder is an export of Nsight Systems (`parquetdir`, `arrowdir`): one file a table.

    >>> is_nsys_folder(Path("no/such/folder"))
    False
    """
    if not path.is_dir() or (path / "meta.json").is_file():
        return False
    return bool(nsys.files_in(path))


def _read_nsys(path: Path, progress: Progress | None) -> Timeline:
    if path.is_dir():
        return nsys.read_folder(path)
    with FileSource(path) as source:  # that it is there, and no export under a report's name
        found = _recognised(source)
        return nsys.read_report(path, progress) if found is None else _noted(found.read(source, progress), source)


def _with_tensors(timeline: Timeline, path: Path, progress: Progress | None) -> Timeline:
    with FileSource(path) as source:
        trace = et.read.read(source, progress)
        return _noted(et.join.join(timeline, trace, str(path)), source)


def _noted(timeline: Timeline, source: FileSource) -> Timeline:
    """Return the timeline, saying what of its file is none of the content."""
    if not source.behind:
        return timeline
    says = f"Behind the gzip data of {Path(source.path).name} stand {count_text(source.behind, 'byte')} that are none."
    return replace(timeline, meta=warned(timeline.meta, [says]))
