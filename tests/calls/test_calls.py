"""Calls of a timeline: one number and one `Call` for equal records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.calls.records import FIXTURES, Record, call_of, damaged, recorded
from tracemine.calls import DTYPES, NAME, SHAPES, Call, Calls, calls_of
from tracemine.calls import call as reader
from tracemine.calls.call import Texts
from tracemine.formats import open_trace
from tracemine.timeline import TABLES

MUL = {"name": "aten::mul", "input_shapes": "[[4,8],[8]]", "input_dtypes": '["float","float"]'}


def calls(*rows: dict[str, str]) -> Calls:
    return Calls(pa.Table.from_pylist(list(rows), schema=TABLES["ops"].schema))


def test_equal_records_are_one_call_and_others_are_not() -> None:
    found = calls(MUL, MUL | {"input_strides": "[[8,1],[1]]"}, MUL)
    assert found.number.tolist() == [0, 1, 0, -1]
    assert found.at(0) is found.at(2)
    assert found.at(0) is not found.at(1)
    assert found.at(-1) is None
    assert found.alike(np.array([0, 1, 2]), NAME, SHAPES, DTYPES).tolist() == [0, 0, 0]


def test_what_holds_of_a_call_is_asked_for_once_and_spread_over_its_rows() -> None:
    asked: list[Call] = []

    def elements(call: Call) -> int:
        asked.append(call)
        return len(call.shape(0) or ())

    found = calls(MUL, MUL, {"name": "aten::relu"})
    assert found.spread(np.array([1, -1, 0, 2, 1]), elements, -7).tolist() == [2, -7, 2, 0, 2]
    assert len(asked) == 2


def test_a_damaged_text_is_counted_once_and_spoils_nothing_else() -> None:
    found = calls(MUL | {"input_strides": "[[8"}, MUL | {"input_strides": "[[8", "concrete_inputs": "{}"})
    assert [(one.strides, one.values, one.bytes_read) for one in found] == [(None, None, 160), (None, None, 160)]
    assert found.damaged == 2


def test_a_table_of_operators_has_one_set_of_calls_while_it_lives() -> None:
    timeline = open_trace(FIXTURES / "kineto" / "chain.json.gz")
    kept = calls_of(timeline)
    assert calls_of(timeline) is kept
    assert kept.number[-1] == -1
    assert len(kept.number) == timeline.ops.num_rows + 1


def test_each_distinct_text_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []

    class Counting:
        def __init__(self, decoder: object) -> None:
            self._decoder = decoder

        def decode(self, text: str) -> object:
            decoded.append(text)
            return self._decoder.decode(text)  # type: ignore[attr-defined]

    monkeypatch.setattr(reader, "_EXTENTS", Counting(reader._EXTENTS))
    monkeypatch.setattr(reader, "_WORDS", Counting(reader._WORDS))
    timeline = open_trace(FIXTURES / "kineto" / "convnet_train.json.gz")
    for call in (*calls_of(timeline), *calls_of(timeline)):
        assert call.shapes is None or len(call.shapes) == len(call.dtypes or ())
    assert decoded
    # "[]" may be read as shapes and as types.
    assert len(decoded) - len(set(decoded)) <= 1


def test_of_a_newer_schema_the_arguments_that_were_appended_are_not_given() -> None:
    call = Call("aten::add", ((4,), (4,)), ("float", "float"))
    assert call.overload is not None
    assert call.overload.name == "Tensor"
    assert call.arguments is not None
    assert not call.arguments.given("alpha")


def test_members_of_lists_take_the_dtype_that_something_else_says() -> None:
    call = Call("aten::cat", (((2, 3), (2, 3)), ()), ("TensorList", "Scalar"), None, ("", "0"))
    assert call.bytes_read is None
    assert call.with_members("float16").bytes_read == 24
    assert call.with_members("float16") is call.with_members("float16")
    assert Call("aten::mul", ((4,), (4,)), ("float", "float")).with_members("float16").bytes_read == 32


def told(call: Call) -> tuple[object, ...]:
    return (
        *(call.shapes, call.dtypes, call.strides, call.values, call.first_tensor, call.op_class, call.inputs),
        *(call.outputs, call.bytes_read, call.bytes_written, call.flops, call.with_members("float32").bytes_read),
    )


def test_what_fixtures_recorded_is_read() -> None:
    read = Texts()
    calls = [call_of(record[0] or "", *record[1:], read) for record in recorded()]
    assert len(calls) > 500
    assert not read.damaged
    known = [call for call in calls if call.outputs is not None]
    assert all(call.arguments is not None and call.overload is not None for call in known)
    assert 2 * len(known) > len(calls)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_text_reads_as_one_that_was_not_recorded(seed: int) -> None:
    def readable(record: Record) -> Call:
        name, shapes, dtypes, strides, values = record
        read = (Texts().extents(shapes), Texts().words(dtypes), Texts().extents(strides), Texts().words(values))
        kept = [text if content is not None else None for text, content in zip(record[1:], read, strict=True)]
        return call_of(name or "", kept[0], kept[1], kept[2], kept[3])

    for record in damaged(seed):
        assert told(call_of(record[0] or "", *record[1:])) == told(readable(record))
