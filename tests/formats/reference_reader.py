"""The oracle of the scanner: the whole document through the standard library's json, times through Decimal.

It shares no code with the scanner and no speed either. It reads valid JSON only.
"""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from tracemine.formats.kineto.scan import ABSENT, MISSING, RawTrace

GPU = {"kernel": 0, "gpu_memcpy": 1, "memcpy": 1, "gpu_memset": 2, "memset": 2}
CALLS = {"cuda_runtime": 0, "runtime": 0, "cuda_driver": 1}
OPS = {"cpu_op": 0, "operator": 0, "user_annotation": 1}

Row = dict[str, Any]
RAW = {
    *("grid", "block", "input_dims", "input_types", "input_strides", "concrete_inputs", "call_stack"),
    "kernel_backend",
}
TEXT = {
    *("name", "collective", "kernel", "sent_dtype", "group_name", "group_description", "group_ranks"),
    *("splits_in", "splits_out"),
}
MEMORY = {
    "device_type": "Device Type",
    "device": "Device Id",
    "address": "Addr",
    "bytes": "Bytes",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
}


def read(path: Path) -> dict[str, list[Row]]:
    """Tables of rows; an absent value is None, a raw one is the parsed JSON value."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    document = json.loads(text, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    base = document.get("baseTimeNanoseconds", 0) if isinstance(document, dict) else 0
    tables: dict[str, list[Row]] = {name: [] for name in ("gpu", "calls", "syncs", "ops", "frames", "memory")}
    for event in events:
        category = str(event.get("cat", "")).lower()
        args = event.get("args", {})
        if event.get("ph") in ("i", "I") and event["name"] == "[memory]":
            keys = {column: _integer(args.get(key)) for column, key in MEMORY.items()}
            start_ns = base + round(Decimal(event["ts"]) * 1000)
            thread = {"pid": _thread(event.get("pid")), "tid": _thread(event.get("tid"))}
            tables["memory"].append({"start_ns": start_ns, **thread, **keys})
        if event.get("ph") != "X":
            continue
        row: Row = {
            "start_ns": base + round(Decimal(event["ts"]) * 1000),
            "dur_ns": max(round(Decimal(event.get("dur", 0)) * 1000), 0),
        }
        external_id = _integer(args.get("External id", args.get("external id")))
        thread = {"pid": _thread(event.get("pid")), "tid": _thread(event.get("tid"))}
        if category in GPU:
            row |= {
                "category": GPU[category],
                "name": event["name"],
                "device": _integer(args.get("device", thread["pid"])),
                "stream": _integer(args.get("stream", thread["tid"])),
                "context": _integer(args.get("context")),
                "correlation": _integer(args.get("correlation")),
                "external_id": external_id,
                "grid": args.get("grid"),
                "block": args.get("block"),
                "registers": _integer(args.get("registers per thread")),
                "shared_memory": _integer(args.get("shared memory")),
                "bytes": _integer(args.get("bytes")),
                "occupancy": _number(args.get("est. achieved occupancy %")),
                "graph_id": _integer(args.get("graph id")),
                "graph_node_id": _integer(args.get("graph node id")),
                **_collective(args),
                "elements_out": _integer(args.get("Out msg nelems")),
                "splits_in": args.get("In split size"),
                "splits_out": args.get("Out split size"),
                "sequence": _integer(args.get("Seq")),
            }
            tables["gpu"].append(row)
        elif category in CALLS:
            row |= {"category": CALLS[category], "name": event["name"], **thread, "external_id": external_id}
            row |= {"kernel": args.get("kernel")}
            tables["calls"].append(row | {"correlation": _integer(args.get("correlation"))})
        elif category in OPS:
            row |= {
                "category": OPS[category],
                "name": event["name"],
                **thread,
                "external_id": external_id,
                "record_function_id": _integer(args.get("Record function id")),
                "sequence_number": _integer(args.get("Sequence number")),
                "forward_thread_id": _integer(args.get("Fwd thread id")),
                "input_dims": args.get("Input Dims", args.get("Input dims")),
                "input_types": args.get("Input type"),
                "input_strides": args.get("Input Strides"),
                "concrete_inputs": args.get("Concrete Inputs"),
                "call_stack": args.get("Call stack"),
                "kernel_backend": args.get("kernel_backend"),
                "event_index": _integer(args.get("Ev Idx")),
                **_collective(args),
                "peer": next((_integer(args[key]) for key in ("Dst Rank", "Src Rank", "Rank") if key in args), None),
            }
            tables["ops"].append(row)
        elif category == "cuda_sync":
            row |= {"name": args.get("cuda_sync_kind")}
            tables["syncs"].append(row | {key: _integer(args.get(key)) for key in ("device", "stream", "correlation")})
        elif category == "python_function":
            tables["frames"].append(row | {"name": event["name"], **thread})
    return tables


def _collective(args: dict[str, Any]) -> dict[str, Any]:
    """Return what torch records of a collective with its kernel and its call."""
    return {
        "collective": args.get("Collective name"),
        "group_size": _integer(args.get("Group size")),
        "elements_in": _integer(args.get("In msg nelems")),
        "sent_dtype": args.get("dtype"),
        "group_name": args.get("Process Group Name"),
        "group_description": args.get("Process Group Description"),
        "group_ranks": args.get("Process Group Ranks"),
    }


def rows_of(raw: RawTrace) -> dict[str, list[Row]]:
    """A RawTrace in the reference's form."""
    parsed: dict[int, Any] = {}

    def plain(column: str, value: Any) -> Any:
        if column in RAW:
            if value != ABSENT and value not in parsed:
                parsed[value] = json.loads(raw.strings[value], parse_float=Decimal)
            return None if value == ABSENT else parsed[value]
        if column in TEXT:
            return None if value == ABSENT else raw.strings[value]
        if column == "occupancy":
            return None if np.isnan(value) else value
        return None if value == MISSING else value

    tables = {}
    for name in ("gpu", "calls", "syncs", "ops", "frames", "memory"):
        columns = {
            column: [plain(column, value) for value in values.tolist()] for column, values in getattr(raw, name).items()
        }
        tables[name] = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return tables


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**63 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | Decimal) else None


def _thread(value: Any) -> int | None:
    if isinstance(value, str):
        last = value.split()[-1:] or [""]
        return int(last[0]) if last[0].lstrip("-").isdigit() else None
    return value if isinstance(value, int) else None
