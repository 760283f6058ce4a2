"""Small Nsight Systems exports, made by schema version: which tables and columns each had is written down here."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracemine.formats import open_trace
from tracemine.timeline import Timeline

# nsys → the schema it exported; "" is 2021 and before, which said no version.
VERSIONS = {
    "": "",
    "2021.5.2": "2.7.0",
    "2022.1.3": "2.9.1",
    "2022.4.2": "3.0.0",
    "2023.3.1": "3.4.0",
    "2024.4.1": "3.11.2",
    "2025.3.1": "3.20.2",
    "2025.5.2": "3.24.0",
    "2026.2.1": "3.25.0",
}
PROCESS = 281484170625024
THREAD = PROCESS | 548
_HEAD = ("start", "end", "deviceId", "contextId", "greenContextId", "streamId", "correlationId", "globalPid")
_SINCE = {"greenContextId": (3, 11), "mangledName": (2, 9), "graphId": (3, 24), "virtualAddress": (2, 9),
          "copyCount": (3, 20), "globalTid": (0,), "computeMajor": (2, 9),
          "binaryData": (3, 11)}  # fmt: skip
COLUMNS: dict[str, Sequence[str]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *_HEAD, "demangledName", "shortName", "mangledName", "registersPerThread",
        "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory",
        "graphNodeId", "graphId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        *_HEAD, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId", "virtualAddress", "copyCount",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_HEAD, "value", "bytes", "graphNodeId", "memKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_HEAD, "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (*_HEAD, "syncType", "eventId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    "NVTX_EVENTS": ("start", "end", "eventType", "rangeId", "text", "globalTid", "endGlobalTid", "textId", "domainId",
                    "binaryData"),
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": ("domainId", "schemaId", "idx", "type", "name", "offset"),
    "StringIds": ("id", "value"),
    "ThreadNames": ("nameId", "priority", "globalTid"),
    "TARGET_INFO_GPU": (
        "vmId", "id", "name", "totalMemory", "smCount", "cuDevice", "threadsPerWarp", "maxWarpsPerSm",
        "maxRegistersPerSm", "maxShmemPerSm", "computeMajor", "computeMinor",
    ),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime", "localTime"),
    "DIAGNOSTIC_EVENT": ("timestamp", "severity", "text", "globalPid"),
    "META_DATA_EXPORT": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "EXPORT_META_DATA": ("name", "value"),
    "TARGET_INFO_SYSTEM_ENV": ("globalVid", "devStateName", "name", "nameEnum", "value"),
    "ProcessStreams": ("globalPid", "filenameId", "contentId"),
}  # fmt: skip
_TEXT_COLUMNS = {"text", "binaryData", "value", "name", "utcTime", "localTime", "devStateName"}


@dataclass
class Export:
    """Rows to be written, a table; what a column's row does not say is null."""

    nsys: str = "2025.3.1"
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)

    @property
    def schema(self) -> str:
        """The schema version, "" where it is said nowhere."""
        return VERSIONS[self.nsys]

    def text(self, value: str) -> int:
        """The id of a text."""
        return self.texts.setdefault(value, len(self.texts) + 1)

    def add(self, table: str, **row: Any) -> Export:
        """One row of a table."""
        self.rows.setdefault(table, []).append(row)
        return self

    def kernel(self, start: int, end: int, correlation: int | None = 1, name: str = "k", **more: Any) -> Export:
        """A kernel on device 0, stream 7."""
        row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
        row |= {"globalPid": PROCESS, "demangledName": self.text(name), "shortName": self.text(name)}
        sizes = {"gridX": 4, "gridY": 1, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1, "registersPerThread": 32}
        shared = {"staticSharedMemory": 16, "dynamicSharedMemory": 1024}
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", **{**row, **sizes, **shared, **more})

    def call(
        self, start: int, end: int, correlation: int = 1, name: str = "cudaLaunchKernel_v7000", **more: Any
    ) -> Export:
        """A call of the runtime."""
        row = {"start": start, "end": end, "eventClass": 0, "globalTid": THREAD, "correlationId": correlation}
        return self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **{**row, "nameId": self.text(name), "returnValue": 0, **more})

    def range(self, text: str, start: int, end: int | None, **more: Any) -> Export:
        """A push/pop range."""
        row = {"start": start, "end": end, "eventType": 59, "text": text, "globalTid": THREAD, "domainId": 0}
        return self.add("NVTX_EVENTS", **{**row, **more})

    def op(self, number: int, name: str, start: int, sizes: str, makers: str, kernels: int = 1) -> Export:
        """An operator as emit_nvtx(record_shapes=True) writes it, ten ns long, with a kernel that it launches."""
        self.range(f"{name}, op_id = {number}, sizes = {sizes}, input_op_ids = {makers}", start, start + 10)
        for at in range(kernels):
            self.call(start + 2 + at, start + 3 + at, 100 * number + at)
            self.kernel(start + 1000, start + 1005, 100 * number + at, name=f"kernel of {name}")
        return self

    def write(self, path: Path) -> Path:
        """The SQLite database."""
        with sqlite3.connect(path) as database:
            for table, (columns, rows) in self.tables().items():
                typed = ", ".join(f'"{c}" {"TEXT" if c in _TEXT_COLUMNS else "INTEGER"}' for c in columns)
                database.execute(f'CREATE TABLE "{table}" ({typed})')
                marks = ", ".join("?" * len(columns))
                database.executemany(
                    f'INSERT INTO "{table}" VALUES ({marks})', [[r.get(c) for c in columns] for r in rows]
                )
        database.close()
        return path

    def folder(self, path: Path, kind: str) -> Path:
        """The parquetdir or arrowdir export, with the unsigned types that nsys gives its columns."""
        path.mkdir()
        for table, (columns, rows) in self.tables().items():
            arrays = [pa.array([r.get(c) for r in rows], _arrow_type(c)) for c in columns]
            data = pa.Table.from_arrays(arrays, names=list(columns))
            if kind == "parquetdir":
                pq.write_table(data, path / f"{table}.parquet")
            else:
                with pa.OSFile(str(path / f"{table}.arrow"), "wb") as file, pa.ipc.new_stream(file, data.schema) as out:
                    out.write_table(data)
        return path

    def tables(self) -> Mapping[str, tuple[list[str], list[dict[str, Any]]]]:
        """Tables with the columns of the schema's version, in an order that is not alphabetical."""
        rows = dict(self.rows)
        rows["StringIds"] = [{"id": i, "value": text} for text, i in self.texts.items()] + rows.get("StringIds", [])
        if self.schema:
            about = "META_DATA_EXPORT" if self._at_least((3, 4)) else "EXPORT_META_DATA"
            said = {"EXPORT_PRODUCT_VERSION": self.nsys, "EXPORT_SCHEMA_VERSION": self.schema}
            rows[about] = rows.get(about, []) + [{"name": name, "value": value} for name, value in said.items()]
        return {table: ([c for c in COLUMNS[table] if self._has(table, c)], of) for table, of in rows.items()}

    def _has(self, table: str, column: str) -> bool:
        return column not in _SINCE or table.endswith("GRAPH_TRACE") or self._at_least(_SINCE[column])

    def _at_least(self, version: Sequence[int]) -> bool:
        own = [int(part) for part in self.schema.split(".")] if self.schema else [1]
        return own >= list(version)


def _arrow_type(column: str) -> pa.DataType:
    if column in _TEXT_COLUMNS:
        return pa.large_string()
    return pa.int64() if column in ("start", "end", "utcEpochNs", "timestamp") else pa.uint64()


def timeline(folder: Path, export: Export) -> Timeline:
    """The timeline of an export's database."""
    path = folder / "t.sqlite"
    path.unlink(missing_ok=True)
    return open_trace(export.write(path))
