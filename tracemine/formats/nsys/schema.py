"""The tables and columns of an Nsight Systems export that tracemine reads: a closed list, whatever a file holds.

Schemas from 2021 (no version) to 3.25 (2026.2) differ in which of these they have; a column or a table that is not
there reads as nothing. Names of a file's own never get into a query.
"""

from __future__ import annotations

import re

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NVTX = "NVTX_EVENTS"
NVTX_ENTRIES = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
STRINGS = "StringIds"
GPU = "TARGET_INFO_GPU"
CUDA_DEVICE = "TARGET_INFO_CUDA_DEVICE"
SESSION_START = "TARGET_INFO_SESSION_START_TIME"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
EXPORT = "META_DATA_EXPORT"
OLD_EXPORT = "EXPORT_META_DATA"  # until schema 3.1

_ON_DEVICE = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_LAUNCH = (
    *("registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("staticSharedMemory", "dynamicSharedMemory"),
)

# Columns of integers, a table.
NUMBERS: dict[str, tuple[str, ...]] = {
    KERNEL: (*_ON_DEVICE, "demangledName", "shortName", *_LAUNCH, "graphId", "graphNodeId"),
    MEMCPY: (*_ON_DEVICE, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"),
    MEMSET: (*_ON_DEVICE, "bytes", "memKind", "graphNodeId"),
    GRAPH: (*_ON_DEVICE, "graphId"),
    RUNTIME: ("start", "end", "eventClass", "globalTid", "correlationId", "nameId"),
    SYNC: (*_ON_DEVICE, "syncType"),
    NVTX: ("start", "end", "eventType", "globalTid", "endGlobalTid", "textId", "domainId"),
    NVTX_ENTRIES: ("domainId", "schemaId", "type", "offset"),
    STRINGS: ("id",),
    GPU: (
        *("id", "cuDevice", "totalMemory", "smCount", "threadsPerWarp", "maxWarpsPerSm", "maxRegistersPerSm"),
        *("maxShmemPerSm", "computeMajor", "computeMinor"),
    ),
    CUDA_DEVICE: ("gpuId", "cudaId", "pid"),
    SESSION_START: ("utcEpochNs",),
    DIAGNOSTICS: (),
    EXPORT: (),
    OLD_EXPORT: (),
}
# Columns of text, a table.
TEXTS: dict[str, tuple[str, ...]] = {
    NVTX: ("text",),
    NVTX_ENTRIES: ("name",),
    STRINGS: ("value",),
    GPU: ("name",),
    DIAGNOSTICS: ("text",),
    EXPORT: ("name", "value"),
    OLD_EXPORT: ("name", "value"),
}
PAYLOAD = "binaryData"  # of NVTX
ACTIVITIES = (KERNEL, MEMCPY, MEMSET, GRAPH)
LARGE = (*ACTIVITIES, RUNTIME, SYNC, NVTX, STRINGS)  # progress is measured by their rows

# A database or a folder with one of these is an export.
_TELLING = re.compile(r"CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS|TARGET_INFO_\w+|META_DATA_EXPORT|EXPORT_META_DATA")


def is_export(tables: set[str]) -> bool:
    """Return whether tables of these names are an Nsight Systems export.

    >>> is_export({"StringIds", "NVTX_EVENTS"}), is_export({"users", "StringIds"})
    (True, False)
    """
    return any(_TELLING.fullmatch(table) for table in tables)


# Enumerations. Exports since schema 3.0 say them in tables of their own; older ones do not.
COPY_KINDS = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD",
    12: "DtoH",
    13: "DtoD",  # unified memory
}
UNIFIED_MEMORY = (11, 12, 13)
MEMORIES = {0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device", 6: "managed"}
SYNC_KINDS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
DRIVER_CALL = 1  # eventClass of a call into the driver; 0: the runtime

PUSH_POP, START_END, DOMAIN = (59, 70), (60, 71), 75  # eventType of NVTX_EVENTS
NVTX_WITHOUT_ROWS = {33: "category", 34: "mark", 75: "domain", 76: "domain", 97: "name", 98: "name", 99: "name"}

NO_STREAM = 0xFFFFFFFF  # a synchronisation of a whole context
