"""Times of an engine's layers (`trtexec --exportProfile`), and of its runs (`--exportTimes`)."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct, field

from tracemine.formats.tensorrt.files import Export, content, damaged
from tracemine.timeline import RecordedDevice

_NS_OF_MS = 1_000_000
_LONGEST_MS = 1e9
_MEDIAN = 3  # of the Engine Explorer's least, most, mean, median, percentiles


class Profile(Struct, frozen=True):
    """The mean times of layers, in the engine's order, and over how many runs."""

    times: list[tuple[str, float]]  # name, nanoseconds
    runs: int | None


class WholeRuns(Struct, frozen=True):
    """What is known of whole runs, while no layer was timed."""

    compute_ns: int | None = None  # median of the GPU's time
    device: RecordedDevice | None = None
    files: list[str] = field(default_factory=list)


def read_profile(path: Path) -> Profile:
    """Return the times of layers. Raises InputError where the file is damaged."""
    rows = content(path)
    if not isinstance(rows, list):
        raise damaged(path, "it is no list")
    runs, times = None, []
    for row in rows:
        if isinstance(row, dict) and "name" not in row and isinstance(row.get("count"), int):
            runs = row["count"]
            continue
        spent = _milliseconds(row.get("averageMs")) if isinstance(row, dict) else None
        if spent is None or not isinstance(row.get("name"), str):
            raise damaged(path, "a layer has no name, or no time")
        times.append((row["name"], spent * _NS_OF_MS))
    if not times:
        raise damaged(path, "it has no layer")
    return Profile(times, runs)


def read_runs(exports: dict[Export, list[Path]], profile: Path) -> WholeRuns:
    """Return what the exports next to a profile say of whole runs: those that are named most like it."""
    times, summaries = (_of_engine(exports.get(kind, []), profile) for kind in (Export.TIMES, Export.SUMMARY))
    compute_ns, device, read = None, None, list[str]()
    if summaries is not None:
        summary_read = content(summaries)
        compute_ns, device = _computed(summary_read), _device(summary_read)
        read.append(summaries.name)
    if times is not None:
        rows = content(times)
        spent = [_milliseconds(row.get("computeMs")) for row in rows if isinstance(row, dict)]
        known = [spent_ms for spent_ms in spent if spent_ms is not None]
        compute_ns = round(median(known) * _NS_OF_MS) if known else compute_ns
        read.append(times.name)
    return WholeRuns(compute_ns, device, read)


def _of_engine(files: list[Path], profile: Path) -> Path | None:
    """Return the file whose name begins as the profile's does, up to its own ending; the only one in any case."""
    stem = profile.name.removesuffix(".gz").removesuffix(".json").removesuffix("profile").rstrip("._-")
    named = [path for path in files if stem and path.name.startswith(stem)]
    chosen = named or (files if len(files) == 1 else [])
    timed = [path for path in chosen if "profile" in path.name]  # the build has metadata of its own
    return next(iter((*timed, *chosen)), None)


def _computed(summary_read: Any) -> int | None:
    summary = summary_read.get("performance_summary") if isinstance(summary_read, dict) else None
    given = summary.get("GPU Compute Time") if isinstance(summary, dict) else None
    spent = _milliseconds(given[_MEDIAN]) if isinstance(given, list) and len(given) > _MEDIAN else None
    return None if not spent else round(spent * _NS_OF_MS)


def _device(summary_read: Any) -> RecordedDevice | None:
    about = summary_read.get("device_information") if isinstance(summary_read, dict) else summary_read
    about = about[0] if isinstance(about, list) and about else about
    if not isinstance(about, dict) or not isinstance(name := about.get("Selected Device", about.get("Name")), str):
        return None
    count, capability = about.get("SMs", about.get("MULTIPROCESSOR_COUNT")), about.get("Compute Capability")
    return RecordedDevice(
        ordinal=0,
        name=name[:200],
        sm_count=int(count) if isinstance(count, int | float) and 0 < count < 1 << 16 else None,
        compute_capability=str(capability) if isinstance(capability, float) else None,
    )


def _milliseconds(value: Any) -> float | None:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if fine and 0 <= value <= _LONGEST_MS else None
