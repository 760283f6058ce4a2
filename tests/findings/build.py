"""Small timelines, their rows and hand-made matches for the tests of findings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from tracemine.errors import Location
from tracemine.matching import find as engine_find
from tracemine.matching.rule import Matches, Rule
from tracemine.rows import Categories, Rows, row_sets
from tracemine.timeline import TABLES, Meta, RecordedDevice, Timeline

H200 = RecordedDevice(ordinal=0, name="NVIDIA H200", sm_count=132)
BIG = (4096, 8192)  # 67 MB in bfloat16: one pass takes about 32 µs on an H200


def kernel(
    start_ns: int,
    dur_ns: int,
    op: str | None = "aten::mul",
    shapes: Sequence[Sequence[int]] | None = (BIG, BIG),
    dtypes: Sequence[str] | None = None,
    module: str | None = None,
    queued_ns: int | None = 50_000,
    **more: Any,
) -> dict[str, Any]:
    """One kernel with an operator and a launch of its own; `queued_ns` before its start the launch had returned."""
    return {
        "kind": "kernel",
        "name": "void at::native::vectorized_elementwise_kernel<4, Functor>(int)",
        "start_ns": start_ns,
        "dur_ns": dur_ns,
        "device": 0,
        "stream": 7,
        "op": op,
        "shapes": shapes,
        "dtypes": dtypes,
        "module": module,
        "queued_ns": queued_ns,
        **more,
    }


def timeline_of(
    kernels: Sequence[dict[str, Any]],
    steps: Sequence[tuple[int, int]] = (),
    devices: Sequence[RecordedDevice] = (H200,),
) -> Timeline:
    """A timeline of kernels as `kernel` makes them, in order of start. Those with one `call` share an operator."""
    ordered = sorted(kernels, key=lambda k: (k["start_ns"], k["device"], k["stream"]))
    ops: list[dict[str, Any]] = []
    api: list[dict[str, Any]] = []
    activities: list[dict[str, Any]] = []
    calls: dict[Any, int] = {}
    for k in ordered:
        row = {name: value for name, value in k.items() if name in TABLES["activities"].schema.names}
        if k["op"] is None:
            row["unowned_reason"] = "outside_any_op"
        else:
            call = k.get("call", len(activities))
            if call not in calls:
                calls[call] = len(ops)
                ops.append(_op(k))
            row |= {"op_row": calls[call], "owner_evidence": "nesting"}
        if k["queued_ns"] is not None:
            row["launch_row"] = len(api)
            api.append(
                {
                    "kind": "runtime",
                    "name": "cudaLaunchKernel",
                    "start_ns": k["start_ns"] - k["queued_ns"] - 100,
                    "dur_ns": 100,
                }
            )
        activities.append(row)
    marks = [{"name": f"ProfilerStep#{i}", "number": i, "start_ns": a, "dur_ns": b} for i, (a, b) in enumerate(steps)]
    meta = Meta(tracemine_version="0", source="t.json", format="kineto", devices=tuple(devices))
    return Timeline(
        meta=meta,
        activities=table("activities", activities),
        ops=table("ops", ops),
        api=table("api", api),
        steps=table("steps", marks),
    )


def rows_of_timeline(timeline: Timeline, causes: Sequence[str] = ("host_bound",)) -> dict[str, Rows]:
    """Both row sets; the gaps get the given causes in turn."""
    rows = row_sets(timeline)
    gaps = rows["gaps"]
    codes = np.resize(np.arange(len(causes), dtype=np.int32), gaps.count)
    return rows | {"gaps": replace(gaps, columns=gaps.columns | {"cause": Categories(codes, tuple(causes))})}


def rule(id: str = "chain", saving: str = "fuse", **more: Any) -> Rule:
    """A rule whose matches are made by hand: only what findings read of it counts."""
    return Rule(
        id=id,
        **{
            "title": f"Title of {id}",
            "status": "stable",
            "what": "what",
            "why": "why",
            "fix": "fix",
            "rows": "gaps" if saving == "close_gap" else "activities",
            "priority": 100,
            "saving": saving,
            "call": "operator",
            "group_by": ("ops", "shapes", "dtype", "module"),
            "partition_by": ("device", "stream"),
            "order_by": ("start_ns",),
            "pattern": None,
            "after_match": "skip past last row",
            "define": {},
            "measures": (),
            "where": Location("rule.toml"),
            **more,
        },
    )


_HAND_MADE: dict[str, list[list[int]]] = {}


def matches(of: Rule, *members: Sequence[int]) -> Matches:
    """Matches of a hand-made rule that cover the given rows."""
    _HAND_MADE[of.id] = [list(each) for each in members]
    return _matches(of, _HAND_MADE[of.id])


def matched(of: Rule, rows: Rows, *, without: Any) -> Matches:
    """What stands in for the engine: of a hand-made rule, the matches that none of these rows belongs to."""
    if of.pattern is not None:
        return engine_find(of, rows, without=without)
    return _matches(of, [each for each in _HAND_MADE[of.id] if not without[each].any()])


def _matches(of: Rule, members: Sequence[Sequence[int]]) -> Matches:
    flat = np.array([row for each in members for row in each], dtype=np.int64)
    return Matches(
        rule=of,
        rows=flat,
        offsets=np.cumsum([0, *map(len, members)]).astype(np.int64),
        variables=np.zeros(len(flat), dtype=np.uint8),
    )


def _op(k: dict[str, Any]) -> dict[str, Any]:
    shapes = k["shapes"]
    dtypes = k["dtypes"] or ["c10::BFloat16"] * len(shapes or ())
    known = shapes is not None
    return {
        "kind": "op",
        "name": k["op"],
        "start_ns": k["start_ns"],
        "dur_ns": 10,
        "module": k["module"],
        "input_shapes": json.dumps([list(s) for s in shapes]) if known else None,
        "input_dtypes": json.dumps(list(dtypes)) if known else None,
    }


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """One table of a timeline; what a row does not say is null."""
    schema = TABLES[name].schema
    plain = pa.schema(
        [pa.field(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in schema]
    )
    return pa.Table.from_pylist([{f.name: row.get(f.name) for f in schema} for row in rows], schema=plain).cast(schema)
