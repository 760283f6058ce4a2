"""A small row set and rules made from text, for all engine tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tracemine.matching import Rule
from tracemine.matching.advice import FACTS
from tracemine.matching.load import Vocabulary, load_rule
from tracemine.rows.table import Categories, Column, ColumnDoc, Flags, Numbers, Rows

DOCS = Vocabulary(
    {
        "activities": (
            ColumnDoc("op", "categories", "operator"),
            ColumnDoc("name", "categories", "kernel name"),
            ColumnDoc("dur_ns", "numbers", "duration"),
            ColumnDoc("gap_ns", "numbers", "idle before", "first on its stream"),
            ColumnDoc("bytes", "numbers", "traffic", "not recorded"),
            ColumnDoc("graph", "flags", "launched by a graph"),
            ColumnDoc("start_ns", "numbers", "start"),
            ColumnDoc("device", "numbers", "device", "not recorded"),
            ColumnDoc("stream", "numbers", "stream", "not recorded"),
        ),
        "gaps": (
            ColumnDoc("cause", "categories", "cause"),
            ColumnDoc("dur_ns", "numbers", "duration"),
            ColumnDoc("start_ns", "numbers", "start"),
            ColumnDoc("device", "numbers", "device"),
        ),
    },
    FACTS,
)

HEAD = """title = "Bias and activation run apart from their GEMM"
status = "experimental"
what = "A GEMM is followed by a bias add and an activation."
why = "Each kernel reads and writes the whole output once more."
fix = "Use a fused epilogue."
saving = "fuse"
"""


def column(values: Sequence[object]) -> Column:
    """Strings, booleans or integers, with None for null."""
    if any(isinstance(value, str) for value in values):
        distinct = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
        codes = [-1 if value is None else distinct.index(str(value)) for value in values]
        return Categories(np.array(codes, np.int32), distinct)
    if any(isinstance(value, bool) for value in values):
        return Flags(np.array(values, np.bool_))
    valid = np.array([value is not None for value in values], np.bool_)
    numbers = np.array([0 if value is None else value for value in values], np.int64)
    return Numbers(numbers, None if valid.all() else valid)


def make_rows(kind: str = "activities", **columns: Sequence[object]) -> Rows:
    """Rows from lists; device, stream and start_ns are made where they are not given."""
    count = len(next(iter(columns.values())))
    given = {"device": [0] * count, "stream": [7] * count, "start_ns": range(count), **columns}
    return Rows(kind, count, {name: column(list(values)) for name, values in given.items()})


RuleMaker = Callable[..., Rule]


@pytest.fixture
def rule(tmp_path: Path) -> RuleMaker:
    """Writes a rule folder from the text that follows the usual head, and loads it."""

    def make(body: str, *, head: str = HEAD, folder: str = "epilogue") -> Rule:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        (path / "rule.toml").write_text(head + body, "utf-8")
        return load_rule(path, DOCS)

    return make
