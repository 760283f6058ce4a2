"""Databases as rocprofv3 lays them out: tables of a set by its suffix, and views over all sets without one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TABLES: Mapping[str, str] = {
    "metadata": "id INTEGER PRIMARY KEY, tag TEXT, value TEXT",
    "string": "id INTEGER PRIMARY KEY, guid TEXT, string TEXT",
    "info_process": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER, command TEXT",
    "info_thread": "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, ppid INTEGER, pid INTEGER, tid INTEGER, name TEXT",
    "info_agent": (
        "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER, "
        "logical_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT, extdata JSONB"
    ),
    "info_kernel_symbol": (
        "id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT, sgpr_count INTEGER, "
        "arch_vgpr_count INTEGER, accum_vgpr_count INTEGER"
    ),
    "event": (
        "id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, "
        "correlation_id INTEGER, extdata JSONB"
    ),
    "region": (
        'id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, "end" BIGINT, '
        "name_id INTEGER, event_id INTEGER"
    ),
    "kernel_dispatch": (
        "id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, "
        'kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER, start BIGINT, "end" BIGINT, '
        "group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, "
        "grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER"
    ),
    "memory_copy": (
        'id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, "end" BIGINT, '
        "name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, queue_id INTEGER, "
        "stream_id INTEGER, event_id INTEGER"
    ),
}
PID, TID = 4242, 4243


class Recording:
    """A recording that grows by calls and what they launch. `left_out`: tables that are not made."""

    def __init__(
        self,
        folder: Path,
        *,
        suffix: str = "_00aa_11bb",
        product: str | None = "AMD Instinct MI300X",
        left_out: str = "",
    ) -> None:
        self.path = folder / "4242_results.db"
        self._suffix, self._left_out = suffix, left_out
        self.db = sqlite3.connect(self.path)
        for name, columns in _TABLES.items():
            if name != left_out:
                self.db.execute(f'CREATE TABLE "rocpd_{name}{suffix}" ({columns})')
                if suffix:
                    self.db.execute(f'CREATE VIEW "rocpd_{name}" AS SELECT * FROM "rocpd_{name}{suffix}"')  # noqa: S608
        self._ids: dict[tuple[str, str], int] = {}
        self._stack = 0
        self.add("metadata", tag="schema_version", value="3")
        self.process = self.add("info_process", nid=1, pid=PID, command="python train.py --key SECRET")
        self.thread = self.add("info_thread", nid=1, pid=self.process, tid=TID)
        self.add("info_agent", type="CPU", type_index=0, name="AMD EPYC")
        facts = json.dumps({"cu_count": 304, "wave_front_size": 64})
        about = {"name": "gfx942", "product_name": product, "extdata": facts}
        self.gpu = self.add("info_agent", type="GPU", absolute_index=1, type_index=0, **about)

    def add(self, table: str, **columns: Any) -> int:
        if table == self._left_out:
            return 1
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        done = self.db.execute(
            f'INSERT INTO "rocpd_{table}{self._suffix}" ({names}) VALUES ({marks})',  # noqa: S608
            [*columns.values()],
        )
        return int(done.lastrowid or 0)

    def text(self, text: str) -> int:
        key = "string", text
        if key not in self._ids:
            self._ids[key] = self.add("string", string=text)
        return self._ids[key]

    def event(self, category: str, stack: int, **extra: Any) -> int:
        return self.add(
            "event", category_id=self.text(category), stack_id=stack, correlation_id=0, extdata=json.dumps(extra)
        )

    def call(self, name: str, start: int, dur: int, category: str = "HIP_RUNTIME_API_EXT", **extra: Any) -> int:
        """Add a call, or a range of roctx; return its number."""
        self._stack += 1
        times = {"start": start, "end": start + dur, "name_id": self.text(name)}
        where = {"nid": 1, "pid": self.process, "tid": self.thread}
        self.add("region", **where, **times, event_id=self.event(category, self._stack, **extra))
        return self._stack

    def range(self, message: str, start: int, dur: int) -> None:
        self.call("roctxThreadRangeA", start, dur, "MARKER_CORE_RANGE_API", message=message)

    def kernel(self, name: str, start: int, dur: int, stack: int, *, stream: int = 3) -> None:
        key = "symbol", name
        if key not in self._ids:
            self._ids[key] = self.add(
                "info_kernel_symbol", kernel_name=f"{name}.kd", display_name=name, arch_vgpr_count=32
            )
        sizes = {f"workgroup_size_{a}": n for a, n in zip("xyz", (256, 1, 1), strict=True)}
        sizes |= {f"grid_size_{a}": n for a, n in zip("xyz", (1000, 2, 1), strict=True)}
        where = {"nid": 1, "pid": self.process, "tid": self.thread, "agent_id": self.gpu}
        where |= {"queue_id": 7, "stream_id": stream, "group_segment_size": 1024}
        times = {"start": start, "end": start + dur, "event_id": self.event("KERNEL_DISPATCH", stack)}
        self.add("kernel_dispatch", **where, **sizes, **times, kernel_id=self._ids[key])

    def copy(self, direction: str, start: int, dur: int, size: int, stack: int) -> None:
        to = {"dst_agent_id": self.gpu} if direction.endswith("DEVICE") else {"src_agent_id": self.gpu}
        where = {"nid": 1, "pid": self.process, "tid": self.thread, "queue_id": 7, "stream_id": 3, "size": size, **to}
        times = {"start": start, "end": start + dur, "event_id": self.event("MEMORY_COPY", stack)}
        self.add("memory_copy", **where, **times, name_id=self.text(f"MEMORY_COPY_{direction}"))

    def written(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


def two_steps(folder: Path, **options: Any) -> Recording:
    """Two steps: a copy, a kernel after a pause of the host, and a graph of two kernels."""
    run = Recording(folder, **options)
    for step, at in enumerate((1_000_000, 2_000_000)):
        run.range(f"step {step}", at, 900_000)
        run.range("aten::add, seq = 7", at + 90_000, 30_000)
        run.copy("HOST_TO_DEVICE", at + 20_000, 10_000, 1 << 20, run.call("hipMemcpyAsync", at + 5_000, 9_000))
        name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
        run.kernel(name, at + 120_000, 50_000, run.call("hipLaunchKernel", at + 100_000, 8_000))
        replay = run.call("hipGraphLaunch", at + 200_000, 20_000)
        run.kernel("Cijk_Alik_Bljk_HB_MT128x128x32", at + 230_000, 100_000, replay)
        run.kernel("ncclDevKernel_Generic", at + 330_500, 40_000, replay)
    return run
