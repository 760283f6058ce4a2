"""Small timelines from short lists, for tests of everything after the formats.

    trace = Trace(resolution=1)
    trace.step(0, 1000)
    trace.kernel("add", 100, 5, launch=(80, 6), op="aten::neg", shapes=[[4]], dtypes=["float"])
    trace.call("cudaStreamSynchronize", 90, 30)
    timeline = trace.timeline()

Times are nanoseconds. Rows are put into the documented order; what is not given is null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tracemine.timeline import TABLES, Meta, Timeline


class Trace:
    """Collects rows by name of table; `timeline()` sorts them, renumbers what refers to them, and fills nulls."""

    def __init__(self, resolution: int = 1, **meta: Any) -> None:
        self.meta = Meta(
            tracemine_version="test", source="test.json", format="kineto", time_resolution_ns=resolution, **meta
        )
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def add(self, table: str, **row: Any) -> dict[str, Any]:
        """Any row. A `*_row` may be the dict that an earlier call returned."""
        self.rows[table].append(row)
        return row

    def step(self, start: int, dur: int, number: int | None = None) -> dict[str, Any]:
        number = len(self.rows["steps"]) if number is None else number
        return self.add("steps", name=f"ProfilerStep#{number}", number=number, start_ns=start, dur_ns=dur, pid=1, tid=1)

    def frame(self, frame: str, parent: dict[str, Any] | None = None, **columns: Any) -> dict[str, Any]:
        """One Python frame; `file.py(12): forward` is taken apart."""
        if frame.endswith(")") or "(" not in frame:
            return self.add("stacks", frame=frame, parent_row=parent, **columns)
        file, rest = frame.split("(", 1)
        line, function = rest.split("): ", 1)
        return self.add(
            "stacks", frame=frame, parent_row=parent, file=file, line=int(line), function=function, **columns
        )

    def op(
        self,
        name: str,
        start: int,
        dur: int,
        shapes: Any = None,
        dtypes: Any = None,
        strides: Any = None,
        concrete: Any = None,
        tid: int = 1,
        **columns: Any,
    ) -> dict[str, Any]:
        recorded = {
            "input_shapes": shapes,
            "input_dtypes": dtypes,
            "input_strides": strides,
            "concrete_inputs": concrete,
        }
        texts = {
            key: None if value is None else json.dumps(value, separators=(",", ":")) for key, value in recorded.items()
        }
        row = {"kind": "op", "name": name, "start_ns": start, "dur_ns": dur, "pid": 1, "tid": tid}
        return self.add("ops", **(row | texts | columns))

    def call(
        self, name: str, start: int, dur: int, tid: int | None = 1, kind: str = "runtime", **columns: Any
    ) -> dict[str, Any]:
        pid = None if tid is None else 1
        return self.add("api", kind=kind, name=name, start_ns=start, dur_ns=dur, pid=pid, tid=tid, **columns)

    def kernel(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        launch: tuple[int, int] | dict[str, Any] | None = None,
        launch_name: str = "cudaLaunchKernel",
        op: str | dict[str, Any] | None = None,
        shapes: Any = None,
        dtypes: Any = None,
        strides: Any = None,
        concrete: Any = None,
        tid: int = 1,
        module: str | None = None,
        stack: dict[str, Any] | None = None,
        **columns: Any,
    ) -> dict[str, Any]:
        """One activity, with the call that launched it and the operator around that call when they are given."""
        if isinstance(op, str):
            around = (start, 1) if launch is None or isinstance(launch, dict) else (launch[0] - 1, launch[1] + 2)
            op = self.op(op, *around, shapes, dtypes, strides, concrete, tid, module=module, stack_row=stack)
        if isinstance(launch, tuple):
            launch = self.call(launch_name, *launch, tid=tid, op_row=op, module=module, stack_row=stack)
        values: dict[str, Any] = {"kind": "kernel", "device": 0, "stream": 7}
        values |= {"name": name, "start_ns": start, "dur_ns": dur, "launch_row": launch, "op_row": op}
        return self.add("activities", **(values | columns))

    def copy(
        self, kind: str, start: int, dur: int, size: int, *, pageable: bool = False, **columns: Any
    ) -> dict[str, Any]:
        """One memcpy, such as `HtoD`; the host's side is pinned, or pageable."""
        host = "pageable" if pageable else "pinned"
        memory = {"H": host, "D": "device"}
        values: dict[str, Any] = {"launch_name": "cudaMemcpyAsync", "bytes": size, "copy_kind": kind} | columns
        values |= {"source_memory": memory[kind[0]], "target_memory": memory[kind[-1]]}
        return self.kernel(f"Memcpy {kind}", start, dur, kind="memcpy", **values)

    def timeline(self) -> Timeline:
        """The timeline of the rows so far."""
        orders = {"ops": lambda row: (row["start_ns"], -row["dur_ns"])} | dict.fromkeys(
            ("stacks", "tensors"), lambda row: 0
        )
        orders["collectives"] = lambda row: row["activity_row"]["start_ns"]
        placed = {
            name: sorted(rows, key=orders.get(name, lambda row: row["start_ns"])) for name, rows in self.rows.items()
        }
        number = {id(row): at for rows in placed.values() for at, row in enumerate(rows)}
        return Timeline(meta=self.meta, **{name: table(name, rows, number) for name, rows in placed.items() if rows})


def table(name: str, rows: list[dict[str, Any]], number: Mapping[int, int] | None = None) -> pa.Table:
    """One table of a timeline; what a row does not say is null. number: of a row that another names, by its `id`."""
    columns = []
    for column in TABLES[name].columns:
        values = [row.get(column.name) for row in rows]
        if number is not None and column.name.endswith("_row"):
            values = [number[id(value)] if isinstance(value, dict) else value for value in values]
        empty = values.count(None) == len(values)
        columns.append(pa.nulls(len(rows), column.type) if empty else pa.array(values, column.type))
    return pa.Table.from_arrays(columns, schema=TABLES[name].schema)
