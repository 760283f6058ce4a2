"""Tables that `nsys stats --format csv` wrote, for where they are all that is left of a recording.

Three of its reports are timelines: `cuda_gpu_trace` (kernels and copies, with their streams), `cuda_kern_exec_trace`
(kernels with their launches) and `nvtx_gpu_proj_trace` (NVTX ranges around launches). One call of nsys writes them side
by side as PREFIX_REPORT.csv, so those with the prefix of the one that was given are read with it. Sizes in these
tables are rounded to thousandths of a megabyte: they are left out.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from io import BufferedReader, TextIOWrapper
from pathlib import Path

import numpy as np

from tracemine.errors import InputError, Location
from tracemine.files import opened
from tracemine.formats.format import Progress
from tracemine.formats.nsys import schema
from tracemine.formats.nsys.assemble import assemble
from tracemine.formats.nsys.tables import Numbers, nothing
from tracemine.formats.source import FileSource
from tracemine.timeline import Timeline
from tracemine.timeline.arrow import MISSING

GPU_TRACE, KERNEL_LAUNCHES, RANGES = "cuda_gpu_trace", "cuda_kern_exec_trace", "nvtx_gpu_proj_trace"
_TIME = re.compile(r"(.+) \((ns|us|ms|s)\)")
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
# What the header of each report holds, without units; it may stand below lines that nsys printed.
_HEADERS = {
    GPU_TRACE: {"Start", "Duration", "CorrId", "Name"},
    KERNEL_LAUNCHES: {"API Start", "API Dur", "Kernel Start", "Kernel Dur", "Kernel Name"},
    RANGES: {"Name", "Projected Start", "Orig Start", "Orig Duration"},
}
_DEVICE = re.compile(r"(.*) \((\d{1,6})\)")
_OPERATION = re.compile(r"\[CUDA (?:(Unified Memory )?memcpy (\S+)|memset)\]")
_COPIES = {
    "Host-to-Device": 1, "Device-to-Host": 2, "Device-to-Device": 8, "Host-to-Host": 9, "Peer-to-Peer": 10,
    "HtoD": 1, "DtoH": 2, "DtoD": 8, "HtoH": 9, "PtoP": 10,
}  # fmt: skip
_MEMORY_NUMBERS = {name: number for number, name in reversed(schema.MEMORIES.items())}
_ONLY_STATS = (
    "Tables of nsys stats lack sizes, synchronisations, ranges without GPU work and the clock: better pass what "
    "nsys export --type sqlite writes."
)
_FURTHEST_NS = 1 << 62
_UNREADABLE = "line that cannot be read"
_PROCESS_SHIFT = 24

_LAUNCH = {
    "GrdX": "gridX", "GrdY": "gridY", "GrdZ": "gridZ", "BlkX": "blockX", "BlkY": "blockY", "BlkZ": "blockZ",
    "Reg/Trd": "registersPerThread", "Ctx": "contextId", "Strm": "streamId",
}  # fmt: skip

Row = dict[str, str]


def read_stats(source: FileSource, progress: Progress | None) -> Timeline:
    """Return the timeline of tables of `nsys stats`.

    Raises InputError where there is none in the file.
    """
    if source.compressed:
        raise InputError(
            "is a gzipped table of nsys stats", where=Location(source.path), hint="gunzip it and pass the result"
        )
    path = Path(source.path)
    return assemble(Stats.of(path), path.name)


class Stats:
    """`Tables` made of the rows of these reports.

    Raises InputError where the file is none of them.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.repaired = Counter[str]()
        self.dropped = Counter[str]()
        self.warnings: list[str] = [_ONLY_STATS]
        self._rows: dict[str, list[dict[str, int]]] = {}
        self._strings: dict[str, int] = {}
        self._gpus: dict[int, str] = {}

    @staticmethod
    def of(path: Path) -> Stats:
        """Return the reports that lie next to `path` under its prefix, and it."""
        stats = Stats(str(path))
        report = _report_of(path)
        found = {report: path}
        suffix = f"_{report}.csv"
        if path.name.endswith(suffix):
            for other in _HEADERS:
                beside = path.with_name(path.name.removesuffix(suffix) + f"_{other}.csv")
                if beside.exists():
                    found[other] = beside
        launches = stats._launches(found[KERNEL_LAUNCHES]) if KERNEL_LAUNCHES in found else {}
        if GPU_TRACE in found:
            stats._activities(found[GPU_TRACE], launches)
        else:
            stats._rows[schema.KERNEL] = list(launches.values())
        if RANGES in found:
            stats._ranges(found[RANGES])
        return stats

    @property
    def names(self) -> set[str]:
        """Names of the tables that are there."""
        return {table for table, rows in self._rows.items() if rows}

    def columns(self, table: str) -> set[str]:
        """Return names of a table's columns; empty where it is not there."""
        return {name for row in self._rows.get(table, []) for name in row}

    def numbers(self, table: str) -> Numbers:
        """Return the table's columns of `schema.NUMBERS`, all of one length."""
        if table == schema.STRINGS:
            return {"id": np.array(list(self._strings.values()), np.int64)}
        if table == schema.GPU:
            return nothing(schema.NUMBERS[table], len(self._gpus)) | {"cuDevice": np.array(list(self._gpus), np.int64)}
        rows = self._rows.get(table, [])
        return {name: np.array([row.get(name, MISSING) for row in rows], np.int64) for name in schema.NUMBERS[table]}

    def texts(self, table: str) -> dict[str, list[str | None]]:
        """Return the table's columns of `schema.TEXTS`, in the same order of rows."""
        if table == schema.STRINGS:
            return {"value": list(self._strings)}
        if table == schema.GPU:
            return {"name": list(self._gpus.values())}
        return {name: [None] * len(self._rows.get(table, [])) for name in schema.TEXTS.get(table, ())}

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _launches(self, path: Path) -> dict[tuple[int, int, int], dict[str, int]]:
        """Return kernels by start, duration and name, with their launches among the calls; one call may launch many."""
        kernels: dict[tuple[int, int, int], dict[str, int]] = {}
        calls: dict[tuple[int, ...], dict[str, int]] = {}

        def take(row: Row) -> None:
            process, thread = _number(row, "PID") << _PROCESS_SHIFT, _number(row, "TID")
            start, function = _number(row, "API Start"), self._string(row["API Function"])
            call = {"start": start, "end": start + _number(row, "API Dur"), "nameId": function, "eventClass": 0}
            call |= {"globalTid": process | thread, "correlationId": len(calls) + 1}
            # Runtime calls have lost their versions here, driver calls never had one: cuLaunchKernel, cudaLaunchKernel.
            call["eventClass"] = 0 if row["API Function"].startswith("cuda") else schema.DRIVER_CALL
            call = calls.setdefault((start, call["end"], function, call["globalTid"]), call)
            kernel = self._timed(row, "Kernel Start", "Kernel Dur") | {"globalPid": process}
            kernel |= {"correlationId": call["correlationId"], "deviceId": _number(row, "DevId")}
            kernel |= {"demangledName": self._string(row["Kernel Name"])}
            for sizes, title in (("grid", "GridXYZ"), ("block", "BlockXYZ")):
                values = row.get(title, "").split()
                if len(values) == 3:
                    kernel |= {f"{sizes}{axis}": int(value) for axis, value in zip("XYZ", values, strict=True)}
            kernels[(kernel["start"], kernel["end"], kernel["demangledName"])] = kernel

        self._each(path, KERNEL_LAUNCHES, take)
        self._rows[schema.RUNTIME] = list(calls.values())
        return kernels

    def _activities(self, path: Path, launches: dict[tuple[int, int, int], dict[str, int]]) -> None:
        def take(row: Row) -> None:
            activity = self._timed(row, "Start", "Duration")
            activity |= {name: _number(row, title) for title, name in _LAUNCH.items() if row.get(title, "").strip()}
            if device := _DEVICE.fullmatch(row.get("Device", "")):
                activity["deviceId"] = int(device[2])
                self._gpus.setdefault(int(device[2]), device[1])
            operation = _OPERATION.fullmatch(row["Name"])
            table = schema.KERNEL if operation is None else schema.MEMCPY if operation[2] else schema.MEMSET
            if operation is None:
                activity["demangledName"] = self._string(row["Name"])
                launch = launches.get((activity["start"], activity["end"], activity["demangledName"]), {})
                activity |= {name: launch[name] for name in ("globalPid", "correlationId") if name in launch}
            elif operation[2]:
                activity["copyKind"] = _COPIES.get(operation[2], 0)
                activity |= _memories(row, srcKind="SrcMemKd", dstKind="DstMemKd")
            else:
                activity |= _memories(row, memKind="DstMemKd") or _memories(row, memKind="SrcMemKd")
            self._rows.setdefault(table, []).append(activity)

        self._each(path, GPU_TRACE, take)

    def _ranges(self, path: Path) -> None:
        domains: dict[str, int] = {"": 0}

        def take(row: Row) -> None:
            domain, _, text = row["Name"].partition(":")
            kind = schema.PUSH_POP[0] if row.get("Style", "PushPop") == "PushPop" else schema.START_END[0]
            thread = _number(row, "PID") << _PROCESS_SHIFT | _number(row, "TID")
            times = self._timed(row, "Orig Start", "Orig Duration")
            about = {"eventType": kind, "globalTid": thread, "domainId": domains.setdefault(domain, len(domains))}
            self._rows.setdefault(schema.NVTX, []).append(times | about | {"textId": self._string(text)})

        self._each(path, RANGES, take)

    def _timed(self, row: Row, start: str, duration: str) -> dict[str, int]:
        begin = _number(row, start)
        return {"start": begin, "end": begin + _number(row, duration)}

    def _each(self, path: Path, report: str, take: Callable[[Row], None]) -> None:
        """Give every row below the header, times in ns; what cannot be read is dropped and counted."""
        for row in _rows_of(path, report):
            try:
                for title in [title for title in row if _TIME.fullmatch(title)]:
                    found = _TIME.fullmatch(title)
                    value = row.pop(title)
                    if found and value.strip():
                        row[found[1]] = str(int(Decimal(value) * _NS[found[2]]))
                take(row)
            except (ArithmeticError, ValueError, KeyError):
                self.dropped[f"{report}: {_UNREADABLE}"] += 1


def _memories(row: Row, **columns: str) -> dict[str, int]:
    words = {name: row.get(title, "").strip().lower() for name, title in columns.items()}
    return {name: _MEMORY_NUMBERS[word] for name, word in words.items() if word in _MEMORY_NUMBERS}


def _number(row: Row, title: str) -> int:
    number = int(row[title])
    if abs(number) >= _FURTHEST_NS:
        raise ValueError(title)
    return number


def _report_of(path: Path) -> str:
    for report in _HEADERS:
        if next(_rows_of(path, report), None) is not None:
            return report
    raise InputError(
        "holds no row of a timeline of nsys stats",
        where=Location(str(path)),
        hint=f"pass what nsys stats --report {GPU_TRACE} --format csv wrote, or better the export: "
        "nsys export --type sqlite",
    )


def _rows_of(path: Path, report: str) -> Iterator[Row]:
    with TextIOWrapper(BufferedReader(opened(path)), encoding="utf-8-sig", errors="replace", newline="") as file:
        header: list[str] | None = None
        try:
            for line in csv.reader(file):
                if header is None:
                    plain = {found[1] if (found := _TIME.fullmatch(title)) else title for title in line}
                    if _HEADERS[report] <= plain:
                        header = line
                elif line:
                    yield dict(zip(header, line, strict=False))
        except csv.Error:
            raise InputError(
                "is a table (CSV) that cannot be read", where=Location(str(path)), hint="let nsys stats write it again"
            ) from None
