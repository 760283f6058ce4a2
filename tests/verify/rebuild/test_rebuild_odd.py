"""Whatever a recording says of calls and tensors: a chain is rebuilt, or it is said why not. Nothing else is raised."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tracemine.codegen.graph import Unsupported
from tracemine.codegen.triton.source import generate
from tracemine.flow import flow
from tracemine.flow.record import Flow
from tracemine.formats import open_trace
from tracemine.fusion import Groups, groups
from tracemine.verify.rebuild.rebuilder import NotRebuilt, Rebuilder

FIXTURES = Path(__file__).parents[3] / "fixtures"
CAPTURES = [
    *(f"captures/{name}" for name in ("chain", "decoder_prefill", "decoder_decode", "convnet_train")),
    *(f"captures/{name}/trace.json.gz" for name in ("decoder_prefill", "convnet_train")),
]
CASES = 25  # of each recording
HUGE = 10**18

Alter = Callable[[random.Random, Any], Any]


@cache
def read(name: str) -> tuple[Flow, Groups]:
    found = flow(open_trace(FIXTURES / name))
    return found, groups(found)


def _odd(chance: random.Random, value: Any) -> Any:
    """A part of an argument as JSON holds it, altered somewhere."""
    if isinstance(value, list) and value and chance.random() < 0.6:
        at = chance.randrange(len(value))
        return [*value[:at], _odd(chance, value[at]), *value[at + 1 :]]
    sizes = [0, -1, 1, 7, HUGE, -HUGE, 1 << 63, 1 << 64, 2.5]
    lists = [[], [[]], [3], [1] * 9, [[2, 3], [4]], [HUGE, HUGE], [-4, 4]]
    texts = ["", "x", "float", "c10::Half", "TensorList", "Scalar", "1e999", "nan", "[0, 99]", "[", "True", str(HUGE)]
    return chance.choice([*sizes, *lists, *texts, None, True, {"a": 1}])


def _json(chance: random.Random, text: str | None) -> str | None:
    """A column of JSON: altered within, cut off, doubled, or not there."""
    if text is None or chance.random() < 0.1:
        return chance.choice([None, "", "[", "null", "7", "[" * 500])
    return json.dumps(_odd(chance, json.loads(text)))


def _schema(chance: random.Random, text: str | None) -> str | None:
    other = "aten::sum.dim_IntList(Tensor self, int[]? dim) -> Tensor"
    return chance.choice([None, "", "aten::", "aten::mul.Scalar", "aten::no_such.X(", (text or "")[:9], other])


def _name(chance: random.Random, text: str | None) -> str | None:
    return chance.choice(["aten::mul", "aten::cat", "aten::index", "aten::sum", "aten::copy_", "x", "", f"{text}_"])


def _sizes(chance: random.Random, values: list[int] | None) -> list[int] | None:
    altered = list(values or [])
    if altered and chance.random() < 0.7:
        altered[chance.randrange(len(altered))] = chance.choice([0, 1, 3, -1, HUGE, -HUGE])
        return altered
    return chance.choice([None, [], [5], [2, 3, 4], [HUGE], [0, 0], [1] * 70])


def _number(chance: random.Random, _: Any) -> int | None:
    return chance.choice([None, 0, 1, -1, 2, 17, 1 << 30])


def _dtype(chance: random.Random, _: Any) -> str | None:
    return chance.choice([None, "", "float32", "float64", "bool", "int64", "complex64", "float8_e4m3fn", "no such"])


ALTER: dict[str, dict[str, Alter]] = {
    "ops": {
        "input_shapes": _json,
        "input_dtypes": _json,
        "input_strides": _json,
        "concrete_inputs": _json,
        "op_schema": _schema,
        "name": _name,
    },
    "tensors": {
        "shape": _sizes,
        "strides": _sizes,
        "dtype": _dtype,
        "device": _dtype,
        "position": _number,
        "list_index": _number,
        "offset_elements": _number,
        "storage_id": _number,
    },
}


def _altered(chance: random.Random, rows: pa.Table, name: str, alter: Alter) -> pa.Table:
    """A table of which some values of a column are others; null only where that may be."""
    field = rows.schema.field(name)
    share = chance.choice([0.05, 0.3, 1.0])
    values = rows.column(name).to_pylist()
    for row, value in enumerate(values):
        other = alter(chance, value) if chance.random() < share else value
        values[row] = value if other is None and not field.nullable else other
    coded = pa.types.is_dictionary(field.type)
    column = pa.array(values, pa.string() if coded else field.type)
    column = column.dictionary_encode() if coded else column
    return rows.set_column(rows.schema.get_field_index(name), field, column.cast(field.type))


def altered(chance: random.Random, found: Flow) -> Flow:
    """A flow over the timeline with columns of which some values are others."""
    tables = {}
    for table, columns in ALTER.items():
        tables[table] = getattr(found.timeline, table)
        for name in chance.sample(sorted(columns), k=chance.randrange(3)):
            tables[table] = _altered(chance, tables[table], name, columns[name])
    return replace(found, timeline=replace(found.timeline, **tables))


@pytest.mark.parametrize("name", CAPTURES)
def test_recordings_with_odd_values_are_rebuilt_or_refused_and_nothing_else(name: str) -> None:
    found, grouped = read(name)
    begin = grouped.activity_begin.tolist()
    came: Counter[str] = Counter()
    for seed in range(CASES):
        chance = random.Random(f"{name} {seed}")
        rebuilder = Rebuilder(altered(chance, found), grouped)
        for group in chance.sample(range(len(grouped)), k=min(4, len(grouped))):
            rows = grouped.activity[begin[group] : begin[group + 1]].tolist()
            for rebuild in (rebuilder.rebuild, rebuilder.with_products):
                try:
                    rebuilt = rebuild(rows, "chain")
                    came["rebuilt"] += 1
                    if rebuilt is not None:
                        generate(rebuilt.graph)
                except NotRebuilt:
                    came["not rebuilt"] += 1
                except Unsupported:
                    came["no kernel"] += 1
    assert min(came["rebuilt"], came["not rebuilt"]) > CASES // 4  # values are odd enough, and not too odd
