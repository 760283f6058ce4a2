"""The reader of recorded calls beside those that it takes the place of."""

from __future__ import annotations

import re

import pytest

from tests.calls.records import Record, damaged, recorded
from tracemine.calls import Call
from tracemine.calls.text import Texts
from tracemine.ops.infer import infer
from tracemine.ops.infer.library import library_call, of_arguments
from tracemine.rows.signature import decoded_inputs, first_tensor, texts
from tracemine.verify.rebuild.call_facts import texts_of, values_of


def call_of(record: Record, read: Texts | None = None) -> Call:
    name, shapes, dtypes, strides, concrete = record
    read = read or Texts()
    return Call(name or "", read.extents(shapes), read.words(dtypes), read.extents(strides), read.words(concrete))


def lists(value: object) -> object:
    return [lists(each) for each in value] if isinstance(value, tuple) else value


def compare(record: Record) -> list[str]:
    """What differs between the readers; a damaged text is given to the old ones as one that was not recorded."""
    read = Texts()
    call, wrong = call_of(record, read), []
    impossible = re.search(r"-\d|\d{12}", f"{record[1]} {record[3]}")  # sizes of no tensor: less may be known
    name, shapes, dtypes, strides, concrete = record
    shapes, strides = (text if read.extents(text) is not None else None for text in (shapes, strides))
    dtypes, concrete = (text if read.words(text) is not None else None for text in (dtypes, concrete))

    def same(what: str, new: object, old: object) -> None:
        if new != old and not (impossible and new in (None, (), [])):
            wrong.append(f"{what}: {new!r}, and not {old!r}")

    same("dtypes", call.dtypes, texts(dtypes))
    same("values", call.values, texts_of(concrete))
    same("shapes", lists(call.shapes or ()), list(values_of(shapes)))
    shape, dtype = first_tensor(shapes, dtypes)
    mine = call.first_tensor
    same("first", None if mine[0] is None else "[" + ",".join(map(str, mine[0])) + "]", shape)
    same("first dtype", mine[1], dtype)
    inputs = decoded_inputs(shapes, dtypes, strides, concrete)
    found = None if inputs is None else infer(name or "", *inputs)
    same("outputs", call.outputs, None if found is None else found.outputs)
    for element in (None, "float32"):
        counted = None if inputs is None else infer(name or "", *inputs, element)
        one = call.with_members(element)
        same("read", one.bytes_read, None if counted is None else counted.bytes_read)
        same("written", one.bytes_written, None if counted is None else counted.bytes_written)
    same("flops", call.flops, None if found is None else found.flops)
    same("library", of_arguments(call.arguments), None if inputs is None else library_call(name or "", *inputs))
    return wrong


def test_what_fixtures_recorded_reads_as_before() -> None:
    wrong = [(record, found) for record in recorded() if (found := compare(record))]
    assert not wrong, wrong[:3]
    assert len(recorded()) > 500


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_text_reads_as_one_that_was_not_recorded(seed: int) -> None:
    wrong = [(record, found) for record in damaged(seed) if (found := compare(record))]
    assert not wrong, wrong[:3]
