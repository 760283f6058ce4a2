"""The `HOST.trace.json.gz` that JAX writes next to an `.xplane.pb`: the same events, without the compiled modules."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from tracemine.columns import Array
from tracemine.errors import InputError
from tracemine.formats.xla import recording as rec
from tracemine.formats.xla.host import FRAMES_BYTES, GPU, HOST, STREAM, event_name, refuse
from tracemine.formats.xla.recording import Columns, EventKind, Recording, Strings
from tracemine.timeline import RecordedDevice
from tracemine.timeline.arrow import MISSING

_LONGEST = 19  # digits
_BETWEEN = b"},{"


class _ChromeEvent(msgspec.Struct):
    name: str = ""
    ph: str = ""
    pid: int = 0
    tid: int = 0
    ts: float = 0.0
    dur: float = 0.0
    args: dict[str, Any] = {}


class _Document(msgspec.Struct):
    events: list[_ChromeEvent] = msgspec.field(default_factory=list, name="traceEvents")


def recording_of(content: memoryview, truncated: bool) -> Recording:
    """Return what a file recorded; of one that ends in an event, what stands before that.

    Raises InputError where it is no such JSON.
    """
    events, cut = _events(content)
    planes = {event.pid: _text(event.args, "name") for event in events if event.name == "process_name"}
    lines = {(event.pid, event.tid): _text(event.args, "name") for event in events if event.name == "thread_name"}
    refuse({*planes.values()}, truncated=truncated or cut)
    strings = Strings()
    gpu = _activities(events, planes, lines, strings)
    on_host = [event for event in events if planes.get(event.pid) == HOST and event.ph == "X"]
    threads = {key: place for place, key in enumerate(dict.fromkeys((event.pid, event.tid) for event in on_host))}
    few = len(content) <= FRAMES_BYTES
    of_host = {kind: _host(on_host, kind, threads, strings, few) for kind in rec.OF_HOST}
    host = of_host["host"]
    host["end_ns"] = host.pop("dur_ns") + host["start_ns"]
    gpu["launch"] = rec.launches(gpu, host)
    return Recording(
        source="json",
        strings=list(strings),
        gpu=gpu,
        host=host,
        memory=of_host["memory"],
        frames=of_host["frame"],
        frame_count=len(of_host["frame"]["name"]),
        threads=tuple(lines.get(key, "") for key in threads),
        tids=tuple(tid & 0xFFFFFFFF for _, tid in threads),
        pid=dict(zip(planes.values(), planes, strict=True)).get(HOST, 0),
        devices=tuple(RecordedDevice(ordinal=ordinal) for ordinal in sorted({*gpu["device"].tolist()})),
        vendors={},
        versions={},
        without_frames=not few,
        truncated=truncated or cut,
    )


def _activities(
    events: list[_ChromeEvent], planes: dict[int, str], lines: dict[tuple[int, int], str], strings: Strings
) -> Columns:
    device_of = {pid: int(match[1]) for pid, name in planes.items() if (match := GPU.fullmatch(name))}
    streams = {key: int(match[1]) for key, name in lines.items() if (match := STREAM.match(name))}
    gpu_events = [e for e in events if e.ph == "X" and e.pid in device_of and (e.pid, e.tid) in streams]
    gpu = _columns(gpu_events, rec.GPU, strings)
    gpu["device"] = _int64([device_of[event.pid] for event in gpu_events])
    gpu["stream"] = _int64([streams[event.pid, event.tid] for event in gpu_events])
    return rec.in_order(gpu, "device", "stream")


def _events(content: memoryview) -> tuple[list[_ChromeEvent], bool]:
    try:
        return msgspec.json.decode(content, type=_Document).events, False
    except msgspec.ValidationError as error:
        raise InputError(f"is no trace of JAX: {error}", hint="pass the .xplane.pb of the same run") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        last = bytes(content).rfind(_BETWEEN)
        whole = bytes(content[: last + 1]) + b"]}" if last > 0 else b""
        try:
            return msgspec.json.decode(whole, type=_Document).events, True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            says = f"is damaged JSON: {error}"
            raise InputError(says, hint="pass the .xplane.pb of the same run, or record once more") from error


def _host(
    events: list[_ChromeEvent], kind: str, threads: dict[tuple[int, int], int], strings: Strings, few: bool
) -> Columns:
    of_kind = rec.OF_HOST[kind]
    found = [] if kind == "frame" and not few else [event for event in events if of_kind.holds(event.name)]
    columns = _columns(found, of_kind, strings)
    columns["thread"] = _int64([threads[event.pid, event.tid] for event in found])
    return rec.in_order(columns)


def _columns(events: list[_ChromeEvent], kind: EventKind, strings: Strings) -> Columns:
    names = [event_name(_text(event.args, "long_name") or event.name, kind) for event in events]
    columns: Columns = {"name": np.array([strings[name] for name in names], np.int32), **_times_ns(events)}
    columns |= {name: _int64([_whole(event.args.get(key)) for event in events]) for name, key in kind.numbers.items()}
    for name, key in kind.doubles.items():
        columns[name] = np.array([_float(event.args.get(key)) for event in events], np.float64)
    for name, key in kind.texts.items():
        found = [_text(event.args, key) for event in events]
        columns[name] = np.array([strings[text] if text else -1 for text in found], np.int32)
    return columns


def _times_ns(events: list[_ChromeEvent]) -> Columns:
    times = np.array([(event.ts, event.dur) for event in events], np.float64).reshape(-1, 2)
    if not np.isfinite(times).all() or (np.abs(times) > 1e15).any():
        raise InputError("holds what is no time", hint="pass the .xplane.pb of the same run")
    start, dur = np.rint(times * 1000).astype(np.int64).T
    return {"start_ns": start, "dur_ns": np.maximum(dur, 0)}


def _text(args: dict[str, Any], key: str) -> str:
    value = args.get(key, "")
    return value if isinstance(value, str) else str(value)


def _whole(value: Any) -> int:
    """Return an integer, written as one or as text; MISSING: it is none, or no int64."""
    text = str(value)
    digits = text.removeprefix("-")
    whole = int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= _LONGEST else MISSING
    return whole if abs(whole) < 1 << 63 else MISSING


def _float(value: Any) -> float:
    return float(value) if re.fullmatch(r"\d{1,6}(\.\d{1,18})?", str(value)) else float("nan")


def _int64(values: list[int]) -> Array:
    return np.array(values, np.int64)
