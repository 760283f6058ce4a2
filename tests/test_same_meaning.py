"""A trace changed in what means nothing: the same figures, findings and fingerprints."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tracemine
from tests.formats.kineto_file import Event

KINETO = Path(__file__).parents[1] / "fixtures" / "kineto"
HOST = ("cpu_op", "cuda_runtime", "cuda_driver", "python_function", "user_annotation", "cpu_instant_event")
Change = Callable[[list[Event]], list[Event]]


def permuted(events: list[Event]) -> list[Event]:
    return random.Random(3).sample(events, len(events))


def later(events: list[Event]) -> list[Event]:
    return [each | ({"ts": each["ts"] + 1_000_000} if "ts" in each else {}) for each in events]


def renumbered(events: list[Event]) -> list[Event]:
    numbers = ("correlation", "External id")
    return [
        each | {"args": {k: v + 5_000_000 if k in numbers and v > 0 else v for k, v in each.get("args", {}).items()}}
        for each in events
    ]


def other_threads(events: list[Event]) -> list[Event]:
    return [each | ({"tid": each["tid"] + 777} if each.get("cat") in HOST else {}) for each in events]


def other_streams(events: list[Event]) -> list[Event]:
    return [
        each | {"tid": each["tid"] + 50, "args": each["args"] | {"stream": each["args"]["stream"] + 50}}
        if each.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        else each
        for each in events
    ]


def renamed_kernels(events: list[Event]) -> list[Event]:
    return [each | ({"name": each["name"] + "_v2"} if each.get("cat") == "kernel" else {}) for each in events]


def strangers(events: list[Event]) -> list[Event]:
    stranger = {"ph": "i", "s": "t", "cat": "foreign", "name": "n", "pid": 1, "tid": 1, "ts": 1.5}
    return [one for each in events for one in (each, stranger)]


CHANGES: tuple[Change, ...] = (permuted, later, renumbered, other_threads, other_streams, renamed_kernels, strangers)


def told(folder: Path, document: dict[str, Any], events: list[Event]) -> tuple[Any, ...]:
    path = folder / "trace.json"
    path.write_text(json.dumps(document | {"traceEvents": events}))
    scan = tracemine.scan(path).scan
    found = [
        (each.fingerprint, each.rule, each.occurrences, each.measured_ns, each.gpu_saving_ns, each.step_saving_ns)
        for each in scan.findings
    ]
    return scan.summary, found


@pytest.mark.parametrize("name", ["chain", "compiled_islands"])
def test_what_means_nothing_changes_nothing(name: str, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress((KINETO / f"{name}.json.gz").read_bytes()))
    events = document["traceEvents"]
    alone = told(tmp_path, document, events)
    assert alone[1]
    for change in CHANGES:
        changed = change(events)
        assert changed != events
        assert told(tmp_path, document, changed) == alone, change.__name__
