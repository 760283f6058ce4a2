"""What Nsight Systems would have recorded of a recording: NVTX texts of its operators, in an export of their own.

    write_twin(trace, execution_trace, Path("twin.sqlite"))      # a Kineto trace and the execution trace of its window
    write_twin(trace, execution_trace, path, lost="aten::view")  # and what views gave are objects of no operator

`emit_nvtx(record_shapes=True)` names, for each input, the operator that last gave a tensor object at its address. An
execution trace numbers tensor objects by address too, so both agree, addresses that are used again included. Kernels,
copies, host calls, threads and times are those of the Kineto trace; stacks, dtypes, strides and numbers that operators
were given are not there, as nsys records none.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.dataflow.def_use import read_json

_PROCESS = 281484170625024
_THREAD_BITS = 24
_RANGES = frozenset({"cpu_op", "user_annotation"})
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_COPY_KINDS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10}
_HEAD = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_TABLES = {
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *(*_HEAD, "demangledName", "shortName", "registersPerThread", "gridX", "gridY", "gridZ"),
        *("blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (*_HEAD, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_HEAD, "value", "bytes", "memKind", "graphNodeId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        *("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    ),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "globalTid", "endGlobalTid", "textId", "domainId"),
    "TARGET_INFO_GPU": ("id", "name", "smCount", "computeMajor", "computeMinor"),
    "META_DATA_EXPORT": ("name", "value"),
}
_TEXT_COLUMNS = frozenset({"value", "text", "name"})
_VERSION = (("EXPORT_PRODUCT_VERSION", "2025.3.1"), ("EXPORT_SCHEMA_VERSION", "3.20.2"))
Maker = tuple[int, int]
_NO_MAKER = (0, -1)


def write_twin(trace: Path, execution_trace: Path, path: Path, *, lost: str | None = None) -> Path:
    """Write the export; an old one is overwritten. lost: operators whose results are objects of no operator."""
    content = read_json(trace)
    rows = _Rows()
    for device in content.get("deviceProperties", ()):
        parts = ("id", "name", "numSms", "computeMajor", "computeMinor")
        rows.table["TARGET_INFO_GPU"].append([device.get(part) for part in parts])
    events = [event for event in content["traceEvents"] if event.get("ph") == "X"]
    for event in events:
        rows.device(event)
    for event, text in _texts(events, read_json(execution_trace)["nodes"], lost):
        start, end = _times(event)
        rows.table["NVTX_EVENTS"].append([start, end, 59, text, _thread(event), None, None, 0])
    rows.table["StringIds"] = [[number, text] for text, number in rows.strings.items()]
    rows.table["META_DATA_EXPORT"] = [list(row) for row in _VERSION]
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        for name, columns in _TABLES.items():
            typed = ", ".join(f'"{one}" {"TEXT" if one in _TEXT_COLUMNS else "INTEGER"}' for one in columns)
            database.execute(f'create table "{name}" ({typed})')
            marks = ", ".join("?" * len(columns))
            database.executemany(f'insert into "{name}" values ({marks})', rows.table[name])  # noqa: S608 — of _TABLES
    database.close()
    return path


def makers_of(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of operators that give tensors."""
    return sorted({node["name"] for node in nodes if any(_is_tensor(kind) for kind in node["outputs"]["types"])})


def _times(event: Mapping[str, Any]) -> tuple[int, int]:
    start, dur = round(event["ts"] * 1000), round(event.get("dur", 0) * 1000)
    return start, start + dur


def _thread(event: Mapping[str, Any]) -> int:
    return _PROCESS | (int(event["tid"]) & ((1 << _THREAD_BITS) - 1))


@dataclass
class _Rows:
    """Rows of the export's tables, and its strings by text."""

    table: dict[str, list[Sequence[Any]]] = field(default_factory=lambda: {name: [] for name in _TABLES})
    strings: dict[str, int] = field(default_factory=dict)

    def device(self, event: Mapping[str, Any]) -> None:
        """Add what ran on the device, or called it; nothing of other events."""
        kind, given = event.get("cat"), event.get("args", {})
        start, end = _times(event)
        name = self.strings.setdefault(str(event.get("name")), len(self.strings) + 1)
        if kind in _CALLS:
            self.table["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
                [start, end, 0, _thread(event), given.get("correlation"), name, 0]
            )
            return
        stream = given.get("stream"), given.get("correlation"), _PROCESS
        head = [start, end, given.get("device"), given.get("context"), *stream]
        if kind == "kernel":
            sizes = [*given.get("grid", [1, 1, 1]), *given.get("block", [1, 1, 1])]
            shared = [given.get("shared memory", 0), 0]
            about = [name, name, given.get("registers per thread"), *sizes, *shared, given.get("graph node id")]
            self.table["CUPTI_ACTIVITY_KIND_KERNEL"].append([*head, *about])
        elif kind == "gpu_memcpy":
            copied = next((number for text, number in _COPY_KINDS.items() if text in event["name"]), None)
            self.table["CUPTI_ACTIVITY_KIND_MEMCPY"].append([*head, given.get("bytes"), copied, None, None, None])
        elif kind == "gpu_memset":
            self.table["CUPTI_ACTIVITY_KIND_MEMSET"].append([*head, 0, given.get("bytes"), None, None])


def _texts(
    events: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]], lost: str | None
) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each host range with its text, in the order in which they begin."""
    of_function = {_attribute(node, "rf_id"): node for node in nodes}
    ranges = [event for event in events if event.get("cat") in _RANGES]
    moments = sorted(
        [(_times(event)[0], 1, -event.get("dur", 0), at) for at, event in enumerate(ranges)]
        + [(_times(event)[1], 0, event.get("dur", 0), at) for at, event in enumerate(ranges)]
    )
    makers: dict[int, Maker] = {}  # by the number of the tensor object
    found: list[tuple[Mapping[str, Any], str]] = []
    ended_early: set[int] = set()  # ranges of no length: their end sorts before their beginning
    for _, begins, _, at in moments:
        event = ranges[at]
        number = int(event.get("args", {}).get("Record function id", 0))
        node = of_function.get(number) if number > 0 else None
        if begins:
            found.append((event, str(event["name"]) if node is None else _text(event, number, node, makers)))
        if node is not None and (not begins or at in ended_early):
            for output, one in enumerate(_values(node, "outputs")):
                if _is_tensor(one[0]):
                    makers[int(one[1][0])] = (number, output) if node["name"] != lost else _NO_MAKER
        if not begins:
            ended_early.add(at)
    yield from found


def _text(event: Mapping[str, Any], number: int, node: Mapping[str, Any], makers: Mapping[int, Maker]) -> str:
    sequence = _attribute(node, "seq_id")
    text = str(event["name"]) + (f", seq = {sequence}" if sequence >= 0 else "") + f", op_id = {number}"
    sizes: list[list[int]] = []
    named: list[Maker] = []
    for kind, value, shape in _values(node, "inputs"):
        tensors = list(_tensors(kind, value, shape))
        sizes += [size for _, size in tensors] or [[]]
        named += [makers.get(one, _NO_MAKER) for one, _ in tensors] or [_NO_MAKER]
    if not sizes:
        return text
    pairs = ", ".join(f"({maker},{output})" for maker, output in named)
    return f"{text}, sizes = {sizes}, input_op_ids = [{pairs}]"


def _values(node: Mapping[str, Any], which: str) -> Iterator[tuple[str, Any, Any]]:
    given = node[which]
    yield from zip(given["types"], given["values"], given["shapes"], strict=True)


def _tensors(kind: str, value: Any, shape: Any) -> Iterator[tuple[int, list[int]]]:
    """Yield the objects' numbers and sizes of a tensor or of a list's members."""
    if _is_tensor(kind):
        yield int(value[0]), list(shape)
    elif kind.startswith("GenericList[") and isinstance(value, list):
        members = kind[len("GenericList[") : -1].split(",")
        for one, member, size in zip(members, value, shape, strict=False):
            yield from _tensors(one, member, size)


def _is_tensor(kind: str) -> bool:
    return kind.startswith("Tensor(")


def _attribute(node: Mapping[str, Any], name: str) -> int:
    return next((int(one["value"]) for one in node["attrs"] if one["name"] == name), -1)
