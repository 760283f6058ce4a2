"""A light window made from a whole one: the same launches on a faster host, and no operator."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
_CALLS, _ON_DEVICE = ("cuda_runtime", "cuda_driver"), ("kernel", "gpu_memcpy", "gpu_memset")
_LATENCY_US, _BETWEEN_US = 4.0, 8.0
_LATER_US = 1e6  # than the whole window


def with_light_window(
    folder: Path,
    capture: Path,
    faster: float = 3.0,
    more: int = 2,
    change: Callable[[list[Event]], object] = lambda events: None,
    **about: Any,
) -> tuple[Path, int]:
    """Copy a capture, with a light window of as many steps and `more` whose host is so many times as fast.

    `change` may change its events. `about` is what else `capture.json` says. Returns the folder and for how long the
    device idles between the activities of the last steps that are as many as the whole window's, nanoseconds.
    """
    shutil.copytree(capture, folder)
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    whole = [each for each in trace["traceEvents"] if each.get("ph") == "X"]
    marks = sorted(
        (each for each in whole if each["name"].startswith("ProfilerStep") and each["cat"] == "user_annotation"),
        key=lambda each: each["ts"],
    )
    begin, free, events, bounds = marks[0]["ts"] + _LATER_US, 0.0, list[Event](), list[tuple[float, float]]()
    for number in range(len(marks) + more):
        mark = marks[(number - more) % len(marks)]
        own, free = _step(whole, mark, begin, faster, free, 1_000_000 * (number + 1))
        events += own
        bounds.append((begin, begin + mark["dur"] / faster))
        begin = bounds[-1][1] + _BETWEEN_US
    change(events)
    base = trace.get("baseTimeNanoseconds", 0)
    (folder / "light.json.gz").write_bytes(
        gzip.compress(json.dumps({**_header(trace), "traceEvents": events}).encode(), mtime=0)
    )
    marks_ns = [[round(each * 1000) + base for each in bound] for bound in bounds]
    light = {"trace": "light.json.gz", "marks_ns": marks_ns, "step_ns": None, "slowdown": None}
    (folder / "capture.json").write_text(json.dumps({"light": light, **about}))
    return folder, _idle_ns([each for each in events if each["cat"] in _ON_DEVICE], bounds[more][0])


def _header(trace: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in trace.items() if key not in ("traceEvents", "with_stack", "record_shapes")}


def _step(
    whole: list[Event], mark: Event, begin: float, faster: float, free: float, more: int
) -> tuple[list[Event], float]:
    """A step's calls on a faster host, and what they launch as soon as it can begin; and when the device is free."""
    calls = {}
    for each in whole:
        if each.get("cat") in _CALLS and mark["ts"] <= each["ts"] < mark["ts"] + mark["dur"]:
            ts = round(begin + (each["ts"] - mark["ts"]) / faster, 3)
            args = {"cbid": each["args"].get("cbid"), "correlation": each["args"]["correlation"] + more}
            calls[each["args"]["correlation"]] = {**each, "ts": ts, "dur": round(each["dur"] / faster, 3), "args": args}
    launched = []
    for each in sorted((each for each in whole if each.get("cat") in _ON_DEVICE), key=lambda each: each["ts"]):
        call = calls.get(each["args"]["correlation"])
        if call is not None:
            ts = round(max(free, call["ts"] + _LATENCY_US), 3)
            free = ts + each["dur"]
            args = {key: value for key, value in each["args"].items() if key != "External id"}
            launched.append({**each, "ts": ts, "args": {**args, "correlation": call["args"]["correlation"]}})
    return [*calls.values(), *launched], free


def _idle_ns(activities: list[Event], since: float) -> int:
    spans = sorted((round(each["ts"] * 1000), round(each["dur"] * 1000)) for each in activities if each["ts"] >= since)
    latest, idle = spans[0][0] if spans else 0, 0
    for begin, dur in spans:
        idle += max(begin - latest, 0)
        latest = max(latest, begin + dur)
    return idle
