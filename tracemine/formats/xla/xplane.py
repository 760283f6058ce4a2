"""From the planes of an `.xplane.pb` to what was recorded: streams of GPUs, threads of the host, modules, devices."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from tracemine.columns import Array, codes, examples, sorted_unique
from tracemine.devices import told_name
from tracemine.formats.xla import recording as rec
from tracemine.formats.xla.hlo import HloModule, module_of
from tracemine.formats.xla.host import FRAMES_BYTES, GPU, HOST, METADATA, STREAM, TASK, event_name, refuse
from tracemine.formats.xla.recording import Columns, EventKind, Recording, Strings
from tracemine.formats.xla.space import Plane, PlaneLine, XSpace, events_of, open_space, text_ids
from tracemine.formats.xla.wire import Span
from tracemine.timeline import RecordedDevice

_PROGRAM = re.compile(r".*\((?P<number>\d{1,19})\)", re.DOTALL)
_HLO = ("Hlo Proto", "hlo_proto", "HloProto")
_PS = 1000  # a nanosecond
_VERSIONS = ("jax_version", "jaxlib_version", "cuda_runtime_version", "cuda_driver_version", "gpu_version")
_VERSION = re.compile(r"[\w.+ -]{1,40}")


def read_space(data: memoryview) -> Recording:
    """Return what a file recorded, and the modules that ran. Raises InputError where it is damaged, or of no GPU."""
    space = open_space(data)
    refuse([plane.name for plane in space.planes], truncated=space.truncated)
    recording = recording_of(space)
    return replace(recording, modules=modules_of(space, recording.gpu["program"]))


def recording_of(space: XSpace) -> Recording:
    """Return what a file recorded. Raises InputError, with the offset, where a line is damaged."""
    strings = Strings()
    base_ns = _number(space, TASK, "profile_start_time") or 0
    gpus = {int(match[1]): plane for plane in space.planes if (match := GPU.fullmatch(plane.name))}
    parts = list[Columns]()
    for device, plane in gpus.items():
        for line in plane.lines:
            if stream := STREAM.match(line.name):
                for columns in _events(space, plane, line, rec.GPU, strings, base_ns):
                    both = np.full((2, len(columns["name"])), [[device], [int(stream[1])]], np.int64)
                    parts.append(columns | {"device": both[0].astype(np.int32), "stream": both[1]})
                space.forget(line)
    gpu = rec.in_order(rec.joined(parts, rec.GPU, "device", "stream"), "device", "stream")
    of_host, threads, frames = _host_columns(space, strings, base_ns)
    gpu["launch"] = rec.launches(gpu, of_host["host"])
    return Recording(
        source="xplane",
        strings=list(strings),
        gpu=gpu,
        host=of_host["host"],
        memory=of_host["memory"],
        frames=of_host["frame"],
        frame_count=frames,
        threads=tuple(line.name for line in threads),
        tids=tuple(line.number & 0xFFFFFFFF for line in threads),
        pid=_number(space, HOST, "process_id") or 0,
        devices=tuple(_device(number, plane) for number, plane in sorted(gpus.items()) if plane.lines),
        vendors={number: str(plane.stats.get("device_vendor", "")) for number, plane in gpus.items()},
        versions=_versions(space),
        base_ns=base_ns,
        without_frames=any(map(_too_many, threads)),
        truncated=space.truncated,
    )


def _named(space: XSpace, name: str) -> Iterator[Plane]:
    return (plane for plane in space.planes if plane.name == name)


def _number(space: XSpace, plane_name: str, stat: str) -> int | None:
    found = (plane.stats.get(stat) for plane in _named(space, plane_name))
    return next((value for value in found if isinstance(value, int)), None)


def _events(
    space: XSpace, plane: Plane, line: PlaneLine, kind: EventKind, strings: Strings, base_ns: int
) -> Iterator[Columns]:
    """Yield the events of a line that are of a kind, some at a time."""
    skipped = [number for number, name in plane.event_names.items() if not kind.holds(name)]
    wanted = (*kind.numbers.values(), *kind.texts.values(), *kind.doubles.values())
    for events in events_of(space, plane, line, wanted, skipped):
        code = codes(events.names)
        names = [plane.event_names.get(number, "") for number in events.names[examples(code)].tolist()]
        columns: Columns = {
            "name": np.array([strings[event_name(name, kind)] for name in names], np.int32)[code],
            "start_ns": base_ns + (line.start_ns * _PS + events.offset_ps) // _PS,
            "dur_ns": (np.maximum(events.dur_ps, 0) + _PS // 2) // _PS,
        }
        columns |= {name: events.numbers(stat) for name, stat in kind.numbers.items()}
        columns |= {name: _small(columns[name]) for name in rec.SMALL if name in columns}
        columns |= {name: events.doubles(stat) for name, stat in kind.doubles.items()}
        yield columns | {
            name: text_ids(space, plane, events, stat, strings.__getitem__) for name, stat in kind.texts.items()
        }


def _host_columns(space: XSpace, strings: Strings, base_ns: int) -> tuple[dict[str, Columns], list[PlaneLine], int]:
    """Return events of the host's threads by what they are, in order, the threads, and how many frames they have."""
    parts: dict[str, list[Columns]] = {kind: [] for kind in rec.OF_HOST}
    threads: list[PlaneLine] = []
    frames = 0
    for plane in _named(space, HOST):
        for line in plane.lines:
            thread = len(threads)
            threads.append(line)
            begun = np.empty(0, np.int64)  # when the thread's host events did, of which call paths are asked
            for kind, found in parts.items():
                first = len(found)
                if kind == "frame" and _too_many(line):
                    continue
                for columns in _events(space, plane, line, rec.OF_HOST[kind], strings, base_ns):
                    if kind == "frame":
                        frames += len(columns["name"])
                        columns = rec.running_at(begun, columns)
                    found.append(columns | {"thread": np.full(len(columns["name"]), thread, np.int32)})
                if kind == "host":
                    begun = np.sort(np.concatenate([begun, *(columns["start_ns"] for columns in found[first:])]))
            space.forget(line)
    of_kind = {kind: rec.in_order(rec.joined(found, rec.OF_HOST[kind], "thread")) for kind, found in parts.items()}
    host = of_kind["host"]
    host["end_ns"] = host.pop("dur_ns") + host["start_ns"]
    return of_kind, threads, frames


def _too_many(frames: PlaneLine) -> bool:
    return frames.span[1] - frames.span[0] > FRAMES_BYTES


def _small(values: Array) -> Array:
    """Return int32, −1 where there is none or one beyond that."""
    return np.where((values >= 0) & (values < 1 << 31), values, -1).astype(np.int32)


def modules_of(space: XSpace, ran: Array) -> dict[int, HloModule]:
    """Return those of the compiled modules that ran, by the numbers that activities give them.

    Raises InputError where one is damaged.
    """
    found: dict[int, Span] = {}
    for plane in _named(space, METADATA):
        for event, name in plane.event_names.items():
            stats = space.stats_of(plane, event)
            proto = next((stats[key] for key in _HLO if key in stats), None)
            match = _PROGRAM.fullmatch(name)
            number = int(match["number"]) if match else stats.get("program_id", event)
            if isinstance(proto, tuple) and isinstance(number, int):
                found[number] = proto
    wanted = {*sorted_unique(ran).tolist()}
    return {number: module_of(space.data, span) for number, span in found.items() if number in wanted}


def _versions(space: XSpace) -> dict[str, str]:
    stats = {name: value for plane in _named(space, METADATA) for name, value in plane.stats.items()}
    found = {name.removesuffix("_version"): str(stats[name]) for name in _VERSIONS if name in stats}
    return {name: text for name, text in found.items() if _VERSION.fullmatch(text)}


def _device(ordinal: int, plane: Plane) -> RecordedDevice:
    stats = plane.stats
    numbers = {name: value for name, value in stats.items() if isinstance(value, int) and value > 0}
    name = str(stats.get("gpu_device_name", ""))[:200].strip()
    major, cores, memory = stats.get("compute_cap_major"), numbers.get("core_count"), numbers.get("memory_size")
    capability = f"{major}.{stats.get('compute_cap_minor', 0)}" if isinstance(major, int) else None
    return RecordedDevice(
        ordinal=ordinal,
        name=name or told_name(cores, memory, capability),
        memory_bytes=memory,
        compute_capability=capability,
        sm_count=cores,
    )
