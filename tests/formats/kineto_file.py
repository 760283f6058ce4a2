"""Small Kineto traces for tests: events as torch writes them, times in whole ns, read the way a user's file is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tracemine.formats import open_trace
from tracemine.timeline import Timeline

Event = dict[str, Any]

MAIN, BACKWARD = 11, 12  # threads
BASE_NS = 1_700_000_000_000_000_000


def event(category: str, name: str, start: int, end: int, *, tid: int = MAIN, **args: Any) -> Event:
    """An `X` event from `start` to `end` ns after the base; `args` with `_` for blanks are not renamed."""
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid, **times, "args": args.pop("args", args)}


def op(name: str, start: int, end: int, *, tid: int = MAIN, category: str = "cpu_op", **args: Any) -> Event:
    """A host operator."""
    return event(category, name, start, end, tid=tid, **args)


def call(name: str, start: int, end: int, correlation: int, *, tid: int = MAIN, **args: Any) -> Event:
    """A runtime or, by its name, driver call."""
    category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
    return event(category, name, start, end, tid=tid, correlation=correlation, **args)


def kernel(name: str, start: int, end: int, correlation: int | None, *, stream: int = 7, **args: Any) -> Event:
    """A kernel, or by its name a copy or a set."""
    category = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name[:6], "kernel")
    ids = {} if correlation is None else {"correlation": correlation}
    return event(category, name, start, end, tid=stream, args={"device": 0, "stream": stream, **ids, **args})


def frame(name: str, start: int, end: int, *, tid: int = MAIN) -> Event:
    """A Python frame or an nn.Module."""
    return event("python_function", name, start, end, tid=tid)


def timeline(
    folder: Path, *events: Event, file_name: str = "trace.json", indent: int | None = None, **header: Any
) -> Timeline:
    """The timeline of a trace with these events and header keys."""
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **header, "traceEvents": list(events)}
    path = folder / file_name
    path.write_text(json.dumps(trace, indent=indent), encoding="utf-8")
    return open_trace(path)


def old_timeline(folder: Path, *events: Event, **header: Any) -> Timeline:
    """As `timeline`, in the absolute microseconds of torch before 2.4. Times count as µs here."""
    base_us = BASE_NS // 1000
    moved = [e | {"ts": base_us + round(e["ts"] * 1000), "dur": round(e["dur"] * 1000)} for e in events]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": moved}), encoding="utf-8")
    return open_trace(path)
