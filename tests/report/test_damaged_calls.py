"""Calls whose recorded text is damaged: they count as not recorded, and reports say how many there are."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tracemine import pipeline
from tracemine.formats import open_trace
from tracemine.report import render

CHAIN = Path(__file__).parents[2] / "fixtures" / "kineto" / "chain.json.gz"


def printed(damaged: int, report: str) -> str:
    """What a report prints of a trace of which so many texts of recorded shapes end too early."""
    timeline = open_trace(CHAIN)
    shapes = timeline.ops["input_shapes"].to_pylist()
    whole = list(dict.fromkeys(text for text in shapes if text))
    cut = {text: text[:-1] for text in whole[:damaged]}
    assert len(cut) == damaged
    column = pa.array([cut.get(text, text) for text in shapes], timeline.ops.schema.field("input_shapes").type)
    ops = timeline.ops.set_column(timeline.ops.schema.get_field_index("input_shapes"), "input_shapes", column)
    out = StringIO()
    render(report, pipeline.mined(pipeline.analysed(replace(timeline, ops=ops))), out)
    return out.getvalue()


@pytest.mark.parametrize("report", ["text", "json", "markdown"])
def test_a_report_says_how_many_texts_of_calls_are_damaged(report: str) -> None:
    said = "left out: what 1 damaged text of recorded calls would have said"
    assert said in " ".join(printed(1, report).split()).lower()
    assert "damaged" not in printed(0, report)


def test_in_json_it_is_a_warning() -> None:
    warnings = json.loads(printed(2, "json"))["warnings"]
    assert "left out: what 2 damaged texts of recorded calls would have said" in warnings
